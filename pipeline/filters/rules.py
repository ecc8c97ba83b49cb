"""Rules as data: a signal, when it fails, and the threshold to show.

Every rule set measures signals (columns) and lists rules over them, in the published order. What is
kept, why something is dropped, and what another threshold would do all follow from the signals, so
a stored signal table answers "what if" without reading a text again.

Signals are float32 on disk; comparisons are made in float32, so that a ratio that equals its
threshold is not over it, now or when it is read back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pipeline.config.base import Section


@dataclass(frozen=True)
class Rule:
    """One reason to drop. `fails` is null where the rule does not apply, or the signal is null.

    Several rules may share a reason, where what is asked depends on the document.
    """

    reason: str
    signal: str
    fails: pl.Expr
    threshold: pl.Expr


@dataclass(frozen=True)
class Limit:
    """A threshold: one value, and others for documents in some languages. None: no rule there."""

    value: float | None
    by_language: Mapping[str, float | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.value is not None or any(v is not None for v in self.by_language.values())

    def expr(self) -> pl.Expr:
        """The threshold of a row, float64; null where it has none."""
        if not self.by_language:
            return pl.lit(self.value, dtype=pl.Float64)
        return pl.col("language").cast(pl.String).replace_strict(
            list(self.by_language), list(self.by_language.values()), default=self.value,
            return_dtype=pl.Float64,
        )  # fmt: skip


@dataclass(frozen=True)
class Limits:
    """The thresholds of a section by name; `languages` has those that some languages set."""

    section: Section
    languages: Mapping[str, Section] = field(default_factory=dict)

    def __call__(self, name: str) -> Limit:
        """The threshold of that name."""
        others = {
            code: getattr(section, name)
            for code, section in self.languages.items()
            if name in section.model_fields_set
        }
        return Limit(getattr(self.section, name), others)


def above(reason: str, signal: str, limit: Limit | float | None) -> list[Rule]:
    """Drop where the signal is greater than the limit; no rule without a limit."""
    limit = limit if isinstance(limit, Limit) else Limit(limit)
    if not limit:
        return []
    fails = _number(signal) > limit.expr().cast(pl.Float32)
    return [Rule(reason, signal, fails, limit.expr())]


def below(
    reason: str, signal: str, limit: Limit | float | None, *, where: pl.Expr | None = None
) -> list[Rule]:
    """Drop where the signal is less than the limit; no rule without one, or where not `where`."""
    limit = limit if isinstance(limit, Limit) else Limit(limit)
    if not limit:
        return []
    fails = _number(signal) < limit.expr().cast(pl.Float32)
    if where is not None:
        fails = pl.when(where).then(fails)
    return [Rule(reason, signal, fails, limit.expr())]


def _number(signal: str) -> pl.Expr:
    return pl.col(signal).cast(pl.Float32)


def decide(signals: pl.DataFrame, rules: Sequence[Rule]) -> pl.DataFrame:
    """The first failing rule of each row: `kept, reason, value, threshold` (null where kept)."""
    none = (pl.lit(None, pl.String), pl.lit(None, pl.Float64), pl.lit(None, pl.Float64))
    reasons = [pl.when(r.fails).then(pl.lit(r.reason)) for r in rules]
    values = [pl.when(r.fails).then(pl.col(r.signal).cast(pl.Float64)) for r in rules]
    thresholds = [pl.when(r.fails).then(r.threshold.cast(pl.Float64)) for r in rules]
    decided = signals.select(
        pl.coalesce([*reasons, none[0]]).alias("reason"),
        pl.coalesce([*values, none[1]]).alias("value"),
        pl.coalesce([*thresholds, none[2]]).alias("threshold"),
    )
    return decided.select(pl.col("reason").is_null().alias("kept"), pl.all())


@dataclass(frozen=True)
class RuleRow:
    """What one rule says of one document. `value` is null where the rule does not apply."""

    rule: str
    value: float | None
    threshold: float | None
    passes: bool


def judge(signals: pl.DataFrame, rules: Sequence[Rule]) -> list[RuleRow]:
    """Every reason on the one row of `signals`, in the order in which the rules are asked."""
    rows: dict[str, RuleRow] = {}
    for rule in rules:
        value, threshold, fails = signals.select(
            pl.col(rule.signal).cast(pl.Float64).alias("value"),
            rule.threshold.cast(pl.Float64).alias("threshold"),
            rule.fails.alias("fails"),
        ).row(0)
        if fails is None and value is not None:
            continue  # not asked of this document
        known = rows.get(rule.reason)
        if known is None or known.passes:
            rows[rule.reason] = RuleRow(rule.reason, value, threshold, not fails)
    return list(rows.values())
