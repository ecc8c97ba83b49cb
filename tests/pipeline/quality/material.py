"""Labels and documents that the tests of this folder share."""

from __future__ import annotations

import polars as pl

from pipeline.config.score import ClassifierConfig

SMALL = ClassifierConfig(bucket=1000, dim=4, leave_out=0, min_lines=3000)
GOOD = "the weaver lifted a wheel under a clear sky near lighthouse number {}"
BAD = "buy cheap pills now click here best price win big bonus {}"


def labels(n: int = 60, **more: pl.Expr | pl.Series) -> pl.DataFrame:
    rows = [{"text": (GOOD if k % 2 else BAD).format(k), "label": str(k % 2)} for k in range(n)]
    return pl.DataFrame(rows).with_columns(**more)


def graded(n: int = 120) -> pl.DataFrame:
    """Texts whose grade, 0 to 5, is how many of their ten words are good ones."""
    rows = []
    for k in range(n):
        grade = k % 6
        words = ["weaver"] * (2 * grade) + ["bonus"] * (10 - 2 * grade)
        rows.append({"text": f"{' '.join(words)} number {k}", "label": grade})
    return pl.DataFrame(rows)


def documents(*texts: str | None, **more: pl.Series) -> pl.DataFrame:
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.String}).with_row_index("k")
    return frame.select(
        pl.format("d{}", "k").alias("doc_id"),
        pl.format("http://h{}.example/x", "k").alias("url"),
        "text",
    ).with_columns(**more)
