"""Training: the same bytes, what is trained on, what is reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from pipeline.config import Config
from pipeline.config.score import ClassifierConfig, ScoreConfig
from pipeline.errors import GristmillError
from pipeline.layout import sha256_hex
from pipeline.quality.train import passes, pieces, train_classifier
from pipeline.stages.references import train_from_files
from tests.pipeline.quality.material import SMALL, graded, labels

ELSEWHERE = """
import hashlib
from pipeline.quality.train import train_classifier
from tests.pipeline.quality.material import SMALL, labels
made = train_classifier(labels().reverse(), SMALL)
print(hashlib.sha256(made.model).hexdigest(), hashlib.sha256(made.quantised).hexdigest())
"""


def test_same_labels_same_bytes_in_any_order_and_process() -> None:
    one = train_classifier(labels(), SMALL)
    shuffled = train_classifier(labels().sample(fraction=1, shuffle=True, seed=1), SMALL)
    assert (shuffled.model, shuffled.quantised) == (one.model, one.quantised)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[3], env={"PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "2"},
    )  # fmt: skip
    assert done.stdout.split() == [sha256_hex(one.model), sha256_hex(one.quantised)]
    other = SMALL.model_copy(update={"seed": 2})
    assert train_classifier(labels(), other).model != one.model


def test_the_report_rests_on_dev_rows_only() -> None:
    split = pl.Series(["dev" if k >= 40 else "train" for k in range(60)])
    made = train_classifier(labels(split=split), SMALL)
    report = made.report
    assert report["train"] == {"positive": 20, "negative": 20}
    assert report["dev"] == {"positive": 10, "negative": 10}
    assert report["auc"] == 1.0
    assert report["accuracy"] == 1.0
    assert len(report["curve"]) == 9
    assert report["model_bytes"] == len(made.model)
    assert report["quantised"]["bytes"] == len(made.quantised)
    assert report["quantised"]["auc"] > 0.9


def test_dev_rows_do_not_shape_the_model() -> None:
    split = pl.Series(["dev" if k >= 40 else "train" for k in range(60)])
    text = pl.when(pl.col("split") == "dev").then(pl.lit("other words")).otherwise("text")
    one = labels(split=split)
    other = one.with_columns(text.alias("text"))
    assert train_classifier(one, SMALL).model == train_classifier(other, SMALL).model


def test_names_of_the_positive_class() -> None:
    named = labels(label=pl.col("label").replace({"1": "keep", "0": "toss"}))
    assert train_classifier(named, SMALL, "keep").report["train"]["positive"] > 0
    with pytest.raises(GristmillError, match="no positive row; labels found: 'keep', 'toss'"):
        train_classifier(named, SMALL, "nice")
    with pytest.raises(GristmillError, match="no negative row; labels found: '1'"):
        train_classifier(labels().filter(pl.col("label") == "1"), SMALL)
    booleans = labels(label=pl.col("label") == "1")
    numbers = labels(label=pl.col("label").cast(pl.Int64))
    floats = labels(label=pl.col("label").cast(pl.Float64))
    expected = train_classifier(labels(), SMALL).model
    for same in (booleans, numbers, floats):
        assert train_classifier(same, SMALL).model == expected


def test_grades_are_labels_of_their_own() -> None:
    report = train_classifier(graded(), SMALL).report
    assert report["graded"] is True
    total = {side: report["train"][side] + report["dev"][side] for side in ("positive", "negative")}
    assert total == {"positive": 60, "negative": 60}  # 3 and above are good
    with pytest.raises(GristmillError, match="no positive row"):
        train_classifier(graded().filter(pl.col("label") < 3), SMALL)


@pytest.mark.parametrize("stray", ["6", "2.5", "-1"])
def test_another_scale_is_refused(stray: str) -> None:
    names = graded()["label"].cast(pl.String)
    odd = graded().with_columns(label=pl.when(names == "5").then(pl.lit(stray)).otherwise(names))
    with pytest.raises(GristmillError, match=rf"nor grades 0 to 5: '{stray}'"):
        train_classifier(odd, SMALL)


def test_rows_that_are_left_out_are_counted(tmp_path: Path) -> None:
    rows = [{"id": k, "text": row["text"], "label": row["label"]} for k, row in
            enumerate(labels().iter_rows(named=True))]  # fmt: skip
    lines = [json.dumps(row) for row in [*rows, rows[0], {"id": "x", "text": "a b"}]]
    path = tmp_path / "labels.jsonl"
    path.write_text("\n".join([*lines, "{"]) + "\n")
    config = Config(score=ScoreConfig(classifier=SMALL))
    report = train_from_files(config, [path]).report
    assert report["rows"] == len(rows)
    assert report["rejected"] == {"input.bad_line": 2, "input.duplicate_id": 1}


def test_pieces_of_a_text() -> None:
    words = [str(k) for k in range(10)]
    text = " ".join(words)
    assert pieces(text, 0) == [text]
    assert pieces(text, 4) == ["0 1 2 3", "4 5 6 7"]  # two words are half of four
    assert pieces(text, 3) == ["0 1 2", "3 4 5", "6 7 8"]
    assert pieces(text, 6) == ["0 1 2 3 4 5", "6 7 8 9"]
    assert pieces(text, 7) == ["0 1 2 3 4 5 6"]
    assert pieces("one", 50) == ["one"]


def test_few_labels_are_passed_over_more_often() -> None:
    config = ClassifierConfig()
    assert passes(100_000, config) == config.epochs
    assert passes(100, config) == 250
    assert passes(100, config.model_copy(update={"min_lines": 0})) == config.epochs
    report = train_classifier(labels(100), ClassifierConfig(bucket=1000, leave_out=0)).report
    assert report["auc"] == 1.0
    assert report["reliability"]["brier"] < 0.05


def test_models_too_small_to_quantise_stay_whole() -> None:
    tiny = train_classifier(labels(8), SMALL.model_copy(update={"bucket": 10}))
    assert tiny.quantised == tiny.model
    pruned = train_classifier(labels(), SMALL.model_copy(update={"quantised_rows": 3}))
    assert len(pruned.quantised) < len(pruned.model)


@pytest.mark.slow
@pytest.mark.shared
def test_labelled_documents(shared: Path) -> None:
    frame = pl.read_ndjson(shared / "data/labels/quality.jsonl.gz")
    report = train_classifier(frame, ClassifierConfig(leave_out=0)).report
    assert sum(report["train"].values()) == 1577
    assert report["auc"] >= 0.955
    assert report["quantised"]["auc"] >= 0.955
    assert report["quantised"]["bytes"] < 1_500_000
    assert min(row["auc"] for row in report["by_length"]) > 0.9
    assert report["shortcuts"]["length"] < 0.7


@pytest.mark.shared
@pytest.mark.slow
def test_kinds_that_training_never_saw(shared: Path) -> None:
    frame = pl.read_ndjson(shared / "data/labels/quality.jsonl.gz")
    left = train_classifier(frame, ClassifierConfig()).report["leave_kinds_out"]
    assert left["one"]["auc_mean"] >= 0.85
    assert left["one"]["auc_by_rows"] >= 0.85
    assert len(left["one"]["kinds"]) == 18
    assert left["both"]["auc_mean"] > 0.7
