"""Datasets: folders of parts that are reached through a manifest, and only through it.

    DIR/current                 hash of the current manifest
    DIR/manifests/<hash>.json
    DIR/part-<checksum>.parquet, decisions/part-…, signals/part-…, …
    DIR/receipts/<part key>.json    what the finished work of one part was (see driver.py)

Files are named by their content, so an equal output under another configuration is the same file
and the same data version. A part that disagrees with its manifest is refused by name.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.errors import ContractError, DamagedPartError, GateError, UsageError
from pipeline.manifest import Entry, Manifest

if TYPE_CHECKING:
    import polars as pl

    from pipeline.store import Store

POINTER = "current"


def checksum(data: bytes) -> str:
    """`sha256:<hex>` of bytes, the form manifests use."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def manifest_key(name: str) -> str:
    """The key of a manifest within its dataset folder."""
    return f"manifests/{name}.json"


def file_checksum(path: Path) -> str:
    """`sha256:<hex>` of a local file, read in one pass."""
    with path.open("rb") as stream:
        return "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()


def encode_parquet(table: pa.Table) -> bytes:
    """A table as Parquet, for a digest of it: the same bytes for the same rows."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", row_group_size=10_000)
    return sink.getvalue()


@dataclass(frozen=True)
class Dataset:
    """A committed dataset, pinned to one manifest."""

    store: Store
    manifest: Manifest

    @classmethod
    def open(cls, store: Store, *, name: str | None = None, accept_gate: bool = False) -> Dataset:
        """The dataset at `store`, at its current manifest or at manifest `name`.

        Raises UsageError where there is none, GateError where a blocking gate failed and was
        neither accepted here nor when it was made.
        """
        manifest = read_manifest(store, name)
        failed = manifest.failed_gates()
        if failed and not accept_gate:
            gate = failed[0]
            message = (
                f"{store.url} failed its gate {gate.name!r}: {gate.value} against {gate.threshold}"
            )
            hint = "mend the cause and materialise again, or set accept_gate: {name, reason}"
            raise GateError(message, hint=hint)
        return cls(store, manifest)

    def entries(self, kind: str = "parts") -> list[Entry]:
        """The files of a kind, in part order."""
        return self.manifest.content.entries(kind)

    def read(self, entry: Entry, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """One table, verified against the manifest. Raises DamagedPartError naming the file."""
        return read_part(self.store, entry, columns)

    def frames(
        self, kind: str = "parts", columns: Sequence[str] | None = None
    ) -> Iterator[pl.DataFrame]:
        """All tables of a kind, in part order."""
        for entry in self.entries(kind):
            yield self.read(entry, columns)

    def load(self, kind: str = "parts", columns: Sequence[str] | None = None) -> pl.DataFrame:
        """All rows of a kind, in part order."""
        import polars as pl

        frames = list(self.frames(kind, columns))
        return pl.concat(frames, how="diagonal") if frames else pl.DataFrame()


def current_manifest(store: Store) -> str | None:
    """The hash that the pointer holds; None where nothing was committed."""
    try:
        return store.read(POINTER).decode().strip()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        message = f"the pointer {store.url}/{POINTER} holds no hash"
        raise ContractError(message, hint="remove it and materialise the stage again") from error


def read_manifest(store: Store, name: str | None = None) -> Manifest:
    """The current manifest, or the one called `name`, verified by its hash."""
    chosen = name or current_manifest(store)
    if chosen is None:
        message = f"{store.url} holds no dataset"
        raise UsageError(message, hint="a dataset folder has a file `current`; run its stage first")
    try:
        data = store.read(manifest_key(chosen))
    except FileNotFoundError as error:
        message = f"{store.url} lacks manifest {chosen}"
        hint = f"remove {store.url}/{POINTER} and materialise the stage again"
        raise ContractError(message, hint=hint) from error
    return Manifest.from_bytes(data, name=chosen)


def read_bytes(store: Store, entry: Entry) -> bytes:
    """The bytes of a file, verified against its entry."""
    try:
        data = store.read(entry.path)
    except FileNotFoundError as error:
        raise _absent(store, entry) from error
    if len(data) != entry.bytes or checksum(data) != entry.checksum:
        raise _altered(store, entry, len(data))
    return data


def _absent(store: Store, entry: Entry) -> DamagedPartError:
    message = f"{store.url}/{entry.path} is named in the manifest but is not there"
    return DamagedPartError(message, hint=_REMAKE)


def _altered(store: Store, entry: Entry, size: int) -> DamagedPartError:
    message = (
        f"{store.url}/{entry.path} has {size:,} bytes and another checksum than its "
        f"manifest says ({entry.bytes:,} bytes)"
    )
    return DamagedPartError(message, hint=_REMAKE)


def read_part(store: Store, entry: Entry, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """A table, verified: bytes, checksum and rows."""
    import polars as pl

    table = pq.read_table(io.BytesIO(read_bytes(store, entry)), columns=_list(columns))
    check_rows(store, entry, table.num_rows)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


@contextmanager
def verified(store: Store, entry: Entry) -> Iterator[Path]:
    """A local file with the bytes of an entry, verified, which are never all in memory."""
    with ExitStack() as held:
        try:
            path = held.enter_context(store.local(entry.path))
        except FileNotFoundError as error:
            raise _absent(store, entry) from error
        size = path.stat().st_size
        if size != entry.bytes or file_checksum(path) != entry.checksum:
            raise _altered(store, entry, size)
        yield path


def check_rows(store: Store, entry: Entry, rows: int) -> None:
    """DamagedPartError where a table has another number of rows than its entry says."""
    if rows != entry.rows:
        message = f"{store.url}/{entry.path} has {rows} rows, its manifest {entry.rows}"
        raise DamagedPartError(message, hint=_REMAKE)


def find_rows(
    store: Store, entry: Entry, column: str, values: Sequence[str] | Sequence[int]
) -> pa.Table:
    """The rows of one table whose `column` is among `values`; row groups are skipped by statistics.

    For look-ups by a person: the file's checksum is not computed, since that reads all of it.
    """
    with store.local(entry.path) as path:
        if not values:  # an empty set has no type that could be compared
            return pq.read_schema(path).empty_table()
        return pq.read_table(path, filters=pc.field(column).isin(list(values)))


def _list(columns: Sequence[str] | None) -> list[str] | None:
    return None if columns is None else list(columns)


_REMAKE = "remove the damaged file and materialise the stage again; it makes what is missing"
