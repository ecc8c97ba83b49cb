"""Pages that another setting would drop, and pages that it would rescue, to look at.

Chosen the same way every time: of the first parts that have any, the pages with the smallest ids,
one for each rule in turn. An id is a hash, so that is a sample and no selection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.config.display import DisplayConfig
from pipeline.dataset import Dataset, read_manifest
from pipeline.errors import GristmillError
from pipeline.excerpts import page_name, scrubbed
from pipeline.inputs import FileSource, file_checksum
from pipeline.manifest import Content, Entry, InputRef, part_key
from pipeline.store import Store
from pipeline.what_if.tally import SIDES, Judged

EXAMPLES = 10
PARTS = 8
"""Parts that examples are taken from: each costs a reading of its texts."""

COLUMNS = ("doc_id", "url", "language", "n_bytes", "reason", "value", "threshold", "fails", "part")


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


@dataclass
class Examples:
    """Candidates of both kinds, by the side that keeps them, and the parts they are in."""

    places: list[Place] = field(default_factory=list)
    found: dict[str, list[pl.DataFrame]] = field(default_factory=lambda: {s: [] for s in SIDES})
    parts: dict[str, set[int]] = field(default_factory=lambda: {s: set() for s in SIDES})

    def begin(self, place: Place) -> None:
        """The batches that follow are of this part."""
        self.places.append(place)

    def add(self, judged: Judged) -> None:
        """Take note of what turned in a batch."""
        at = len(self.places) - 1
        for kept in SIDES:
            seen = self.parts[kept]
            turned = judged.turned(kept)
            if turned.any() and (at in seen or len(seen) < PARTS):
                seen.add(at)
                self.found[kept].append(_candidates(judged, kept, turned, at))

    def newly_dropped(self, config: DisplayConfig) -> list[dict[str, Any]]:
        """Pages that are kept now and would not be."""
        return self._shown("before", config)

    def rescued(self, config: DisplayConfig) -> list[dict[str, Any]]:
        """Pages that are dropped now and would be kept."""
        return self._shown("after", config)

    def _shown(self, kept: str, config: DisplayConfig) -> list[dict[str, Any]]:
        if not self.found[kept]:
            return []
        chosen = _in_turn(pl.concat(self.found[kept])).head(EXAMPLES)
        rows = chosen.to_dicts()
        texts = self._texts(kept, rows) if config.excerpts else {}
        with_text = chosen.select("doc_id", "url").filter(pl.col("doc_id").is_in(list(texts)))
        column = [texts[doc_id] for doc_id in with_text["doc_id"]]
        with_text = with_text.with_columns(pl.Series("text", column, pl.String))
        excerpts = dict(zip(with_text["doc_id"], scrubbed(with_text, config), strict=True))
        for row in rows:
            del row["part"]
            row["url"] = page_name(None, row["url"]) or None
            row["excerpt"] = excerpts.get(row["doc_id"])
        return rows

    def _texts(self, kept: str, rows: list[dict[str, Any]]) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for at in dict.fromkeys(row["part"] for row in rows):
            ids = [row["doc_id"] for row in rows if row["part"] == at]
            try:
                found |= self.places[at].texts(kept == "before", ids)
            except (GristmillError, FileNotFoundError):
                continue  # moved or pruned since: the page is shown without its text
        return found


def _candidates(judged: Judged, kept: str, turned: pl.Series, at: int) -> pl.DataFrame:
    """What turned in a batch, as COLUMNS: at most EXAMPLES a rule, with all that drops them."""
    drops = SIDES[1 - SIDES.index(kept)]
    decided = judged.decided[drops].select("reason", "value", "threshold")
    frame = judged.documents.with_columns(decided.get_columns()).with_row_index("row")
    frame = _in_turn(frame.filter(turned))
    fails = judged.fails[drops][frame["row"].to_list()]
    names = [
        [name for name, failed in zip(fails.columns, row, strict=True) if failed]
        for row in fails.iter_rows()
    ]
    fails_of_each = pl.Series("fails", names, pl.List(pl.String))
    return frame.with_columns(fails_of_each, part=pl.lit(at, pl.Int64)).select(COLUMNS)


def _in_turn(frame: pl.DataFrame) -> pl.DataFrame:
    """At most EXAMPLES of each reason: of each the smallest id, then of each the second, ..."""
    turn = pl.col("doc_id").rank("ordinal").over("reason")
    first = frame.with_columns(turn=turn).filter(pl.col("turn") <= EXAMPLES)
    return first.sort("turn", "reason", "doc_id").drop("turn")
