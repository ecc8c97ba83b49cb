"""`source_texts`: code, books, papers and other texts that are no crawl, through dedup and scrub.

Three datasets under the source's folder: `steps/scored`, `steps/deduped` and the source itself. The
decisions of the last also carry what the steps before dropped: every line has one fate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import section_json
from pipeline.config.language import LanguageConfig
from pipeline.config.score import ScoreConfig
from pipeline.dataset import Dataset, file_checksum, read_part
from pipeline.driver import StageSpec
from pipeline.errors import ConfigError, UsageError
from pipeline.inputs import DerivedSource, Input, Loaded, dataset_input, file_input
from pipeline.layout import check_name
from pipeline.manifest import Entry, Manifest
from pipeline.mill import Mill, run_stage
from pipeline.part import PartResult
from pipeline.sources import base_name
from pipeline.stages.corpus import dedup_input
from pipeline.stages.curation import scrub_input
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl

CODE_VERSION = "2"
STAGE = "source_texts"
ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")


def source_names(location: str | None) -> list[str]:
    """Names of the sources in a folder. ConfigError for no folder, or two files of one source."""
    if not location:
        return []
    folder = Path(location)
    if not folder.is_dir():
        message = f"sources.location: {location} is no folder"
        raise ConfigError(message, hint="give the folder that holds <source>.jsonl.gz files")
    files = [path for path in sorted(folder.iterdir()) if path.name.endswith(ENDINGS)]
    names = [_name(path) for path in files if not path.name.startswith(".")]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        message = f"sources.location: {location} has two files of the source {twice[0]!r}"
        raise ConfigError(message, hint="a source is one file: rename or remove the other")
    return names


def _name(path: Path) -> str:
    return base_name(path.name.removesuffix(".parquet"))


def source_file(location: str | None, source: str) -> Path:
    """The file of a source. UsageError where there is none."""
    check_name("source", source)
    if location:
        for path in sorted(Path(location).glob(f"{source}.*")):
            if path.name.endswith(ENDINGS) and _name(path) == source:
                return path
    known = ", ".join(source_names(location)) or "none, sources.location is not set"
    message = f"source {source!r} has no file"
    raise UsageError(message, hint=f"known: {known}")


def source_texts(mill: Mill, source: str) -> Manifest:
    """A source's records with split, deduplicated within the source, scrubbed."""
    out = mill.folder(STAGE, source)
    given = file_input([source_file(mill.config.sources.location, source)])
    scored = _step(mill, out, "scored")
    _split(mill, given, scored, source)
    deduped = _step(mill, out, "deduped")
    dedup_input(
        mill, dataset_input(Dataset.open(scored)), [], deduped, source, stage=f"{STAGE}.deduped"
    )
    last = dataset_input(Dataset.open(deduped))
    carried = _carrying(last, scored, deduped)
    return scrub_input(mill, carried, out, source, stage=STAGE, refs=given.refs)


def _step(mill: Mill, out: Store, name: str) -> Store:
    return out.child(f"steps/{name}")


def _split(mill: Mill, given: Input, out: Store, source: str) -> Manifest:
    from pipeline import quality
    from pipeline.language import libraries, model_path

    config = {
        "score": section_json(mill.config.score),
        "language": section_json(mill.config.filter.language),
        "language_model": file_checksum(model_path()),
    }
    needed = (*quality.LIBRARIES, *libraries(mill.config.filter.language))
    spec = StageSpec(f"{STAGE}.scored", CODE_VERSION, needed, source, config)
    work = partial(_score, config=mill.config.score, language=mill.config.filter.language)
    return run_stage(mill, spec, given, work, out, by_rows=True)


def _score(frame: pl.DataFrame, *, config: ScoreConfig, language: LanguageConfig) -> PartResult:
    """Split by record id, language where the record names none.

    Sources are chosen by a person: they need no quality score and no language is dropped.
    """
    from pipeline.quality import score_documents

    told = with_language(frame, language)
    everything = {"min_quality": None, "min_grade": None, "selection": None}
    return score_documents(told, config.model_copy(update=everything), None, None)


def with_language(frame: pl.DataFrame, config: LanguageConfig) -> pl.DataFrame:
    """The frame with `language` filled in, by identification, where it is null or not there."""
    import polars as pl

    from pipeline.language import signals

    told = signals(frame["text"], config)["language"]
    if "language" not in frame.columns:
        return frame.with_columns(told)
    return frame.with_columns(pl.col("language").cast(pl.String).fill_null(told))


@dataclass(frozen=True)
class CarryingSource(DerivedSource):
    """A part of the last step, with the decisions of earlier steps on rows that never got there."""

    earlier: tuple[tuple[Store, Entry], ...]

    @property
    def more(self) -> tuple[str, ...]:
        return tuple(entry.checksum for _, entry in self.earlier)

    def load(self) -> Loaded:
        loaded, rejected = self.part.load(), self._rejected()
        return Loaded(loaded.value, (loaded.rows or 0) + rejected.height, rejected)

    def batches(self) -> Iterator[Loaded]:
        for loaded in self.part.batches():
            yield loaded
        rejected = self._rejected()
        yield Loaded(loaded.value.clear(), rejected.height, rejected)

    def _rejected(self) -> pl.DataFrame:
        import polars as pl

        frames = [read_part(store, entry) for store, entry in self.earlier]
        return pl.concat([frame.filter(~pl.col("kept")) for frame in frames])


def _carrying(last: Input, *steps: Store) -> Input:
    earlier = [(step, Dataset.open(step).entries("decisions")) for step in steps]
    sources: Sequence[CarryingSource] = [
        CarryingSource(source, tuple((step, entries[i]) for step, entries in earlier))
        for i, source in enumerate(last.sources)
    ]
    return Input(tuple(sources), last.refs, last.dataset, last.locations)
