"""Documents by language, over parts."""

from __future__ import annotations

import polars as pl

from pipeline.config.filter import FilterConfig
from pipeline.filters.run import filter_documents
from pipeline.language_table import part_table, total_table

SCHEMA = {
    "language": pl.String, "language_score": pl.Float32, "kept": pl.Boolean, "reason": pl.String,
}  # fmt: skip


def counted(*rows: tuple[str, float, str | None]) -> dict[str, list[int]]:
    given = [(code, score, reason is None, reason) for code, score, reason in rows]
    frame = pl.DataFrame(given, schema=SCHEMA, orient="row")
    return part_table(frame, frame)


def test_counts_add_up_over_parts() -> None:
    first = counted(
        ("en", 0.9, None), ("en", 0.5, "language.low_score"), ("de", 0.8, "c4.lorem_ipsum")
    )
    second = counted(("de", 0.6, "language.not_kept"), ("de", 1.0, None), ("und", 0, None))
    assert first["en"] == [2, 1, 1, 1_400_000]
    assert total_table([first, second]) == [
        {"language": "de", "documents": 3, "share": 0.5, "kept": 1, "dropped_by_language": 1,
         "mean_score": 0.8},
        {"language": "en", "documents": 2, "share": 0.33333, "kept": 1, "dropped_by_language": 1,
         "mean_score": 0.7},
        {"language": "und", "documents": 1, "share": 0.16667, "kept": 1, "dropped_by_language": 0,
         "mean_score": 0.0},
    ]  # fmt: skip


def test_nothing_in_nothing_out() -> None:
    assert counted() == {}
    assert total_table([{}]) == []


def test_the_stage_counts_its_documents() -> None:
    texts = ["The engineer opened the old chart near the vineyard.", "12345", None]
    frame = pl.DataFrame({"doc_id": ["a", "b", "c"], "url": [None] * 3, "text": texts})
    result = filter_documents(frame, FilterConfig())
    [total] = [total_table([result.extra["languages"]])]
    assert [(row["language"], row["documents"]) for row in total] == [("und", 2), ("en", 1)]
    assert total[0]["dropped_by_language"] == 2
