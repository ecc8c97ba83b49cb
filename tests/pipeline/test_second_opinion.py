"""When the second detector is heard, and what is said where it is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import polars as pl
import pytest

from pipeline import second_opinion
from pipeline.config.language import LanguageConfig
from pipeline.errors import ConfigError
from pipeline.language import identify, libraries
from pipeline.second_opinion import CLEAR, RARE, SURE, hear

needs_eldc = pytest.mark.skipif(
    importlib.util.find_spec("eldc") is None, reason="the extra eldc is not installed"
)
FINNISH = "Valitse haluamasi asetukset"
GALICIAN = "Os ficheiros desta pasta non se amosan nas outras"


def heard(text: str, language: str, score: float) -> tuple[str, float]:
    languages, scores = hear(pl.Series([text]), [language], [score])
    return languages[0], scores[0]


@needs_eldc
def test_it_is_heard_where_the_first_is_unsure() -> None:
    language, score = heard(FINNISH, "et", SURE - 0.01)
    assert language == "fi"
    assert score >= CLEAR
    assert heard(FINNISH, "et", SURE) == ("et", SURE)


@needs_eldc
def test_a_language_that_it_has_no_word_for_stands() -> None:
    assert heard(GALICIAN, "gl", RARE) == ("gl", RARE)
    assert heard(GALICIAN, "gl", RARE - 0.01)[0] != "gl"


@needs_eldc
def test_languages_that_are_one_to_it_are_left_to_the_first() -> None:
    text = "Silakan pilih berkas yang ingin Anda buka dari daftar di bawah ini"
    assert heard(text, "id", 0.3) == ("id", 0.3)
    assert heard(text, "en", 0.3)[0] == "ms"


@needs_eldc
@pytest.mark.parametrize("text", ["", "12345 67890", "!!!"])
def test_no_letters_no_opinion(text: str) -> None:
    frame = identify(pl.Series([text]), backend="eldc")
    assert frame.row(0)[:2] == ("und", 0.0)


@needs_eldc
def test_it_is_part_of_what_shapes_the_output() -> None:
    assert libraries(LanguageConfig(backend="eldc")) == ("fasttext-community", "eldc")
    assert libraries(LanguageConfig()) == ("fasttext-community",)


def test_where_it_is_not_installed_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_opinion, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"filter.language.backend.*\n?.*gristmill\[eldc\]"):
        libraries(LanguageConfig(backend="eldc"))


@pytest.mark.shared
@needs_eldc
def test_both_backends_give_the_same_answers_twice(shared: Path) -> None:
    texts = pl.read_ndjson(shared / "data/labels/language.jsonl.gz")["text"].head(300)
    assert identify(texts, backend="eldc").equals(identify(texts, backend="eldc"))
