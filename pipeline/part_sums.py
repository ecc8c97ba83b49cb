"""What a receipt says of a part beside its files: sums over the batches of the part.

Each of them is what one batch with all rows would give.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pipeline.figures import batch_figures, joined_figures, total_figures
from pipeline.layout import url_hash
from pipeline.manifest import Counts
from pipeline.part import Damage, PartResult

if TYPE_CHECKING:
    import polars as pl

HOST_FLOOR = 5
"""Hosts with fewer records than this in one part are left out of its receipt, but for a sample."""
HOST_SHARE = 64
"""One host in so many, chosen by hash, is counted in every part: a large crawl spreads a host
thinly over its files, so that few would ever reach the floor."""


@dataclass
class PartSums:
    """The sums so far. Of hosts and figures a small table a batch is kept."""

    rows_in: int | None = 0
    """Null where the source does not know."""
    decided: bool = False
    """Whether there is a table of decisions, perhaps without rows."""
    damaged: list[Damage] = field(default_factory=list)
    reproducible: bool = True
    _counts: list[Counts] = field(default_factory=list)
    _hosts: list[pl.DataFrame] = field(default_factory=list)
    _figures: list[dict[str, Any]] = field(default_factory=list)
    _extra: list[dict[str, Any]] = field(default_factory=list)

    def came(self, rows: int | None, damaged: list[Damage]) -> None:
        """A batch of rows that came in."""
        self.rows_in = None if rows is None or self.rows_in is None else self.rows_in + rows
        self.damaged += damaged

    def add(self, result: PartResult) -> None:
        """What a batch became."""
        if "decisions" in result.tables:
            self.decided = True
            self._counts.append(count(result.tables["decisions"]))
            self._hosts.append(host_table(result.tables["decisions"]))
        if "parts" in result.tables:
            self._figures.append(batch_figures(result.tables["parts"]))
        if result.extra:
            self._extra.append(result.extra)
        self.damaged += result.damaged
        self.reproducible &= result.reproducible

    @property
    def counts(self) -> Counts:
        """Records in, kept and dropped by reason."""
        return Counts.total(self._counts)

    @property
    def hosts(self) -> dict[str, list[int]]:
        """Host -> [in, kept]; see `count_hosts`."""
        return _many_or_sampled(self._hosts) if self._hosts else {}

    @property
    def figures(self) -> dict[str, Any]:
        """Documents and bytes of what was kept."""
        return joined_figures(self._figures)

    @property
    def extra(self) -> dict[str, Any]:
        """Of several batches all that stages say is numbers, or numbers by key: they add up."""
        return self._extra[0] if len(self._extra) == 1 else total_figures(self._extra)


def count(decisions: pl.DataFrame) -> Counts:
    """Counts of a decisions table."""
    dropped = decisions.filter(~decisions["kept"])
    reasons = dict(sorted(dropped["reason"].value_counts().iter_rows()))
    return Counts(
        records_in=decisions.height,
        kept=decisions.height - dropped.height,
        dropped=dropped.height,
        reasons=reasons,
    )


def count_hosts(decisions: pl.DataFrame) -> dict[str, list[int]]:
    """Host -> [in, kept] of a decisions table: hosts with enough records, and the sampled ones."""
    return _many_or_sampled([host_table(decisions)])


def host_table(decisions: pl.DataFrame) -> pl.DataFrame:
    """`host, n, kept`: records and kept ones of every host."""
    import polars as pl

    host = pl.col("url").str.extract(r"^[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/@]*@)?([^/:?#]+)", 1)
    table = decisions.select(host=host.str.to_lowercase(), kept="kept").drop_nulls("host")
    return table.group_by("host").agg(n=pl.len(), kept=pl.col("kept").sum())


def _many_or_sampled(tables: list[pl.DataFrame]) -> dict[str, list[int]]:
    import polars as pl

    table = pl.concat(tables).group_by("host").agg(pl.col("n").sum(), pl.col("kept").sum())
    return {
        name: [n, kept]
        for name, n, kept in table.sort("host").iter_rows()
        if n >= HOST_FLOOR or url_hash(name) % HOST_SHARE == 0
    }
