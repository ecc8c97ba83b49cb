"""The stage `scored_text`: who is kept, on which side of the split, and why not."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipeline import quality, schema
from pipeline.config import load_config
from pipeline.config.score import ClassifierConfig, ScoreConfig
from pipeline.errors import ConfigError
from pipeline.quality.selection import fit_selection
from tests.pipeline.quality.material import BAD, GOOD, SMALL, documents, graded, labels


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.bin"
    path.write_bytes(quality.train_classifier(labels(), SMALL).model)
    return path


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
    path.write_bytes(quality.train_classifier(frame, ClassifierConfig(quantised_rows=300)).model)
    given = pl.read_ndjson(shared / "cases/classifier/newlines.jsonl")
    scores = quality.score_texts(given["text"], path, quality.QUALITY_LABELS)
    n1, n2, n3, n4 = scores.to_list()
    assert abs(n1 - n2) < 1e-5
    assert n3 is None
    assert n4 is None
    one_and_many = pl.read_ndjson(shared / "cases/classifier/one-and-many.jsonl")["text"]
    many = quality.score_texts(one_and_many, path, quality.QUALITY_LABELS)
    one = [
        quality.score_texts(pl.Series([t]), path, quality.QUALITY_LABELS)[0] for t in one_and_many
    ]
    assert many.to_list() == one


def test_signals_are_of_kept_and_dropped_documents(model: Path) -> None:
    given = documents(GOOD.format(1), BAD.format(1), "", language=pl.Series(["en", "de", None]))
    found = quality.score_documents(given, ScoreConfig(min_quality=0.5), model, model)
    signals = found.tables["signals"]
    assert signals.columns == ["doc_id", "language", "quality_score", "safety_score"]
    assert signals["doc_id"].to_list() == ["d0", "d1", "d2"]
    assert signals["quality_score"].is_null().to_list() == [False, False, True]


def test_the_threshold_of_the_language_decides(model: Path) -> None:
    texts = [GOOD.format(1), f"{GOOD} {BAD}".format(1, 2), BAD.format(1), ""]
    scores = quality.score_texts(pl.Series(texts), model, quality.QUALITY_LABELS)
    middle = scores[1]
    fitted = fit_selection(
        [pl.DataFrame({"language": ["en", "de"], "quality_score": [middle, scores[0]]})],
        keep=0.5, min_documents=1, classifier=None,
    )  # fmt: skip
    languages = {}
    for language in ("en", "de"):
        given = documents(*texts, language=pl.Series([language] * 4))
        found = quality.score_documents(given, ScoreConfig(), model, None, fitted)
        decisions = found.tables["decisions"]
        languages[language] = decisions["kept"].to_list()
        assert set(decisions["reason"].drop_nulls()) == {"quality.below"}
    assert languages == {"en": [True, True, False, False], "de": [True, False, False, False]}
    assert decisions["threshold"].to_list()[1:] == pytest.approx([scores[0]] * 3)


def test_decisions_do_not_depend_on_the_part(model: Path) -> None:
    texts = [(GOOD if k % 3 else BAD).format(k) for k in range(30)]
    given = documents(*texts, language=pl.Series(["en", "de"] * 15))
    scored = quality.score_documents(given, ScoreConfig(), model, None).tables["signals"]
    fitted = fit_selection([scored], keep=0.3, min_documents=5, classifier=None)
    whole = quality.score_documents(given, ScoreConfig(), model, None, fitted)
    parts = [
        quality.score_documents(part, ScoreConfig(), model, None, fitted).tables["decisions"]
        for part in (given[20:], given[:3], given[3:20])
    ]
    assert pl.concat(parts).sort("doc_id").equals(whole.tables["decisions"].sort("doc_id"))
    assert whole.tables["decisions"]["kept"].sum() >= 9


def test_a_grade_decides(tmp_path: Path, model: Path) -> None:
    path = tmp_path / "grades.bin"
    trained = quality.train_classifier(graded(), SMALL.model_copy(update={"epochs": 60}))
    path.write_bytes(trained.model)
    given = documents("weaver " * 10, "bonus " * 10, "")
    found = quality.score_documents(given, ScoreConfig(min_grade=3), path, None)
    parts, decisions = found.tables["parts"], found.tables["decisions"]
    assert parts["doc_id"].to_list() == ["d0"]
    assert parts["grade"][0] > 4
    assert parts["quality_score"][0] == pytest.approx(parts["grade"][0] / 5)
    assert decisions["threshold"].to_list() == [None, 3.0, 3.0]
    assert decisions["value"][1] == pytest.approx(found.tables["signals"]["grade"][1])
    schema.conform(parts, schema.document_schema(parts.columns), extra=True)
    with pytest.raises(ConfigError, match=r"score\.min_grade is 3\.0, but the classifier has the"):
        quality.score_documents(given, ScoreConfig(min_grade=3), model, None)


def test_only_one_way_says_who_is_kept() -> None:
    with pytest.raises(ConfigError, match="min_quality and min_grade both say who is kept"):
        load_config(sets=["score.min_quality=0.5", "score.min_grade=3"])
