"""What a classifier does on rows it was not trained on, and whether it took a short cut.

AUC, a precision and recall curve, calibration, the confusion at the working threshold; AUC within
thirds of the length and per language, beside what length alone and language alone would reach: a
classifier that has learned those instead of quality is no better within a third than by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

CURVE = tuple(round(k / 10, 1) for k in range(1, 10))
FINE = tuple(round(k / 50, 2) for k in range(51))
BINS = 10
FEW = 5
"""Rows of either class, under which no AUC is given."""


def report_on(
    scores: NDArray[np.float32], dev: pl.DataFrame, train: pl.DataFrame, threshold: float
) -> dict[str, Any]:
    """All figures on the dev rows; null where undefined."""
    good = dev["good"].to_numpy()
    return {
        **evaluate(scores, good),
        "average_precision": average_precision(scores, good),
        "precision_recall": curve(scores, good, FINE),
        "working_threshold": threshold,
        "confusion": confusion(scores, good, threshold),
        "reliability": reliability(scores, good),
        "by_length": by_length(scores, dev),
        "by_label_language": by_language(scores, dev),
        "shortcuts": shortcuts(dev, train),
    }


def evaluate(scores: NDArray[np.float32], good: NDArray[np.bool_]) -> dict[str, Any]:
    """Accuracy at 0.5, AUC, and precision and recall at nine thresholds; null where undefined."""
    accuracy = ratio(int(((scores >= 0.5) == good).sum()), len(good))
    return {"accuracy": accuracy, "auc": auc(scores, good), "curve": curve(scores, good, CURVE)}


def curve(
    scores: NDArray[np.float32], good: NDArray[np.bool_], thresholds: tuple[float, ...]
) -> list[dict[str, Any]]:
    """Precision and recall of `score >= threshold`."""
    passes = [(t, scores >= t) for t in thresholds]
    return [
        {
            "threshold": t,
            "precision": ratio(int((good & p).sum()), int(p.sum())),
            "recall": ratio(int((good & p).sum()), int(good.sum())),
        }
        for t, p in passes
    ]


def ratio(part: int, whole: int) -> float | None:
    """A share to six digits; null of nothing."""
    return round(part / whole, 6) if whole else None


def auc(scores: NDArray[np.float32] | pl.Series, good: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: how often a good row scores above a bad one, ties half."""
    positive, negative = int(good.sum()), int((~good).sum())
    if not positive or not negative:
        return None
    ranks = pl.Series(scores).rank("average").to_numpy()
    wins = ranks[good].sum() - positive * (positive + 1) / 2
    return round(float(wins / (positive * negative)), 6)


def average_precision(scores: NDArray[np.float32], good: NDArray[np.bool_]) -> float | None:
    """Area under the precision and recall curve, step-wise; equal scores count as one step."""
    if not good.any():
        return None
    order = np.argsort(-scores, kind="stable")
    found = np.cumsum(good[order])
    last = np.append(np.diff(scores[order]) != 0, True)
    recall = found[last] / found[-1]
    precision = found[last] / (np.flatnonzero(last) + 1)
    return round(float(np.sum(np.diff(recall, prepend=0.0) * precision)), 6)


def confusion(
    scores: NDArray[np.float32], good: NDArray[np.bool_], threshold: float
) -> dict[str, int]:
    """Rows by what they are and where they fall."""
    kept = scores >= np.float32(threshold)
    return {
        "good_kept": int((good & kept).sum()),
        "good_dropped": int((good & ~kept).sum()),
        "bad_kept": int((~good & kept).sum()),
        "bad_dropped": int((~good & ~kept).sum()),
    }


def reliability(scores: NDArray[np.float32], good: NDArray[np.bool_]) -> dict[str, Any]:
    """Whether a score of 0.7 is good seven times in ten: ten bins, expected calibration error (Guo
    et al., arXiv:1706.04599) and Brier score."""
    bins = np.minimum((scores * BINS).astype(int), BINS - 1)
    rows = []
    error = 0.0
    for k in range(BINS):
        inside = bins == k
        n = int(inside.sum())
        score = float(scores[inside].mean(dtype=np.float64)) if n else None
        share = float(good[inside].mean()) if n else None
        error += abs((score or 0.0) - (share or 0.0)) * n
        rows.append({"from": k / BINS, "rows": n, "score": _short(score), "good": _short(share)})
    brier = float(np.mean((scores.astype(np.float64) - good) ** 2))
    return {"bins": rows, "ece": _short(error / len(scores)), "brier": _short(brier)}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def by_length(scores: NDArray[np.float32], dev: pl.DataFrame) -> list[dict[str, Any]]:
    """AUC within each third of the rows by characters."""
    lengths = dev["text"].str.len_chars().to_numpy()
    cuts = np.quantile(lengths, [1 / 3, 2 / 3], method="lower")
    third = np.searchsorted(cuts, lengths, side="left")
    good = dev["good"].to_numpy()
    return [
        {
            "third": name,
            "characters": f"{lengths[third == k].min()}-{lengths[third == k].max()}",
            "rows": int((third == k).sum()),
            "good": int(good[third == k].sum()),
            "auc": auc(scores[third == k], good[third == k]),
        }
        for k, name in enumerate(("short", "middle", "long"))
        if (third == k).any()
    ]


def by_language(scores: NDArray[np.float32], dev: pl.DataFrame) -> list[dict[str, Any]]:
    """AUC of each language that the labels name; null with fewer than five rows of a class."""
    languages = dev["language"].to_numpy()
    good = dev["good"].to_numpy()
    found = []
    for language in dev["language"].drop_nulls().unique().sort():
        inside = languages == language
        n, positive = int(inside.sum()), int(good[inside].sum())
        enough = min(positive, n - positive) >= FEW
        value = auc(scores[inside], good[inside]) if enough else None
        found.append({"language": language, "rows": n, "good": positive, "auc": value})
    return found


def shortcuts(dev: pl.DataFrame, train: pl.DataFrame) -> dict[str, float | None]:
    """AUC on the dev rows of the length alone, either way, and of the language alone.

    A language is as good as the share of good rows it has in training.
    """
    good = dev["good"].to_numpy()
    length = auc(dev["text"].str.len_chars(), good)
    share = train.group_by("language").agg(pl.col("good").mean().alias("share"))
    told = dev.select("language").join(
        share, on="language", how="left", nulls_equal=True, maintain_order="left"
    )
    by_share = auc(told["share"].fill_null(0.5), good)
    return {"length": None if length is None else max(length, round(1 - length, 6)),
            "language": by_share}  # fmt: skip
