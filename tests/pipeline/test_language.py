"""Languages by fastText, and what makes one undetermined."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipeline import language
from pipeline.config.filter import LanguageConfig
from pipeline.errors import GristmillError
from pipeline.filters.rules import decide

ENGLISH = "The engineer opened the old chart near the vineyard when the tide turned."
GERMAN = "Der Ingenieur öffnete die alte Karte am Weinberg, als die Flut kam."


def told(*texts: str | None, **options: float) -> pl.DataFrame:
    return language.identify(pl.Series("text", texts, pl.String), **options)  # type: ignore[arg-type]


def reason(text: str, **config: object) -> str | None:
    settings = LanguageConfig.model_validate(config)
    signals = language.signals(pl.Series("text", [text]), settings)
    found: str | None = decide(signals, language.rules(settings))["reason"][0]
    return found


def test_languages_have_their_codes() -> None:
    texts = [ENGLISH, GERMAN, "博物馆里有很多古老的书籍和地图。", "Ceci est un texte en français."]
    assert told(*texts)["language"].to_list() == ["en", "de", "zh", "fr"]


def test_line_ends_weigh_as_blanks() -> None:
    one, two = told(ENGLISH, ENGLISH.replace(" ", "\n"))["language_score"]
    assert one == two


def test_a_score_is_at_most_one() -> None:
    scores = told(*[GERMAN * 20, ENGLISH * 20])["language_score"]
    assert scores.max() <= 1.0


@pytest.mark.parametrize("text", ["", None, " \n ", "12345 67890 12345 67890", "!!! ??? ..."])
def test_no_letters_no_language(text: str | None) -> None:
    frame = told(text)
    assert frame.row(0)[:2] == ("und", 0.0)


def test_short_texts_and_low_scores_are_undetermined() -> None:
    short = ENGLISH[:19]
    assert told(ENGLISH[:21], min_chars=20)["language"][0] != "und"
    assert told(short, min_chars=20)["language"][0] == "und"
    score = told(ENGLISH)["language_score"][0]
    assert told(ENGLISH, und_score=score - 1e-3)["language"][0] == "en"
    assert told(ENGLISH, und_score=score + 1e-3)["language"][0] == "und"


def test_only_the_beginning_counts() -> None:
    beginning = (ENGLISH + " ") * 20
    one, two = told(beginning, beginning + GERMAN * 50)["language_score"]
    assert one == two


def test_reasons() -> None:
    assert reason(GERMAN) is None
    assert reason(GERMAN, keep=["en", "de"]) is None
    assert reason(GERMAN, keep=["en"]) == "language.not_kept"
    assert reason("ab cd") == "language.too_short"
    assert reason("lorem wort word mot palabra", min_score=0.99) == "language.low_score"
    assert reason("ab cd", min_score=None, min_chars=0) is None


def test_an_absent_model_names_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path))
    with pytest.raises(GristmillError, match="make setup"):
        language.model_path()


@pytest.mark.shared
def test_labelled_paragraphs(shared: Path) -> None:
    frame = pl.read_ndjson(shared / "data/labels/language.jsonl.gz")
    frame = frame.filter((pl.col("size") == "long") & (pl.col("text").str.len_chars() >= 120))
    same = {"nb": "no", "nn": "no", "bs": "hbs", "sr": "hbs", "hr": "hbs", "ms": "id"}
    right = told(*frame["text"])["language"].replace(same) == frame["lang"].replace(same)
    assert right.mean() >= 0.98  # type: ignore[operator]
