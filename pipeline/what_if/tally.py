"""What is kept before and after, by language, host and rule: sums over batches of signals.

Everything is counted in one pass over a batch and added up, so memory does not grow with the
corpus; only the hosts are as many as there are, and past HOSTS of them the smallest go together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipeline.filters.rules import Rule, decide

SIDES = ("before", "after")
SUMS = (
    "records_in",
    "bytes_in",
    *(f"{side}_{what}" for side in SIDES for what in ("kept", "bytes")),
)
HOST = r"^[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/@]*@)?([^/:?#]+)"
FIT = r"^[\p{L}\p{M}\p{N}._-]+$"
NO_HOST, ODD_HOST = "(no host)", "(odd host)"
"""Documents of sources have no host; what strangers write in its place may be no name of one."""
OTHERS = "(others)"
PENDING = 200_000
"""Rows of group sums that wait to be added up: adding after every batch would cost a sort each."""
HOSTS = 1_000_000
"""Hosts that are told apart, about 100 MB."""


@dataclass(frozen=True)
class Side:
    """The rules of one configuration, and those of them that share a reason together."""

    rules: Sequence[Rule]
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> Side:
        """With the reasons in the order in which they are asked."""
        return cls(rules, tuple(dict.fromkeys(rule.reason for rule in rules)))

    @property
    def signals(self) -> set[str]:
        """The columns that the rules read."""
        read = {rule.signal for rule in self.rules}
        both = (e for rule in self.rules for e in (rule.fails, rule.threshold))
        return read.union(*(e.meta.root_names() for e in both))

    def fails(self, signals: pl.DataFrame) -> pl.DataFrame:
        """One column a reason: whether a document fails it, whatever comes first."""
        return signals.select(
            pl.any_horizontal(
                [rule.fails.fill_null(value=False) for rule in self.rules if rule.reason == name]
            ).alias(name)
            for name in self.reasons
        )


@dataclass(frozen=True)
class Judged:
    """A batch of documents under both configurations."""

    documents: pl.DataFrame
    """`doc_id, url, language, n_bytes`."""
    decided: dict[str, pl.DataFrame]
    """Side -> `kept, reason, value, threshold`."""
    fails: dict[str, pl.DataFrame]
    """Side -> one column a reason."""

    def turned(self, kept: str) -> pl.Series:
        """Which documents only the side `kept` keeps."""
        other = SIDES[1 - SIDES.index(kept)]
        return self.decided[kept]["kept"] & ~self.decided[other]["kept"]


def judge_batch(signals: pl.DataFrame, urls: pl.Series, sides: dict[str, Side]) -> Judged:
    """Decide a batch under both configurations."""
    documents = signals.select("doc_id", urls.alias("url"), "language", "n_bytes")
    return Judged(
        documents,
        {name: decide(signals, side.rules) for name, side in sides.items()},
        {name: side.fails(signals) for name, side in sides.items()},
    )


@dataclass
class RuleSums:
    """Documents that fail a rule, and those that nothing else would drop."""

    fails: int = 0
    alone: int = 0
    alone_bytes: int = 0

    def add(self, other: RuleSums) -> None:
        """Add another's."""
        self.fails += other.fails
        self.alone += other.alone
        self.alone_bytes += other.alone_bytes


@dataclass
class Tally:
    """Sums over what was judged."""

    records_in: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    """Side -> documents; `bytes`, `turned` and `turned_bytes` likewise, the latter by the side that
    keeps them."""
    bytes: Counter[str] = field(default_factory=Counter)
    turned: Counter[str] = field(default_factory=Counter)
    turned_bytes: Counter[str] = field(default_factory=Counter)
    other_reason: int = 0
    """Documents dropped before and after, for another reason."""
    reasons: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in SIDES}
    )
    rules: dict[str, dict[str, RuleSums]] = field(
        default_factory=lambda: {name: {} for name in SIDES}
    )
    """Side -> rule or rule set -> sums; a set is named by its family alone."""
    languages: Groups = field(default_factory=lambda: Groups())
    hosts: Groups = field(default_factory=lambda: Groups())

    def add(self, judged: Judged) -> None:
        """Count a batch."""
        sizes = judged.documents["n_bytes"].cast(pl.Int64)
        self.records_in += len(sizes)
        for name in SIDES:
            decided, turned = judged.decided[name], judged.turned(name)
            self.kept[name] += int(decided["kept"].sum())
            self.bytes[name] += int(sizes.filter(decided["kept"]).sum())
            self.turned[name] += int(turned.sum())
            self.turned_bytes[name] += int(sizes.filter(turned).sum())
            dropped = decided["reason"].drop_nulls().value_counts()
            self.reasons[name].update(dict(dropped.iter_rows()))
            sums = _rule_sums(judged.fails[name], decided["reason"], sizes)
            _merge(self.rules[name], sums)
        before, after = (judged.decided[name]["reason"] for name in SIDES)
        self.other_reason += int((before != after).fill_null(value=False).sum())
        groups = _grouped(judged, sizes)
        self.languages.add(groups.group_by("language").agg(_sums()).rename({"language": "name"}))
        self.hosts.add(groups.group_by("host").agg(_sums()).rename({"host": "name"}))

    def reject(self, reasons: dict[str, int]) -> None:
        """Count records that no rule was asked about: unreadable lines, ids that came twice."""
        self.records_in += sum(reasons.values())
        for name in SIDES:
            self.reasons[name].update(reasons)

    def merge(self, other: Tally) -> None:
        """Add the sums of another."""
        self.records_in += other.records_in
        self.other_reason += other.other_reason
        for name in ("kept", "bytes", "turned", "turned_bytes"):
            getattr(self, name).update(getattr(other, name))
        for name in SIDES:
            self.reasons[name].update(other.reasons[name])
            _merge(self.rules[name], other.rules[name])
        self.languages.add(other.languages.table())
        self.hosts.add(other.hosts.table())


