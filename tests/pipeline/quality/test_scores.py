"""Scores of the compiled pass are those of the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fasttext
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import GristmillError
from pipeline.quality.labels import QUALITY_LABELS
from pipeline.quality.plain_text import normalise, normalised
from pipeline.quality.scores import load_classifier, score_columns, score_texts
from pipeline.quality.train import train_classifier
from tests.pipeline.quality.material import BAD, GOOD, SMALL, graded, labels

TEXTS = pl.Series(
    [GOOD.format(1), BAD.format(2), "unknown words only", "the the the", "", "one", "buy", None,
     "ПРИВЕТ мир 你好", "buy cheap the weaver", " ".join(["pills", "sky"] * 200)]
)  # fmt: skip


def save(folder: Path, model: Any, name: str = "model.bin") -> Path:
    path = folder / name
    model.save_model(str(path))
    return path


def trained(folder: Path, **settings: Any) -> Any:
    lines = [
        f"__label__{label} {text}" for text, label in labels(80).select("text", "label").rows()
    ]
    source = folder / "train.txt"
    source.write_text("\n".join(lines) + "\n")
    given = {"dim": 6, "wordNgrams": 2, "bucket": 500, "epoch": 5, "thread": 1, "verbose": 0}
    return fasttext.train_supervised(str(source), **{**given, **settings})


def library(path: Path, texts: pl.Series) -> np.ndarray[Any, Any]:
    """What the library says, in the order of our labels."""
    model = fasttext.load_model(str(path))
    order = load_classifier(path).labels
    rows = []
    for text in normalise(texts):
        names, values = model.predict([text], k=len(order))
        found = dict(zip(names[0], values[0], strict=True))
        rows.append([found.get(f"__label__{label}", 0.0) for label in order])
    return np.clip(np.array(rows), 0, 1)


@pytest.mark.parametrize(
    "settings",
    [{}, {"wordNgrams": 1}, {"wordNgrams": 3}, {"wordNgrams": 5, "bucket": 7}, {"minCount": 3},
     {"dim": 1}, {"lr": 2.0}],
    ids=str,
)  # fmt: skip
def test_a_softmax_is_computed_by_the_pass(settings: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path, trained(tmp_path, **settings))
    model = load_classifier(path)
    assert model.linear is not None
    ours = model.probabilities(normalised(TEXTS))
    assert np.abs(ours - library(path, TEXTS)).max() < 1e-6


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cutoff": 300},
        {"qnorm": True},
        {"cutoff": 300, "qnorm": True, "dsub": 4},
    ],
    ids=str,
)
def test_quantised_models(settings: dict[str, Any], tmp_path: Path) -> None:
    model = trained(tmp_path, dim=6, bucket=500)
    if settings.get("cutoff"):
        model.quantize(input=str(tmp_path / "train.txt"), **settings)
    else:
        model.quantize(**settings)
    path = save(tmp_path, model)
    assert load_classifier(path).linear is not None
    ours = load_classifier(path).probabilities(normalised(TEXTS))
    assert np.abs(ours - library(path, TEXTS)).max() < 1e-6


@pytest.mark.parametrize("settings", [{"minn": 2, "maxn": 4}, {"loss": "ova"}, {"loss": "hs"}])
def test_other_models_go_to_the_library(settings: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path, trained(tmp_path, **settings))
    assert load_classifier(path).linear is None
    ours = load_classifier(path).probabilities(normalised(TEXTS))
    assert np.abs(ours - library(path, TEXTS)).max() < 1e-6


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.bin"
    path.write_bytes(train_classifier(labels(), SMALL).model)
    return path


@given(st.lists(st.text(), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text(model: Path, texts: list[str]) -> None:
    series = pl.Series(texts, dtype=pl.String)
    ours = load_classifier(model).probabilities(normalised(series))
    assert np.abs(ours - library(model, series)).max() < 1e-6


def test_one_and_many_and_line_ends_give_equal_scores(model: Path) -> None:
    texts = [GOOD.format(1), GOOD.format(1).upper().replace(" ", "\n\n"), BAD.format(2)]
    many = score_texts(pl.Series(texts), model, QUALITY_LABELS)
    one = [score_texts(pl.Series([t]), model, QUALITY_LABELS)[0] for t in texts]
    assert many.to_list() == one
    assert many[0] == many[1] > 0.5 > many[2]


def test_words_that_fasttext_would_read_as_marks(model: Path) -> None:
    text = pl.Series([f"</s> __label__0 {GOOD.format(1)}"])
    assert score_texts(text, model, QUALITY_LABELS)[0] > 0.5


def test_empty_texts_have_no_score(model: Path) -> None:
    scores = score_texts(pl.Series(["a", "", None, " \n", "\0"]), model, QUALITY_LABELS)
    assert scores.is_null().to_list() == [False, True, True, True, True]
    assert score_texts(pl.Series(["a"]), None, QUALITY_LABELS).to_list() == [None]
    assert len(score_texts(pl.Series([], dtype=pl.String), model, QUALITY_LABELS)) == 0


def test_grades_are_expected_values(tmp_path: Path) -> None:
    path = tmp_path / "grades.bin"
    path.write_bytes(train_classifier(graded(), SMALL.model_copy(update={"epochs": 60})).model)
    found = score_columns(pl.Series(["weaver " * 10, "bonus " * 10, ""]), path, QUALITY_LABELS)
    assert load_classifier(path).graded
    high, low, none = found["grade"].to_list()
    assert high > 4 > 1 > low
    assert none is None
    assert found["score"].to_list()[:2] == pytest.approx([high / 5, low / 5])


def test_all_texts_meet_the_same_compiled_pass(model: Path) -> None:
    from pipeline.quality import kernels

    for texts in (["plain"], ["ΟΔΟΣ", "plain"], [""], ["</s>"]):
        score_texts(pl.Series(texts), model, QUALITY_LABELS)
    passes: list[Any] = [kernels.squash, kernels.add_up]
    assert [len(made.signatures) for made in passes] == [1, 1]


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"not a model")
    with pytest.raises(GristmillError, match="no fastText model"):
        score_texts(pl.Series(["a"]), path, QUALITY_LABELS)


def test_a_model_with_other_labels(tmp_path: Path) -> None:
    lines = ["__label__cat meow meow", "__label__dog bark bark"] * 5
    (tmp_path / "t.txt").write_text("\n".join(lines) + "\n")
    odd = fasttext.train_supervised(str(tmp_path / "t.txt"), dim=2, bucket=10, thread=1, verbose=0)
    path = save(tmp_path, odd)
    with pytest.raises(GristmillError, match="none of which is a positive class"):
        score_texts(pl.Series(["a"]), path, QUALITY_LABELS)
