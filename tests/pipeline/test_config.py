"""The configuration: layers, and errors that name key, value and fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import Config, load_config, parse_setting, presets
from pipeline.errors import ConfigError


def test_later_layers_win(tmp_path: Path) -> None:
    path = tmp_path / "gristmill.yaml"
    path.write_text("preset: fineweb\ndedup: {threshold: 0.6, bands: 10}\n")
    config = load_config(
        path, overrides={"dedup": {"bands": 11}}, sets=["dedup.rows=7", "filter.language.keep=[de]"]
    )
    assert config.preset == "fineweb"
    assert config.extract.mode == "trafilatura"  # the preset's
    assert (config.dedup.threshold, config.dedup.bands, config.dedup.rows) == (0.6, 11, 7)
    assert config.filter.language.keep == ["de"]


@pytest.mark.parametrize("name", presets())
def test_presets_are_valid(name: str) -> None:
    assert load_config(preset=name).preset == name


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("dedup.treshold=0.8", ["dedup.treshold", "did you mean 'threshold'"]),
        ("dedup.threshold=1.5", ["dedup.threshold", "1.5", "less than or equal to 1"]),
        ("filter.gopher.min_words=-1", ["filter.gopher.min_words", "-1"]),
        (
            "filter.gopher.min_words=200000",
            ["filter.gopher", "min_words 200000", "max_words 100000"],
        ),
        (
            "filter.dclm.max_word_length=2",
            ["filter.dclm", "min_word_length 3", "max_word_length 2"],
        ),
        ("filter.per_language={de: {gopher: {max_words: 20}}}", ["per_language.de.gopher", "50"]),
        ("filter.per_language={de: {gopher: {min_word_length: 12}}}", ["de.gopher", "12", "10"]),
        ("filter.gopher.stop_words={deu: [der]}", ["filter.gopher.stop_words", "write 'de'"]),
        ("filter.gopher.stop_words={en: []}", ["filter.gopher.stop_words.en", "at least 1"]),
        ("filter.dclm.stop_words=[]", ["filter.dclm.stop_words", "at least 1"]),
        ("filter.urls.ut1_categories=[adult]", ["filter.urls", "ut1_categories", "not set"]),
        ("nonsense=1", ["nonsense", "known here"]),
        ("snapshots.location=https://me:secret@host.example/x", ["snapshots.location", "password"]),
        ("storage.endpoint_url=http://a:b@127.0.0.1:9", ["storage.endpoint_url", "password"]),
        ("preset=none", ["preset", "none"]),
    ],
)
def test_errors_name_key_value_and_fix(setting: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(sets=[setting])
    assert [word for word in words if word not in str(caught.value)] == []
    assert "secret" not in str(caught.value)


def test_a_language_without_blanks_may_have_shorter_words_than_the_lowest_of_others() -> None:
    sets = ["filter.per_language={zh: {gopher: {max_word_length: 2}}}"]
    assert "zh" in load_config(sets=sets).filter.per_language
    words = ["filter.gopher.stop_words={no: [og], '*': [a]}"]
    assert set(load_config(sets=words).filter.gopher.stop_words) == {"no", "*"}


def test_settings_are_yaml() -> None:
    assert parse_setting("a.b=[1, x]") == {"a": {"b": [1, "x"]}}
    with pytest.raises(ConfigError, match="is no setting"):
        parse_setting("a.b")


def test_sections_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().dedup.threshold = 0.1  # type: ignore[misc]
