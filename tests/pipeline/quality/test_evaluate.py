"""Figures of a report against values worked out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipeline.quality import evaluate

GOOD = np.array([False, True, False, True])
SCORES = np.array([0.1, 0.4, 0.4, 0.8], np.float32)


def test_auc_is_the_share_of_pairs_in_order() -> None:
    assert evaluate.auc(SCORES, GOOD) == 0.875
    assert evaluate.auc(SCORES, np.ones(4, bool)) is None


def test_precision_and_recall() -> None:
    point = evaluate.curve(SCORES, GOOD, (0.4,))[0]
    assert point == {"threshold": 0.4, "precision": pytest.approx(2 / 3, abs=1e-6), "recall": 1.0}
    assert evaluate.curve(SCORES, GOOD, (0.9,))[0]["precision"] is None
    # 0.8 is right; the two at 0.4 are one step
    expected = 0.5 * 1 + 0.5 * 2 / 3
    assert evaluate.average_precision(SCORES, GOOD) == pytest.approx(expected, abs=1e-6)


def test_confusion() -> None:
    assert evaluate.confusion(SCORES, GOOD, 0.4) == {
        "good_kept": 2, "good_dropped": 0, "bad_kept": 1, "bad_dropped": 1,
    }  # fmt: skip


def test_reliability() -> None:
    scores = np.array([0.05, 0.05, 0.95, 1.0], np.float32)
    found = evaluate.reliability(scores, np.array([False, False, True, True]))
    first, last = found["bins"][0], found["bins"][-1]
    assert (first["rows"], first["good"], last["rows"], last["good"]) == (2, 0.0, 2, 1.0)
    assert found["ece"] == pytest.approx(0.0375, abs=1e-6)
    assert found["brier"] == pytest.approx((2 * 0.05**2 + 0.05**2) / 4, abs=1e-6)


def frame(lengths: list[int], good: list[bool], languages: list[str]) -> pl.DataFrame:
    texts = ["x" * n for n in lengths]
    return pl.DataFrame({"text": texts, "good": good, "language": languages})


def test_thirds_of_the_length_and_what_length_alone_reaches() -> None:
    dev = frame([1, 2, 3, 4, 5, 6], [False, False, False, True, True, True], ["en"] * 6)
    rows = evaluate.by_length(np.linspace(0, 1, 6, dtype=np.float32), dev)
    assert [row["characters"] for row in rows] == ["1-2", "3-4", "5-6"]
    assert [row["auc"] for row in rows] == [None, 1.0, None]
    assert evaluate.shortcuts(dev, dev) == {"length": 1.0, "language": 0.5}
    back = dev.with_columns(~pl.col("good"))
    assert evaluate.shortcuts(back, back)["length"] == 1.0  # either way


def test_what_language_alone_reaches() -> None:
    dev = frame([1, 1, 1, 1], [True, True, False, False], ["en", "en", "de", "de"])
    assert evaluate.shortcuts(dev, dev)["language"] == 1.0
    unseen = dev.with_columns(language=pl.lit("fr"))
    assert evaluate.shortcuts(unseen, dev)["language"] == 0.5


def test_a_language_with_few_rows_has_no_auc() -> None:
    n = 2 * evaluate.FEW
    good = [k % 2 == 0 for k in range(n)]
    dev = pl.concat([frame([1] * n, good, ["en"] * n), frame([1, 1], [True, False], ["nl", "nl"])])
    rows = evaluate.by_language(np.tile([0.9, 0.1], evaluate.FEW + 1).astype(np.float32), dev)
    assert [(row["language"], row["auc"]) for row in rows] == [("en", 1.0), ("nl", None)]
