"""Kinds of sources left out of training."""

from __future__ import annotations

import polars as pl

from pipeline.quality.folds import deal, kinds_of, leave_kinds_out, mean
from pipeline.quality.labels import prepare, with_split
from tests.pipeline.quality.material import BAD, GOOD, SMALL

CONFIG = SMALL.model_copy(update={"leave_out": 2, "segment_words": 0})


def rows(kinds: dict[str, tuple[bool, int]]) -> pl.DataFrame:
    made = []
    for kind, (good, n) in kinds.items():
        for k in range(n):
            text = (GOOD if good else BAD).format(f"{kind} {k}")
            split = "dev" if k % 4 == 0 else "train"
            made.append({"text": text, "label": int(good), "reason": kind, "split": split})
    return with_split(prepare(pl.DataFrame(made), "1"), 0.1)


FOUR = {"book": (True, 12), "essay": (True, 8), "spam": (False, 12), "list": (False, 8)}


def test_the_largest_go_to_the_emptiest_fold() -> None:
    kinds = kinds_of(rows({**FOUR, "menu": (False, 8), "note": (False, 3)}))
    assert kinds["kind"].to_list() == ["book", "spam", "essay", "list", "menu", "note"]
    assert deal(kinds, 2) == [["spam", "note", "book"], ["list", "menu", "essay"]]


def test_each_kind_is_told_from_dev_rows_of_the_other_class() -> None:
    left = leave_kinds_out(rows(FOUR), CONFIG)["leave_kinds_out"]
    assert [row["kind"] for row in left["one"]["kinds"]] == ["book", "essay", "list", "spam"]
    assert left["one"]["auc_mean"] == 1.0
    assert left["both"]["auc_mean"] == 1.0
    assert [fold["left_out"] for fold in left["both"]["folds"]] == ["spam, book", "list, essay"]


def test_a_kind_of_both_classes_is_not_left_out() -> None:
    mixed = pl.concat([rows(FOUR), rows({"forum": (True, 8)}), rows({"forum": (False, 8)})])
    assert "forum" not in kinds_of(mixed)["kind"]


def test_no_report_without_kinds() -> None:
    assert leave_kinds_out(rows({"book": (True, 8), "spam": (False, 8)}), CONFIG) == {}
    unnamed = rows(FOUR).with_columns(kind=pl.lit(None, pl.String))
    assert leave_kinds_out(unnamed, CONFIG) == {}


def test_the_same_answer_in_any_order_and_over_a_bound() -> None:
    few = CONFIG.model_copy(update={"leave_out_rows": 30})
    one = leave_kinds_out(rows(FOUR), few)
    shuffled = rows(FOUR).sample(fraction=1, shuffle=True, seed=3)
    assert leave_kinds_out(shuffled, few) == one
    assert sum(row["rows"] for row in one["leave_kinds_out"]["one"]["kinds"]) == 30


def test_a_mean_counts_what_is_always_wrong_and_not_what_is_unknown() -> None:
    assert mean([0.0, 1.0, None]) == 0.5
    assert mean([0.0, 1.0], [1, 3]) == 0.75
    assert mean([None]) is None
