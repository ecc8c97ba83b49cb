"""Documents by language: how many came in, were kept, fell to a language rule; their mean score.

Counted per part, summed over parts; the figures stand in the manifest of `filtered_text`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

Counted = dict[str, list[int]]
"""Language -> [documents, kept, dropped by a language rule, sum of scores in millionths]."""

MILLION = 1_000_000
"""Scores are summed as integers: a sum of floats depends on the order, so on how many threads."""


def part_table(signals: pl.DataFrame, decided: pl.DataFrame) -> Counted:
    """The counts of one part.

    `signals`: `language, language_score`; `decided`, of the same rows: `kept, reason`.
    """
    import polars as pl

    frame = signals.select("language", "language_score").hstack(decided.select("kept", "reason"))
    by_language = pl.col("reason").str.starts_with("language.").fill_null(value=False)
    table = frame.group_by("language", maintain_order=True).agg(
        n=pl.len(),
        kept=pl.col("kept").sum(),
        dropped=by_language.sum(),
        scores=(pl.col("language_score").cast(pl.Float64) * MILLION).round().cast(pl.Int64).sum(),
    )
    return {code: counts for code, *counts in table.sort("language").iter_rows()}


def total_table(parts: Iterable[Counted]) -> list[dict[str, Any]]:
    """The table of all parts, most documents first; shares are of the documents that came in."""
    total: Counted = {}
    for part in parts:
        for code, counts in part.items():
            known = total.get(code, [0, 0, 0, 0])
            total[code] = [a + b for a, b in zip(known, counts, strict=True)]
    whole = sum(counts[0] for counts in total.values())
    ordered = sorted(total.items(), key=lambda item: (-item[1][0], item[0]))
    return [
        {
            "language": code,
            "documents": n,
            "share": round(n / whole, 5),
            "kept": kept,
            "dropped_by_language": dropped,
            "mean_score": round(scores / n / MILLION, 4),
        }
        for code, (n, kept, dropped, scores) in ordered
    ]
