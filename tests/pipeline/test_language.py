"""Languages by fastText, what makes one undetermined, and what the rules do with each."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from pipeline import language
from pipeline.config import load_config
from pipeline.config.language import LanguageConfig
from pipeline.config.languages import LANGUAGES, code_of
from pipeline.errors import ConfigError, GristmillError
from pipeline.filters.rules import decide

ENGLISH = "The engineer opened the old chart near the vineyard when the tide turned."
GERMAN = "Der Ingenieur öffnete die alte Karte am Weinberg, als die Flut kam."
NO_LETTERS = "12345 67890 12345 67890"


def told(*texts: str | None, **options: float) -> pl.DataFrame:
    return language.identify(pl.Series("text", texts, pl.String), **options)  # type: ignore[arg-type]


def verdict(text: str, **config: object) -> tuple[str | None, float | None]:
    """The reason and its threshold."""
    settings = LanguageConfig.model_validate(config)
    signals = language.signals(pl.Series("text", [text]), settings)
    row = decide(signals, language.rules(settings)).row(0, named=True)
    limit = row["threshold"]
    return row["reason"], None if limit is None else round(limit, 4)


def test_languages_have_their_codes() -> None:
    texts = [ENGLISH, GERMAN, "博物馆里有很多古老的书籍和地图。", "Ceci est un texte en français."]
    assert told(*texts)["language"].to_list() == ["en", "de", "zh", "fr"]


def test_line_ends_weigh_as_blanks() -> None:
    one, two = told(ENGLISH, ENGLISH.replace(" ", "\n"))["language_score"]
    assert one == two


def test_a_score_is_at_most_one() -> None:
    scores = told(*[GERMAN * 20, ENGLISH * 20])["language_score"]
    assert (scores <= 1).all()


@pytest.mark.parametrize("text", ["", None, " \n ", NO_LETTERS, "!!! ??? ..."])
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
    beginning = (ENGLISH + " ") * 25
    one, two = told(beginning, beginning + GERMAN * 50)["language_score"]
    assert one == two


def test_a_language_that_is_not_wanted_goes() -> None:
    assert verdict(GERMAN) == (None, None)
    assert verdict(GERMAN, keep=["en", "de"]) == (None, None)
    assert verdict(GERMAN, keep=["en"]) == ("language.not_kept", 0.65)
    assert verdict(GERMAN, keep=["en"], min_scores={"de": 0.5}) == ("language.not_kept", 0.5)


def test_a_low_score_goes_by_the_floor_of_its_language() -> None:
    score = told(GERMAN)["language_score"][0]
    low, high = round(score - 0.001, 4), round(score + 0.001, 4)
    assert verdict(GERMAN, min_score=low) == (None, None)
    assert verdict(GERMAN, min_score=high) == ("language.low_score", high)
    assert verdict(GERMAN, min_score=None) == (None, None)
    assert verdict(GERMAN, min_score=0.1, min_scores={"de": high, "en": 0.2}) == (
        "language.low_score", high,
    )  # fmt: skip
    assert verdict(GERMAN, min_score=1, min_scores={"de": low}) == (None, None)
    assert verdict(GERMAN, min_score=None, min_scores={"en": 1}) == (None, None)


def test_what_no_language_is_told_of_is_dropped_unless_it_is_kept() -> None:
    assert verdict(ENGLISH[:9]) == ("language.too_short", 10)
    assert verdict(ENGLISH[:10], min_score=None) == (None, None)
    assert verdict(NO_LETTERS) == ("language.low_score", 0.15)
    assert verdict(NO_LETTERS, min_score=None, und_score=0) == ("language.low_score", 0)
    score = told(ENGLISH)["language_score"][0]
    floor = round(score + 0.001, 4)
    assert verdict(ENGLISH, und_score=floor, min_score=None) == ("language.low_score", floor)
    for text in (ENGLISH[:9], NO_LETTERS):
        assert verdict(text, und="keep", keep=["de"], min_score=0.9) == (None, None)


def test_the_labels_of_the_model_are_the_codes_of_the_configuration() -> None:
    labels = language._load(str(language.model_path())).get_labels()
    codes = [label.removeprefix("__label__") for label in labels]
    assert {language.ISO_CODES.get(code, code) for code in codes} == set(LANGUAGES)


@pytest.mark.parametrize(
    ("name", "code"),
    [("en", "en"), ("eng", "en"), ("de_DE", "de"), ("pt-BR", "pt"), ("deu_Latn", "de"),
     ("cmn_Hani", "zh"), ("nb", "no"), ("als_Latn", "sq"), ("SV", "sv"), ("xx", None), ("", None)],
)  # fmt: skip
def test_other_names_of_a_language(name: str, code: str | None) -> None:
    assert code_of(name) == code


@pytest.mark.parametrize(
    ("setting", "fix"),
    [("keep=[en, eng]", "write 'en'"), ("min_scores={de_DE: 0.8}", "write 'de'"),
     ("keep=[xx]", "176 languages"), ("keep=[und]", "filter.language.und"),
     ("min_scores={de: 31}", "less than or equal to 1"), ("backend=cld3", "'lid176' or 'eldc'")],
)  # fmt: skip
def test_a_wrong_code_is_refused_with_the_fix(setting: str, fix: str) -> None:
    with pytest.raises(ConfigError, match=f"filter.language.*{fix}"):
        load_config(sets=[f"filter.language.{setting}"])


def test_norwegian_survives_yaml() -> None:
    config = load_config(
        sets=["filter.language.keep=[no, da]", "filter.language.min_scores={no: 0.7}"]
    )
    assert config.filter.language.keep == ["no", "da"]
    assert config.filter.language.min_scores == {"no": 0.7}


def test_an_absent_model_names_the_cure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path))
    with pytest.raises(GristmillError, match="make setup"):
        language.model_path()
