"""Classifiers that train to the same bytes; scores; the split by host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import quality, schema
from pipeline.config.score import ClassifierConfig, ScoreConfig
from pipeline.errors import ConfigError, GristmillError

SMALL = ClassifierConfig(bucket=1000, dim=4)
GOOD = "the weaver lifted a wheel under a clear sky near lighthouse number {}"
BAD = "buy cheap pills now click here best price win big bonus {}"


def labels(n: int = 60, **more: object) -> pl.DataFrame:
    rows = [{"text": (GOOD if k % 2 else BAD).format(k), "label": str(k % 2)} for k in range(n)]
    return pl.DataFrame(rows).with_columns(**more)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.bin"
    path.write_bytes(quality.train_classifier(labels(), SMALL).model)
    return path


def documents(*texts: str | None, **more: pl.Series) -> pl.DataFrame:
    frame = pl.DataFrame({"text": texts}, schema={"text": pl.String}).with_row_index("k")
    return frame.select(
        pl.format("d{}", "k").alias("doc_id"),
        pl.format("http://h{}.example/x", "k").alias("url"),
        "text",
    ).with_columns(**more)


def test_same_labels_same_bytes_in_any_order() -> None:
    one = quality.train_classifier(labels(), SMALL)
    shuffled = labels().sample(fraction=1, shuffle=True, seed=1)
    assert quality.train_classifier(shuffled, SMALL).model == one.model
    other = ClassifierConfig(bucket=1000, dim=4, seed=2)
    assert quality.train_classifier(labels(), other).model != one.model


def test_the_report_rests_on_dev_rows_only() -> None:
    split = pl.Series(["dev" if k >= 40 else "train" for k in range(60)])
    report = quality.train_classifier(labels(split=split), SMALL).report
    assert report["train"] == {"positive": 20, "negative": 20}
    assert report["dev"] == {"positive": 10, "negative": 10}
    assert report["auc"] == 1.0
    assert report["accuracy"] == 1.0
    assert len(report["curve"]) == 9


def test_dev_rows_do_not_shape_the_model() -> None:
    split = pl.Series(["dev" if k >= 40 else "train" for k in range(60)])
    text = pl.when(pl.col("split") == "dev").then(pl.lit("other words")).otherwise("text")
    one = labels(split=split)
    assert (
        quality.train_classifier(one, SMALL).model
        == quality.train_classifier(one.with_columns(text.alias("text")), SMALL).model
    )


def test_names_of_the_positive_class() -> None:
    named = labels(label=pl.col("label").replace({"1": "keep", "0": "toss"}))
    assert quality.train_classifier(named, SMALL, "keep").report["train"]["positive"] > 0
    with pytest.raises(GristmillError, match="no positive row; labels found: 'keep', 'toss'"):
        quality.train_classifier(named, SMALL, "nice")
    with pytest.raises(GristmillError, match="no negative row; labels found: '1'"):
        quality.train_classifier(labels().filter(pl.col("label") == "1"), SMALL)
    booleans = labels(label=pl.col("label") == "1")
    numbers = labels(label=pl.col("label").cast(pl.Int64))
    expected = quality.train_classifier(labels(), SMALL).model
    assert quality.train_classifier(booleans, SMALL).model == expected
    assert quality.train_classifier(numbers, SMALL).model == expected


def test_auc_is_the_share_of_pairs_in_order() -> None:
    scores = np.array([0.1, 0.4, 0.4, 0.8], np.float32)
    assert quality.auc(scores, np.array([False, True, False, True])) == 0.875
    assert quality.auc(scores, np.ones(4, bool)) is None


def test_one_and_many_and_line_ends_give_equal_scores(model: Path) -> None:
    texts = [GOOD.format(1), GOOD.format(1).upper().replace(" ", "\n\n"), BAD.format(2)]
    many = quality.score_texts(pl.Series(texts), model, quality.QUALITY_LABELS)
    one = [quality.score_texts(pl.Series([t]), model, quality.QUALITY_LABELS)[0] for t in texts]
    assert many.to_list() == one
    assert many[0] == many[1] > 0.5 > many[2]


def test_words_that_fasttext_would_read_as_marks(model: Path) -> None:
    text = pl.Series([f"</s> __label__0 {GOOD.format(1)}"])
    assert quality.score_texts(text, model, quality.QUALITY_LABELS)[0] > 0.5


def test_empty_texts_have_no_score_and_never_pass_as_good(model: Path) -> None:
    given = documents(GOOD.format(1), "", None, " \n ", BAD.format(1))
    free = quality.score_documents(given, ScoreConfig(), model, None)
    assert free.tables["parts"]["quality_score"].is_null().to_list() == [
        False, True, True, True, False,
    ]  # fmt: skip
    assert free.extra == {"unscored": 3}
    strict = quality.score_documents(given, ScoreConfig(min_quality=0.5), model, None)
    assert strict.tables["parts"]["doc_id"].to_list() == ["d0"]
    decisions = strict.tables["decisions"]
    assert set(decisions["reason"].drop_nulls()) == {"quality.below"}
    assert decisions["threshold"].to_list() == [None, 0.5, 0.5, 0.5, 0.5]
    schema.conform(decisions, schema.DECISIONS)
    parts = strict.tables["parts"]
    schema.conform(parts, schema.document_schema(parts.columns))


def test_unsafe_text_is_dropped(model: Path) -> None:
    given = documents(GOOD.format(1), BAD.format(1), "")
    result = quality.score_documents(given, ScoreConfig(max_safety=0.5), None, model)
    assert result.tables["decisions"]["reason"].to_list() == ["safety.above", None, None]
    assert result.tables["parts"]["quality_score"].null_count() == 2


def test_a_threshold_needs_its_model() -> None:
    with pytest.raises(ConfigError, match=r"score\.min_quality"):
        quality.score_documents(documents("a"), ScoreConfig(min_quality=0.5), None, None)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"not a model")
    with pytest.raises(GristmillError, match="no fastText model"):
        quality.score_documents(documents("a"), ScoreConfig(), path, None)


def test_all_pages_of_a_host_are_on_one_side() -> None:
    hosts = [f"h{k % 200}.example" for k in range(1000)]
    variants = ["http://{}/a", "https://www.{}:8080/b", "HTTP://{}/c".replace("HTTP", "http")]
    urls = pl.Series([variants[k % 3].format(h).upper() if k % 7 == 0 else variants[k % 3].format(h)
                      for k, h in enumerate(hosts)])  # fmt: skip
    frame = pl.DataFrame({"doc_id": hosts, "url": urls, "host": hosts})
    sides = frame.with_columns(quality.held_out(frame, 0.3))
    assert sides.group_by("host").agg(pl.col("split").n_unique())["split"].max() == 1
    share = (sides["split"] == "held_out").mean()
    assert 0.15 < share < 0.45  # type: ignore[operator]
    assert set(quality.held_out(frame, 0.0)) == {"train"}
    assert set(quality.held_out(frame, 1.0)) == {"held_out"}


def test_records_of_sources_are_split_one_by_one() -> None:
    frame = pl.DataFrame({"doc_id": "d", "url": "http://a.example/", "source": "books",
                          "source_id": [str(k) for k in range(400)]})  # fmt: skip
    share = (quality.held_out(frame, 0.5) == "held_out").mean()
    assert 0.4 < share < 0.6  # type: ignore[operator]


@pytest.mark.shared
def test_hard_cases(shared: Path, tmp_path: Path) -> None:
    lines = (shared / "cases/classifier/train.txt").read_text().splitlines()
    rows = [line.removeprefix("__label__").split(" ", 1) for line in lines]
    frame = pl.DataFrame(rows, schema=["label", "text"], orient="row")
    path = tmp_path / "model.bin"
    path.write_bytes(quality.train_classifier(frame, ClassifierConfig()).model)
    given = pl.read_ndjson(shared / "cases/classifier/newlines.jsonl")
    scores = quality.score_texts(given["text"], path, quality.QUALITY_LABELS)
    n1, n2, n3, n4 = scores.to_list()
    assert abs(n1 - n2) < 1e-5
    assert n3 is None
    assert n4 is None


@pytest.mark.shared
def test_labelled_documents(shared: Path) -> None:
    frame = pl.read_ndjson(shared / "data/labels/quality.jsonl.gz")
    report = quality.train_classifier(frame, ClassifierConfig()).report
    assert sum(report["train"].values()) == 1577
    assert report["auc"] > 0.96


@given(st.text(alphabet="aB \t\n\r\x00\x0b\u00a0\u2003\u3000"))
def test_blanks_are_squashed(text: str) -> None:
    plain = " ".join(text.replace("\0", " ").lower().split())
    assert quality.normalise(pl.Series([text])).to_list() == [plain]
