"""What a part is read from: a part of a dataset, several of them, a Parquet file, a JSONL file.

A source is small and picklable; a worker process loads it. `checksums` is what goes into the part's
key: the content that was actually read, never its name or place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pipeline.batches import read_batches, slices
from pipeline.dataset import Dataset, file_checksum, read_part
from pipeline.errors import UsageError
from pipeline.manifest import Entry, InputRef
from pipeline.part import Damage
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl

JSONL_ENDINGS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")


@dataclass
class Loaded:
    """What a source held: rows for the stage, and decisions on rows that never got that far."""

    value: Any
    rows: int | None = None
    rejected: pl.DataFrame | None = None
    damaged: list[Damage] = field(default_factory=list)


class Source(Protocol):
    """Where one part comes from."""

    @property
    def label(self) -> str:
        """A name for messages."""
        ...

    @property
    def checksums(self) -> tuple[str, ...]:
        """What it holds, for the part's key."""
        ...

    @property
    def origin(self) -> str | None:
        """Base name of the file the documents descend from."""
        ...

    @property
    def group(self) -> int | None:
        """The part group."""
        ...

    @property
    def size_bytes(self) -> int:
        """Stored bytes that loading it reads."""
        ...

    def load(self) -> Loaded:
        """Read and verify it."""
        ...

    def batches(self) -> Iterator[Loaded]:
        """The same in batches of rows, at least one, all with the same columns; what is rejected
        comes with the last."""
        ...


class AtOnce(ABC):
    """Sources of one batch."""

    @abstractmethod
    def load(self) -> Loaded:
        """Read and verify it."""

    def batches(self) -> Iterator[Loaded]:
        yield self.load()


@dataclass(frozen=True)
class TableSource:
    """One part of a dataset."""

    store: Store
    entry: Entry

    @property
    def label(self) -> str:
        return f"{self.store.url}/{self.entry.path}"

    @property
    def checksums(self) -> tuple[str, ...]:
        return (self.entry.checksum,)

    @property
    def origin(self) -> str | None:
        return self.entry.source

    @property
    def group(self) -> int | None:
        return self.entry.group

    @property
    def size_bytes(self) -> int:
        return self.entry.bytes

    def load(self) -> Loaded:
        frame = read_part(self.store, self.entry)
        return Loaded(frame, frame.height)

    def batches(self) -> Iterator[Loaded]:
        for frame in read_batches(self.store, self.entry):
            yield Loaded(frame, frame.height)


@dataclass(frozen=True)
class GroupSource(AtOnce):
    """All parts of one part group, one after the other."""

    store: Store
    entries: tuple[Entry, ...]

    @property
    def label(self) -> str:
        return f"{self.store.url} group {self.group}"

    @property
    def checksums(self) -> tuple[str, ...]:
        return tuple(entry.checksum for entry in self.entries)

    @property
    def origin(self) -> str | None:
        return None

    @property
    def group(self) -> int | None:
        return self.entries[0].group

    @property
    def size_bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    def load(self) -> Loaded:
        import polars as pl

        frames = [read_part(self.store, entry) for entry in self.entries]
        frame = pl.concat(frames, how="diagonal")
        return Loaded(frame, frame.height)


@dataclass(frozen=True)
class FileSource:
    """A Parquet or JSONL(.gz) file given by a person."""

    path: Path
    checksum: str
    taken: tuple[str, ...] = ()
    """Ids of documents that an earlier file of the same input has: dropped here."""

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def checksums(self) -> tuple[str, ...]:
        # the base name is part of the documents' ids
        return (self.path.name, self.checksum, *self.taken)

    @property
    def origin(self) -> str | None:
        return self.path.name

    @property
    def group(self) -> int | None:
        return None

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def load(self) -> Loaded:
        import polars as pl

        from pipeline.tables import duplicates, read_table

        damaged: list[Damage] = []
        if self.path.name.endswith(".parquet"):
            frame, rejected = read_table(self.path)
        else:
            from pipeline.sources import parse_jsonl

            result = parse_jsonl(self.path.read_bytes(), self.path.name)
            decisions = result.tables["decisions"]
            frame, rejected = result.tables["parts"], decisions.filter(~decisions["kept"])
            damaged = result.damaged
        if self.taken:
            again = frame["doc_id"].is_in(self.taken)
            more = duplicates(frame, again, self.path.name)
            frame = frame.filter(~again)
            rejected = pl.concat([rejected, more], how="diagonal_relaxed")
        return Loaded(frame, frame.height + rejected.height, rejected, damaged)

    def batches(self) -> Iterator[Loaded]:
        loaded = self.load()
        for frame in slices(loaded.value):
            yield Loaded(frame, frame.height)
        rejected = loaded.rejected
        rows = 0 if rejected is None else rejected.height
        yield Loaded(loaded.value.clear(), rows, rejected, loaded.damaged)


