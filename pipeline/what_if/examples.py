"""Pages that another setting would drop, and pages that it would rescue, to look at.

Chosen the same way every time: of the first parts that have any, the pages with the smallest ids,
one for each rule in turn. An id is a hash, so that is a sample and no selection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipeline.config.display import DisplayConfig
from pipeline.errors import GristmillError
from pipeline.excerpts import page_name, scrubbed
from pipeline.what_if.part import Place
from pipeline.what_if.tally import SIDES, Judged

EXAMPLES = 10
PARTS = 8
"""Parts that examples are taken from: each costs a reading of its texts."""

COLUMNS = ("doc_id", "url", "language", "n_bytes", "reason", "value", "threshold", "fails", "part")


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
