"""Thresholds that keep a share of each language."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipeline.errors import ConfigError, GristmillError
from pipeline.quality.selection import (
    fit_selection,
    limit_of,
    read_selection,
    row_thresholds,
)


def signals(**languages: list[float | None]) -> pl.DataFrame:
    pairs = [(name, score) for name, scores in languages.items() for score in scores]
    schema = {"language": pl.String, "quality_score": pl.Float32}
    return pl.DataFrame(pairs, schema=schema, orient="row")


HUNDRED: list[float | None] = [k / 100 for k in range(100)]


def test_the_best_tenth_of_each_language() -> None:
    frame = signals(en=HUNDRED, de=[s / 2 for s in HUNDRED if s is not None])
    fitted = fit_selection([frame], keep=0.1, min_documents=50, classifier="sha256:a")
    english, german = fitted.languages["en"], fitted.languages["de"]
    assert (english.documents, english.kept) == (100, 10)
    assert english.threshold == pytest.approx(0.9)
    assert german.threshold == pytest.approx(0.45)
    assert fitted.pooled.kept == 20


def test_ties_with_the_threshold_are_kept() -> None:
    limit = limit_of(np.array([0.1, 0.5, 0.5, 0.5], np.float32), 0.25)
    assert (limit.threshold, limit.kept) == (0.5, 3)
    assert limit_of(np.array([0.1, 0.2], np.float32), 0.01).kept == 1
    assert limit_of(np.array([0.1, 0.2], np.float32), 1.0).kept == 2


def test_any_order_and_number_of_parts_give_the_same_bytes() -> None:
    frame = signals(en=HUNDRED, de=HUNDRED[::2], nl=[0.5, None])
    arguments = {"keep": 0.2, "min_documents": 20, "classifier": "sha256:a"}
    one = fit_selection([frame], **arguments).to_bytes()  # type: ignore[arg-type]
    shuffled = frame.sample(fraction=1, shuffle=True, seed=2)
    parts = [shuffled[:40], shuffled[40:41], shuffled[41:]]
    assert fit_selection(parts, **arguments).to_bytes() == one  # type: ignore[arg-type]


def test_few_documents_take_the_pooled_threshold() -> None:
    frame = signals(en=HUNDRED, nl=[0.2, 0.9])
    fitted = fit_selection([frame], keep=0.1, min_documents=3, classifier=None)
    assert set(fitted.languages) == {"en"}
    rows = pl.DataFrame({"language": ["en", "nl", None, "xx"]})
    found = row_thresholds(rows, fitted)
    assert found.to_list() == pytest.approx(
        [fitted.languages["en"].threshold, *[fitted.pooled.threshold] * 3]
    )
    assert row_thresholds(pl.DataFrame({"doc_id": ["a"]}), fitted)[0] == pytest.approx(
        fitted.pooled.threshold
    )
    none = fit_selection([frame], keep=0.1, min_documents=1000, classifier=None)
    assert row_thresholds(rows, none).n_unique() == 1


def test_no_scores_are_an_error() -> None:
    with pytest.raises(GristmillError, match="no document has a quality score"):
        fit_selection([signals(en=[None])], keep=0.1, min_documents=1, classifier=None)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "selection.json"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_selection(path)
    fitted = fit_selection([signals(en=HUNDRED)], keep=0.1, min_documents=5, classifier="sha256:a")
    path.write_bytes(fitted.to_bytes())
    assert read_selection(path) == fitted
    fitted.check_model("sha256:a")
    with pytest.raises(ConfigError, match="another classifier"):
        fitted.check_model("sha256:b")
    for wrong in (b"{}", b"no json", b'{"format": "x"}'):
        path.write_bytes(wrong)
        with pytest.raises(ConfigError, match="no thresholds"):
            read_selection(path)