@dataclass(frozen=True)
class DerivedSource(AtOnce):
    """A part, with something more that the stage function depends on."""

    part: Source

    @property
    def label(self) -> str:
        return self.part.label

    @property
    def more(self) -> tuple[str, ...]:
        """What goes into the key beside the content of the part."""
        return ()

    @property
    def checksums(self) -> tuple[str, ...]:
        return (*self.part.checksums, *self.more)

    @property
    def origin(self) -> str | None:
        return self.part.origin

    @property
    def group(self) -> int | None:
        return self.part.group

    @property
    def size_bytes(self) -> int:
        return self.part.size_bytes

    def load(self) -> Loaded:
        return self.part.load()


@dataclass(frozen=True)
class AllSources(AtOnce):
    """Every source of an input as one part, for what is made of all of them at once."""

    sources: tuple[Source, ...]
    origin: str | None = None
    group: int | None = None

    @property
    def label(self) -> str:
        return self.sources[0].label if len(self.sources) == 1 else f"{len(self.sources)} parts"

    @property
    def checksums(self) -> tuple[str, ...]:
        return tuple(checksum for source in self.sources for checksum in source.checksums)

    @property
    def size_bytes(self) -> int:
        return sum(source.size_bytes for source in self.sources)

    def load(self) -> Loaded:
        import polars as pl

        parts = [source.load() for source in self.sources]
        rejected = [p.rejected for p in parts if p.rejected is not None]
        return Loaded(
            pl.concat([part.value for part in parts], how="diagonal_relaxed"),
            sum(part.rows or 0 for part in parts),
            pl.concat(rejected, how="diagonal_relaxed") if rejected else None,
            [damage for part in parts for damage in part.damaged],
        )


@dataclass(frozen=True)
class BlobSource(AtOnce):
    """A file taken as it is: its path is what the stage function gets."""

    path: Path
    checksum: str
    group: int | None = None

    @property
    def label(self) -> str:
        return str(self.path)

    @property
    def checksums(self) -> tuple[str, ...]:
        return (self.checksum,)

    @property
    def origin(self) -> str | None:
        return self.path.name

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def load(self) -> Loaded:
        return Loaded(self.path)


@dataclass(frozen=True)
class Input:
    """What a stage was pointed at: its sources in order, and how the manifest names it."""

    sources: tuple[Source, ...]
    refs: tuple[InputRef, ...]
    dataset: Dataset | None
    locations: tuple[str, ...]


def dataset_input(dataset: Dataset) -> Input:
    """A committed dataset as input."""
    content = dataset.manifest.content
    sources = tuple(TableSource(dataset.store, entry) for entry in dataset.entries())
    ref = InputRef(asset=content.stage, partition=content.partition, hash=dataset.manifest.hash)
    return Input(sources, (ref,), dataset, (dataset.store.url,))


def file_input(paths: Sequence[Path]) -> Input:
    """Parquet and JSONL files by base name: the order of arguments is irrelevant."""
    ordered = sorted(paths, key=lambda path: (path.name, str(path)))
    sources = without_repeats([FileSource(path, file_checksum(path)) for path in ordered])
    refs = tuple(InputRef(file=s.path.name, checksum=s.checksum) for s in sources)
    return Input(sources, refs, None, tuple(str(path) for path in ordered))


def without_repeats(sources: Sequence[FileSource]) -> tuple[FileSource, ...]:
    """Several files as one input: of documents with one id the first in order is taken.

    Reads the files once more for it, which costs about a tenth of what filtering them does.
    """
    if len(sources) < 2:
        return tuple(sources)
    seen: set[str] = set()
    chosen = []
    for source in sources:
        ids = source.load().value["doc_id"].to_list()
        chosen.append(replace(source, taken=tuple(sorted(seen.intersection(ids)))))
        seen.update(ids)
    return tuple(chosen)


def as_one(given: Input) -> Input:
    """The same input as a single part."""
    return Input((AllSources(given.sources),), given.refs, given.dataset, given.locations)


def blob_input(path: Path) -> Input:
    """One file, taken as it is."""
    digest = file_checksum(path)
    ref = InputRef(file=path.name, checksum=digest)
    return Input((BlobSource(path, digest),), (ref,), None, (str(path),))


def check_input_path(path: Path) -> str:
    """What a path is as an input: `dataset`, `parquet`, `jsonl` or `folder`. Raises UsageError."""
    if path.is_dir():
        return "dataset" if (path / "current").exists() else "folder"
    if not path.exists():
        message = f"{path} is not there"
        raise UsageError(message, hint="give a dataset folder, a Parquet file or a JSONL(.gz) file")
    if path.name.endswith(".parquet"):
        return "parquet"
    if path.name.endswith(JSONL_ENDINGS):
        return "jsonl"
    message = f"{path} is neither a dataset folder nor a .parquet, .jsonl or .jsonl.gz file"
    raise UsageError(message, hint="name it by its kind")
