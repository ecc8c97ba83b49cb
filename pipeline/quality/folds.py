"""What a classifier does with kinds of sources that it never saw: labels often follow the kind.

Where rows name the kind of source they are from (column `reason`) and every kind is of one class, a
classifier can learn kinds in place of quality, and a dev set of the same kinds will not show it. So
models are trained again with kinds left out:

- `one`: each kind by itself, against the dev rows of the other class, which that model did not see
  either. How well is a new kind told from what is known?
- `both`: the kinds of both classes are dealt to folds, the largest first to the fold with the
  fewest rows; all kinds of a fold are left out at once and told from one another. Nothing is known
  then: the harder question, and the one that new crawls ask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipeline.quality.evaluate import auc
from pipeline.quality.train import fit, scores_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.config.score import ClassifierConfig

LEAST = 2
"""Kinds of each class that it takes."""


def leave_kinds_out(rows: pl.DataFrame, config: ClassifierConfig) -> dict[str, Any]:
    """`leave_kinds_out` of the report, for prepared rows; nothing where they name no kinds.

    Of more than `config.leave_out_rows` rows those whose text has the lowest hash are taken: some
    thirty models are trained.
    """
    known = rows.filter(pl.col("kind").is_not_null() & pl.col("split").is_in(["train", "dev"]))
    known = known.sort("order", maintain_order=True).head(config.leave_out_rows)
    kinds = kinds_of(known)
    if min(_counts(kinds)) < LEAST:
        return {}
    table = one_by_one(known, kinds, config)
    return {
        "leave_kinds_out": {
            "one": {
                "auc_mean": mean([row["auc"] for row in table]),
                "auc_by_rows": mean([row["auc"] for row in table], [r["rows"] for r in table]),
                "kinds": table,
            },
            "both": both_at_once(known, kinds, config),
        }
    }


def kinds_of(rows: pl.DataFrame) -> pl.DataFrame:
    """`kind, good, n` of the kinds whose rows are all of one class, largest first."""
    table = rows.group_by("kind").agg(
        pl.col("good").first(), pl.col("good").n_unique().alias("classes"), pl.len().alias("n")
    )
    table = table.filter(pl.col("classes") == 1).sort("n", "kind", descending=[True, False])
    return table.select("kind", "good", "n")


def _counts(kinds: pl.DataFrame) -> tuple[int, int]:
    good = int(kinds["good"].sum())
    return good, len(kinds) - good


def one_by_one(
    rows: pl.DataFrame, kinds: pl.DataFrame, config: ClassifierConfig
) -> list[dict[str, Any]]:
    """One row a kind: its AUC against the dev rows of the other class."""
    found = []
    for kind, good, n in kinds.sort("good", "kind", descending=[True, False]).iter_rows():
        left = rows["kind"] == kind
        others = (rows["good"] != good) & (rows["split"] == "dev")
        scores, held = _scored(rows, left | others, config)
        value = auc(scores, held["good"].to_numpy())
        mean_score = float(np.mean(scores[(held["kind"] == kind).to_numpy()], dtype=np.float64))
        found.append(
            {
                "kind": kind,
                "good": good,
                "rows": n,
                "auc": value,
                "mean_score": round(mean_score, 4),
            }
        )
    return found


def both_at_once(
    rows: pl.DataFrame, kinds: pl.DataFrame, config: ClassifierConfig
) -> dict[str, Any]:
    """AUC of each fold, their mean, and of all rows scored by the model that did not see them."""
    n_folds = min(config.leave_out, *_counts(kinds))
    folds = deal(kinds, n_folds)
    values: list[dict[str, Any]] = []
    scored, truth = [], []
    for fold in folds:
        scores, held = _scored(rows, rows["kind"].is_in(fold), config)
        good = held["good"].to_numpy()
        values.append({"left_out": ", ".join(fold), "rows": len(held), "auc": auc(scores, good)})
        scored.append(scores)
        truth.append(good)
    return {
        "auc_mean": mean([value["auc"] for value in values]),
        "auc_pooled": auc(np.concatenate(scored), np.concatenate(truth)),
        "folds": values,
    }


def deal(kinds: pl.DataFrame, n_folds: int) -> list[list[str]]:
    """The kinds of each fold: of each class the largest first, to the fold with fewest rows."""
    folds: list[list[str]] = [[] for _ in range(n_folds)]
    for good in (False, True):
        load = [0] * n_folds
        for kind, _, n in kinds.filter(pl.col("good") == good).iter_rows():
            k = load.index(min(load))
            folds[k].append(kind)
            load[k] += n
    return folds


def _scored(
    rows: pl.DataFrame, left_out: pl.Series, config: ClassifierConfig
) -> tuple[NDArray[np.float32], pl.DataFrame]:
    """Scores of the rows left out, from a model of all others, and those rows."""
    left_out = left_out.fill_null(value=False)
    model, _ = fit(rows.filter(~left_out), config, quantise=False)
    held = rows.filter(left_out)
    return scores_of(model, held), held


def mean(values: list[float | None], weights: list[int] | None = None) -> float | None:
    """The weighted mean of what is known, to six digits; null of nothing."""
    weighted = zip(values, weights or [1] * len(values), strict=True)
    pairs = [(value, weight) for value, weight in weighted if value is not None]
    total = sum(w for _, w in pairs)
    return round(sum(v * w for v, w in pairs) / total, 6) if total else None