def _merge(mine: dict[str, RuleSums], others: dict[str, RuleSums]) -> None:
    for name, sums in others.items():
        mine.setdefault(name, RuleSums()).add(sums)


def _rule_sums(fails: pl.DataFrame, reason: pl.Series, sizes: pl.Series) -> dict[str, RuleSums]:
    """Sums of every rule, then of every set of rules (a family) that has several."""
    families: dict[str, list[str]] = {}
    for name in fails.columns:
        families.setdefault(name.partition(".")[0], []).append(name)
    sets = fails.select(pl.any_horizontal(names).alias(f) for f, names in families.items())
    of_sets = _alone(sets, reason.str.extract(r"^([^.]*)", 1), sizes)
    several = {f: of_sets[f] for f, names in families.items() if len(names) > 1}
    return _alone(fails, reason, sizes) | several


def _alone(fails: pl.DataFrame, first: pl.Series, sizes: pl.Series) -> dict[str, RuleSums]:
    """Sums of each column; what a document fails alone is what it fails first."""
    number = fails.select(pl.sum_horizontal(pl.all().cast(pl.UInt8)).alias("n")).to_series()
    table = pl.DataFrame([first.alias("name"), sizes.alias("bytes")]).filter(number == 1)
    only = table.group_by("name").agg(n=pl.len(), bytes=pl.col("bytes").sum())
    alone = {name: (n, size) for name, n, size in only.iter_rows()}
    counts = fails.sum().row(0)
    return {
        name: RuleSums(n, *alone.get(name, (0, 0)))
        for name, n in zip(fails.columns, counts, strict=True)
    }


def _grouped(judged: Judged, sizes: pl.Series) -> pl.DataFrame:
    named = pl.col("url").str.extract(HOST, 1).str.to_lowercase()
    short = named.str.len_bytes() < 256
    fit = pl.when(named.str.contains(FIT) & short).then(named).otherwise(pl.lit(ODD_HOST))
    host = pl.when(named.is_null()).then(pl.lit(NO_HOST)).otherwise(fit).alias("host")
    columns = [*judged.documents.select("language", host).get_columns(), sizes.alias("bytes_in")]
    for name in SIDES:
        kept = judged.decided[name]["kept"].cast(pl.Int64)
        columns += [kept.alias(f"{name}_kept"), (kept * sizes).alias(f"{name}_bytes")]
    return pl.DataFrame(columns).with_columns(records_in=pl.lit(1, pl.Int64))


def _sums() -> list[pl.Expr]:
    return [pl.col(name).sum() for name in SUMS]


class Groups:
    """Sums by name (a language, a host), in a table that is put together now and then."""

    def __init__(self) -> None:
        self._frames: list[pl.DataFrame] = []
        self._rows = 0

    def add(self, sums: pl.DataFrame) -> None:
        """Add the sums of a batch: `name` and SUMS."""
        self._frames.append(sums.select("name", *SUMS))
        self._rows += sums.height
        if self._rows > PENDING + self._frames[0].height:
            self.table()

    def table(self) -> pl.DataFrame:
        """One row a name, in alphabetical order."""
        empty = {"name": pl.String, **dict.fromkeys(SUMS, pl.Int64)}
        joined = pl.concat(self._frames) if self._frames else pl.DataFrame(schema=empty)
        table = joined.group_by("name").agg(_sums()).sort("name")
        if table.height > HOSTS:
            ranked = table.sort("records_in", "name", descending=[True, False])
            table = fold(ranked, HOSTS)
        self._frames, self._rows = [table], table.height
        return table

    def top(self, n: int) -> list[dict[str, Any]]:
        """The names that change most, then the largest; the rest as one row."""
        change = (pl.col("after_kept") - pl.col("before_kept")).abs()
        other = pl.col("name") == OTHERS
        order = [other, -change, -pl.col("records_in"), pl.col("name")]
        return fold(self.table().sort(order), n).to_dicts()


def fold(table: pl.DataFrame, n: int) -> pl.DataFrame:
    """The first `n` rows, and the sums of the rest as one."""
    if table.height <= n:
        return table
    rest = table.slice(n).select(pl.lit(OTHERS).alias("name"), *_sums())
    return pl.concat([table.head(n), rest])
