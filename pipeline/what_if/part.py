"""One part of a filtered dataset: its documents decided twice, and its texts where they are shown.

First under the configuration that the manifest names, which must give the stored decisions again,
row for row; then under the one that is asked about.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.batches import ROW_GROUP_ROWS
from pipeline.dataset import Dataset, file_checksum, read_bytes, read_manifest
from pipeline.errors import ContractError
from pipeline.filters.rules import RuleRow, judge
from pipeline.filters.run import CODE_VERSION, rules
from pipeline.inputs import FileSource
from pipeline.manifest import Content, Entry, InputRef, part_key
from pipeline.store import Store
from pipeline.what_if.question import STAGE, stored_section
from pipeline.what_if.tally import Judged, Side, judge_batch

BATCH_ROWS = 100_000
"""Documents decided at once: 40 signals and twice as many verdicts of each, some 25 MB."""

DECIDED = ("doc_id", "url", "kept", "reason", "value", "threshold")
COUNTED = ("doc_id", "language", "n_bytes")


@dataclass(frozen=True)
class Place:
    """One part of a filtered dataset, and where what it was made of may be found."""

    dataset: Dataset
    entry: Entry
    upstream: Store | None
    """The folder of the dataset that was filtered, where it is known to be elsewhere by now."""
    open_store: Callable[[str], Store]

    def texts(self, kept: bool, ids: list[str]) -> dict[str, str | None]:
        """doc_id -> text: of kept documents as they are, of dropped ones as they came in."""
        return self._kept(ids) if kept else self._incoming(ids)

    def _kept(self, ids: list[str]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for entry in self.dataset.entries():
            if entry.key == self.entry.key:
                found |= find_texts(self.dataset.store, entry, ids)
        return found

    def _incoming(self, ids: list[str]) -> dict[str, str | None]:
        content = self.dataset.manifest.content
        found: dict[str, str | None] = {}
        locations = self.dataset.manifest.run.get("inputs", [])
        for ref, location in zip(content.inputs, locations, strict=False):
            if ref.file:
                found |= self._from_file(ref, Path(location), ids)
            elif ref.hash:
                store = self.upstream or self.open_store(location)
                for entry in read_manifest(store, ref.hash).content.parts:
                    if key_of(content, entry) == self.entry.key:
                        found |= find_texts(store, entry, ids)
        return found

    def _from_file(self, ref: InputRef, path: Path, ids: list[str]) -> dict[str, str | None]:
        if ref.file != self.entry.source or file_checksum(path) != ref.checksum:
            return {}
        assert ref.checksum is not None
        frame: pl.DataFrame = FileSource(path, ref.checksum).load().value
        wanted = frame.filter(pl.col("doc_id").is_in(ids))
        return dict(wanted.select("doc_id", "text").iter_rows())


def key_of(content: Content, entry: Entry) -> str:
    """The key of what a stage made of one part of its input."""
    return part_key(
        stage=content.stage,
        checksums=[entry.checksum],
        config=content.config,
        code_version=content.code_version,
        libraries=content.libraries,
    )


def find_texts(store: Store, entry: Entry, ids: list[str]) -> dict[str, str | None]:
    """doc_id -> text of some documents of a part."""
    with store.local(entry.path) as path:
        columns = ["doc_id", "text"]
        table = pq.read_table(path, columns=columns, filters=pc.field("doc_id").isin(ids))
    return dict(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def judged_batches(
    place: Place, decisions: Entry, sides: dict[str, Side]
) -> Iterator[tuple[Judged | None, dict[str, int]]]:
    """A part's documents in batches, and reasons of the records that no rule was asked about.

    Both tables have row groups of one size; the decisions on unreadable lines come last. Raises
    ContractError where the stored decisions do not follow from the signals.
    """
    needed = {*COUNTED}.union(*(side.signals for side in sides.values()))
    measured = _batches(place, place.entry, needed)
    for stored in _batches(place, decisions, DECIDED):
        signals, judged, n = next(measured, None), None, 0
        if signals is not None:
            n = signals.height
            judged = judge_batch(signals, stored["url"].head(n), sides)
            _check_decisions(judged, stored.head(n), place)
        yield judged, dict(stored["reason"].slice(n).value_counts().iter_rows())
    if next(measured, None) is not None:
        raise _of_others(place)


def failing(content: Content, signals: pl.DataFrame) -> list[RuleRow]:
    """All rules that the one document of `signals` fails, under the settings of a manifest.

    None where an earlier version of the filter measured something else.
    """
    try:
        listed = rules(stored_section(content)[1])
    except ContractError:
        return []
    if not Side.of(listed).signals <= set(signals.columns):
        return []
    return [row for row in judge(signals, listed) if not row.passes]


def _batches(place: Place, entry: Entry, needed: Collection[str]) -> Iterator[pl.DataFrame]:
    """Columns of a table of a part, verified, some row groups at a time.

    ContractError where one is not there: an earlier version of the filter did not measure it.
    """
    store = place.dataset.store
    file = pq.ParquetFile(io.BytesIO(read_bytes(store, entry)))
    missing = sorted(set(needed) - set(file.schema_arrow.names))
    if missing:
        message = f"{store.url}/{entry.path} lacks the signal {missing[0]!r}"
        raise ContractError(message, hint=_versions(place))
    step = max(BATCH_ROWS // ROW_GROUP_ROWS, 1)
    for first in range(0, file.num_row_groups, step):
        groups = range(first, min(first + step, file.num_row_groups))
        frame = pl.from_arrow(file.read_row_groups(list(groups), columns=sorted(needed)))
        assert isinstance(frame, pl.DataFrame)
        yield frame


def _check_decisions(judged: Judged, stored: pl.DataFrame, place: Place) -> None:
    """ContractError where the rules do not decide from the signals what was decided."""
    if not stored["doc_id"].equals(judged.documents["doc_id"]):
        raise _of_others(place)
    again = judged.decided["before"]
    wrong = again["reason"].ne_missing(stored["reason"]) | (again["kept"] != stored["kept"])
    for name in ("value", "threshold"):
        # a signal is stored in half the digits that its decision was
        numbers = [frame[name].cast(pl.Float32) for frame in (again, stored)]
        wrong |= numbers[0].ne_missing(numbers[1])
    if not wrong.any():
        return
    at = int(wrong.arg_max() or 0)
    verdicts = [frame.select("reason", "value", "threshold").row(at) for frame in (stored, again)]
    then, now = (f"{r} ({v} against {t})" if r else "kept" for r, v, t in verdicts)
    message = (
        f"{_where(place)}: document {stored['doc_id'][at]} was decided {then}, its signals say "
        f"{now}; {wrong.sum():,} of {stored.height:,} differ"
    )
    raise ContractError(message, hint=_versions(place))


def _of_others(place: Place) -> ContractError:
    message = f"{_where(place)} has signals of other documents than it has decisions of"
    return ContractError(message, hint=_REMAKE)


def _versions(place: Place) -> str:
    version = place.dataset.manifest.content.code_version
    return f"made by version {version} of the filter, this is {CODE_VERSION}: {_REMAKE}"


def _where(place: Place) -> str:
    return f"{place.dataset.store.url}/{place.entry.path}"


_REMAKE = f"materialise {STAGE} again"
