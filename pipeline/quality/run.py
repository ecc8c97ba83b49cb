"""`scored_text`: quality and safety scores of documents, who is kept by them, and the split.

A score is the probability of the positive class: good text, or unsafe text; of a classifier with
grades, a fifth of the expected grade. An empty text has no score, and never passes as good. Who is
kept is said by one of three: `score.min_quality` by value, `score.min_grade` by grade (FineWeb-Edu,
arXiv:2406.17557), `score.selection` by the threshold of the document's language.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from pipeline.errors import ConfigError
from pipeline.part import PartResult
from pipeline.quality.labels import QUALITY_LABELS, SAFETY_LABELS
from pipeline.quality.scores import (
    load_classifier,
    positive_column,
    score_columns,
    score_texts,
)
from pipeline.quality.selection import Selection, row_thresholds
from pipeline.quality.split import held_out

if TYPE_CHECKING:
    from pipeline.config.score import ScoreConfig

STAGE = "scored_text"


def score_documents(
    frame: pl.DataFrame,
    config: ScoreConfig,
    quality_model: Path | None,
    safety_model: Path | None,
    selection: Selection | None = None,
) -> PartResult:
    """Documents -> `parts` (kept, with `quality_score, safety_score, split`, and `grade` where the
    classifier gives grades), `decisions` and `signals` (the scores of kept and dropped documents).

    Reasons: `quality.below` where the score is under its threshold or the text is empty,
    `safety.above`. A threshold without its model is a ConfigError. `extra.unscored` counts
    the documents that a model gave no score, for want of text.
    """
    check_scores(config, quality_model, safety_model, selection)
    scores = score_columns(frame["text"], quality_model, QUALITY_LABELS)
    scored = frame.with_columns(
        scores["score"].alias("quality_score"),
        score_texts(frame["text"], safety_model, SAFETY_LABELS).alias("safety_score"),
        held_out(frame, config.held_out),
    )
    if quality_model and load_classifier(quality_model).graded:
        scored = scored.with_columns(scores["grade"])
    decisions = scored.select(
        "doc_id",
        pl.col("url").cast(pl.String),
        pl.lit(STAGE).alias("stage"),
        *_verdict(config, _threshold(scored, config, selection)),
    )
    tables = {"parts": scored.filter(decisions["kept"]), "decisions": decisions}
    if quality_model or safety_model:
        tables["signals"] = _signals(scored)
    unscored = scored["quality_score"].null_count() if quality_model else 0
    return PartResult(tables, extra={"unscored": unscored})


def check_scores(
    config: ScoreConfig,
    quality_model: Path | None,
    safety_model: Path | None,
    selection: Selection | None,
) -> None:
    """Refuse limits that nothing can be held against, and models that give no score.

    Raises ConfigError naming the key, UsageError naming the file.
    """
    wants = {"min_quality": quality_model, "min_grade": quality_model, "max_safety": safety_model}
    for key, path in wants.items():
        value = getattr(config, key)
        if value is not None and path is None:
            message = f"score.{key} is {value}, but there is no model to score with"
            raise ConfigError(message, hint=f"name a model, or set score.{key} to null")
    if selection and quality_model is None:
        message = "score.selection is set, but there is no model to score with"
        raise ConfigError(message, hint="name a model, or set score.selection to null")
    if config.min_grade is not None and quality_model:
        model = load_classifier(quality_model)
        if not model.graded:
            message = f"score.min_grade is {config.min_grade}, but the classifier has the labels "
            message += ", ".join(sorted(model.labels)[:6])
            raise ConfigError(message, hint="train it on labels 0 to 5, or set score.min_quality")
    for path, names in ((quality_model, QUALITY_LABELS), (safety_model, SAFETY_LABELS)):
        if path and not (model := load_classifier(path)).graded:
            positive_column(model.labels, names)


def _threshold(
    scored: pl.DataFrame, config: ScoreConfig, selection: Selection | None
) -> pl.Series | None:
    """What each document's score is held against, float32; None where nothing is asked."""
    if selection is not None:
        return row_thresholds(scored, selection)
    limit = config.min_quality
    if config.min_grade is not None:
        limit = config.min_grade
    if limit is None:
        return None
    return pl.select(pl.repeat(limit, len(scored), dtype=pl.Float32)).to_series()


def _verdict(config: ScoreConfig, threshold: pl.Series | None) -> list[pl.Expr]:
    """`kept, reason, value, threshold, detail` from the scores."""
    text, number = pl.lit(None, pl.String), pl.lit(None, pl.Float64)
    quality = pl.col("grade" if config.min_grade is not None else "quality_score")
    safety = pl.col("safety_score")
    low, high = pl.lit(value=False), pl.lit(value=False)
    limits: list[pl.Expr] = [number, pl.lit(config.max_safety, pl.Float64)]
    if threshold is not None:
        low = (quality < threshold).fill_null(value=True)
        # 0.3 and not the nearest float32 of it, where a person wrote it
        written = config.min_quality if config.min_grade is None else config.min_grade
        limits[0] = pl.lit(threshold.cast(pl.Float64))
        if written is not None:
            limits[0] = pl.lit(written, pl.Float64)
    if config.max_safety is not None:
        high = (safety > pl.lit(config.max_safety, pl.Float32)).fill_null(value=False)
    reason = pl.when(low).then(pl.lit("quality.below")).when(high).then(pl.lit("safety.above"))
    value = pl.when(low).then(quality.cast(pl.Float64)).when(high).then(safety.cast(pl.Float64))
    against = pl.when(low).then(limits[0]).when(high).then(limits[1])
    return [
        (~(low | high)).alias("kept"),
        reason.otherwise(text).alias("reason"),
        value.otherwise(number).alias("value"),
        against.otherwise(number).alias("threshold"),
        text.alias("detail"),
    ]


def _signals(scored: pl.DataFrame) -> pl.DataFrame:
    """`doc_id, language, quality_score, safety_score[, grade]` of every document."""
    names = ["doc_id", "language", "quality_score", "safety_score", "grade"]
    return scored.select([name for name in names if name in scored.columns])
