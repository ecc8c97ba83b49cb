"""Figures of what a part kept: documents and bytes by language, licence, source; scores.

Counted per part, summed over parts, so that a manifest's summary costs no second reading.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

SCORE_BINS = 20
KNOWN_LICENCE = r"^(none|CC[0-9A-Za-z.-]{1,30}|[A-Za-z][A-Za-z0-9.+ -]{1,30})$"
GROUPS = ("language", "licence", "source", "extractor", "split")


def part_figures(frame: pl.DataFrame) -> dict[str, Any]:
    """Figures of one part's kept documents: `documents, text_bytes`, by group `[n, bytes]`."""
    return joined_figures([batch_figures(frame)])


def batch_figures(frame: pl.DataFrame) -> dict[str, Any]:
    """Figures of a batch of a part's kept documents, for `joined_figures`."""
    import polars as pl

    if "text" not in frame.columns:
        return {}
    sized = frame.with_columns(size=pl.col("text").str.len_bytes().fill_null(0).cast(pl.Int64))
    found: dict[str, Any] = {
        "documents": frame.height,
        "text_bytes": int(sized["size"].sum()),
    }
    for name in GROUPS:
        if name in frame.columns:
            found[name] = _by(sized, name)
    if "quality_score" in frame.columns and frame["quality_score"].null_count() < frame.height:
        found["quality_histogram"] = _histogram(frame["quality_score"])
    return found


def joined_figures(batches: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a part from those of its batches.

    Nulls count as `none` beside others: a part that has no value at all has no such group.
    """
    total: dict[str, Any] = {}
    for batch in batches:
        total = _add(total, batch)
    for name in GROUPS:
        group = dict(total.pop(name, {}))
        nulls = group.pop(None, [0, 0])
        if group:
            group["none"] = _add(group.get("none", [0, 0]), nulls)
            total[name] = {key: sums for key, sums in sorted(group.items()) if sums[0]}
    return total


def _by(sized: pl.DataFrame, name: str) -> dict[str | None, list[int]]:
    import polars as pl

    value = pl.col(name).cast(pl.String)
    if name == "licence":
        # a page may claim anything; summaries of manifests must not grow with what it claims
        known = value.str.contains(KNOWN_LICENCE) | value.is_null()
        value = pl.when(known).then(value).otherwise(pl.lit("other"))
    table = sized.group_by(value.alias(name)).agg(n=pl.len(), size=pl.col("size").sum()).sort(name)
    return {key: [n, size] for key, n, size in table.iter_rows()}


def _histogram(scores: pl.Series) -> list[int]:
    import numpy as np

    counts, _ = np.histogram(scores.drop_nulls().to_numpy(), bins=SCORE_BINS, range=(0.0, 1.0))
    return [int(n) for n in counts]


def total_figures(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The sum of part figures, groups in alphabetical order."""
    total: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = _add(total.get(name), value)
    return {k: dict(sorted(v.items())) if isinstance(v, dict) else v for k, v in total.items()}


def _add(old: Any, new: Any) -> Any:
    if old is None or new is None:
        return new if old is None else old
    if isinstance(new, dict):
        return {key: _add(old.get(key), new.get(key)) for key in dict.fromkeys([*old, *new])}
    if isinstance(new, list):
        return [a + b for a, b in zip(old, new, strict=True)]
    return old + new
