"""Thresholds by language, and FineWeb-2's files that give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.config import load_config, section_json
from pipeline.config.filter import FilterConfig
from pipeline.errors import ConfigError
from pipeline.filters import run
from pipeline.filters.language_files import read_language_files, resolved
from pipeline.filters.rules import Limit, Rule, above, below, decide

GERMAN = """dup_line_frac: 0.263
dup_n_grams: [[5, 0.141], [6, 0.134]]
language_score: 0.821
line_punct_thr: 0.0
max_avg_word_length: 15
max_non_alpha_words_ratio: 0.774
min_avg_word_length: 0
new_line_ratio: 0.152
stopwords: [der, und, die]
top_n_grams:
- - 2
  - 0.169
"""


def config(**values: Any) -> FilterConfig:
    return FilterConfig.model_validate(values)


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.yml").write_text(text, encoding="utf-8")
    return folder


def test_a_row_has_the_threshold_of_its_language() -> None:
    signals = pl.DataFrame({"language": ["en", "de", "fr", None], "x": [6.0, 6.0, 6.0, 6.0]})
    rules = above("r", "x", Limit(5.0, {"de": 7.0, "fr": None}))
    found = decide(signals, rules)
    assert found["kept"].to_list() == [False, True, True, False]
    assert found["threshold"].to_list() == [5.0, None, None, 5.0]


def test_a_rule_for_some_languages_only() -> None:
    signals = pl.DataFrame({"language": ["en", "de"], "x": [1.0, 1.0]})
    rules = below("r", "x", Limit(None, {"de": 2.0}))
    assert decide(signals, rules)["kept"].to_list() == [True, False]
    assert below("r", "x", Limit(None, {"de": None})) == []


def thresholds(given: FilterConfig, reason: str, language: str) -> list[float | None]:
    rules: list[Rule] = [rule for rule in run.rules(given) if rule.reason == reason]
    row = pl.DataFrame({"language": [language]})
    return [row.select(rule.threshold.cast(pl.Float64)).item() for rule in rules]


def test_thresholds_by_language_in_decisions() -> None:
    text = "Donaudampfschifffahrtsgesellschaftskapitän und die Versicherung " * 20
    frame = pl.DataFrame({"doc_id": ["a"], "url": [None], "text": [text]})
    changes: dict[str, Any] = {
        "gopher": {"repetition": False},
        "c4": {"enabled": False},
        "fineweb": {"enabled": False},
    }

    def reason(**more: Any) -> tuple[Any, ...]:
        result = run.filter_documents(frame, config(**{**changes, **more}))
        return result.tables["decisions"].select("reason", "threshold").row(0)

    long = "gopher_quality.gopher_above_avg_threshold"
    assert reason() == (long, 10.0)
    assert reason(per_language={"de": {"gopher": {"max_word_length": 20}}}) == (None, None)
    assert reason(per_language={"de": {"gopher": {"max_word_length": None}}}) == (None, None)
    assert reason(per_language={"de": {"gopher": {"max_word_length": 14}}}) == (long, 14.0)
    assert reason(per_language={"fr": {"gopher": {"max_word_length": 20}}}) == (long, 10.0)


def test_only_what_is_set_stands_in_manifests_and_counts() -> None:
    given = config(per_language={"de": {"gopher": {"max_word_length": 15}}})
    stored = section_json(given)
    assert stored["per_language"] == {"de": {"gopher": {"max_word_length": 15.0}, "fineweb": {}}}
    assert config(**stored) == given
    general = config(**{**stored, "gopher": {"min_words": 10}})
    assert thresholds(general, "gopher_quality.gopher_short_doc", "de") == [10.0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("per_language.de.gopher.max_word_length=3141", "3141 is not allowed.*equal to 100"),
        ("per_language.de.gopher.max_wort_length=3", r"unknown key\nhint:.*'max_word_length'"),
        ("per_language.de.gopher.stop_words={}", "unknown key"),
        ("per_language.deu.gopher.max_words=3", "write 'de'"),
    ],
)
def test_wrong_settings_name_key_value_and_fix(setting: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(sets=[f"filter.{setting}"])


def test_a_file_of_fineweb_2(tmp_path: Path) -> None:
    folder = write(tmp_path / "configs", deu_Latn=GERMAN)
    given = resolved(config(language_files=[str(folder)], language={"keep": ["en"]}))
    assert given.language_files == []
    assert given.language.keep == ["en", "de"]
    assert given.language.min_scores == {"de": 0.821}
    assert given.gopher.stop_words["de"] == ["der", "und", "die"]
    assert given.gopher.stop_words["en"]
    for reason, threshold in (
        ("gopher_repetition.dup_line_frac", 0.263),
        ("gopher_repetition.top_2_gram", 0.169),
        ("gopher_repetition.top_3_gram", 0.18),  # not in the file
        ("gopher_repetition.duplicated_6_n_grams", 0.134),
        ("gopher_quality.gopher_above_avg_threshold", 15),
        ("gopher_quality.gopher_below_alpha_threshold", 0.774),
        ("fineweb.line_punct_ratio", 0),
        ("fineweb.list_ratio", 0.152),
        ("language.low_score", 0.821),
    ):
        assert thresholds(given, reason, "de")[-1] == pytest.approx(threshold), reason
    assert thresholds(given, "fineweb.list_ratio", "en") == [0.3]
    assert thresholds(given, "gopher_quality.gopher_below_avg_threshold", "de") == [0, 0]


def test_files_come_before_settings_by_language(tmp_path: Path) -> None:
    folder = write(tmp_path, deu_Latn="max_avg_word_length: 12")
    rules = {"de": {"gopher": {"max_word_length": 15, "max_words": 500}}}
    given = resolved(config(language_files=[str(folder)], per_language=rules))
    assert section_json(given)["per_language"]["de"]["gopher"] == {
        "max_word_length": 12.0, "max_words": 500,
    }  # fmt: skip
    assert given.language.keep == []


def test_codes_of_files(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "configs",
        cmn_Hani="language_score: 0.1", arb_Arab="language_score: 0.2",
        srp_Cyrl="language_score: 0.3", srp_Latn="language_score: 0.4",
        nob_Latn="language_score: 0.5", aak_Latn="language_score: 0.6",
    )  # fmt: skip
    found = read_language_files([str(folder)])
    scores = {code: file.language_score for code, file in found.items()}
    assert scores == {"ar": 0.2, "no": 0.5, "sr": 0.3, "zh": 0.1}
    named = read_language_files([str(folder), str(folder / "srp_Latn.yml")])
    assert named["sr"].language_score == 0.4
    both = [str(folder / "srp_Latn.yml"), str(folder / "srp_Cyrl.yml")]
    with pytest.raises(ConfigError, match=r"srp_Latn.*srp_Cyrl.*'sr'"):
        read_language_files(both)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_avg_word_length: 3141", r"max_avg_word_length: 3141 is not.*1 to 100"),
        ("new_line_ratio: 1000", r"new_line_ratio: 1000 is not allowed.*0 to 10"),
        ("line_punct_thr: -2", r"line_punct_thr: -2 is not allowed.*-1 to 1"),
        ("language_score: 82", r"language_score: 82 is not allowed.*0 to 1"),
        ("dup_n_grams: [[11, 0.1]]", r"dup_n_grams\.0\.0: 11"),
        ("top_n_grams: [[2, 1.5]]", r"top_n_grams\.0\.1: 1\.5"),
        ("max_avg_word_length: 3\nmin_avg_word_length: 4", "min_avg_word_length 4 is over"),
        ("max_avg_word_length: x", "max_avg_word_length: 'x'"),
        ("max_word_len: 3", r"unknown key max_word_len\nhint: known: language_score"),
        ("- 1", "holds list"),
        ("a: [", "cannot be read"),
    ],
)
@pytest.mark.parametrize("name", ["deu_Latn", "aak_Latn"])
def test_absurd_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    folder = write(tmp_path / "configs", **{name: text})
    with pytest.raises(ConfigError, match=rf"(?s)filter\.language_files.*{name}\.yml.*{message}"):
        resolved(config(language_files=[str(folder)]))


def test_a_file_that_contradicts_the_other_settings_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "configs", deu_Latn="min_avg_word_length: 12")
    with pytest.raises(ConfigError, match=r"filter\.language_files.*12 is over max_word_length 10"):
        resolved(config(language_files=[str(folder)]))


def test_absent_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="/nowhere is not there"):
        resolved(config(language_files=["/nowhere"]))
    with pytest.raises(ConfigError, match=r"holds no \.yml files"):
        resolved(config(language_files=[str(tmp_path)]))


def test_no_rule_of_punctuation_where_the_file_says_minus_one(tmp_path: Path) -> None:
    folder = write(tmp_path, deu_Latn="line_punct_thr: -1")
    given = resolved(config(language_files=[str(folder)]))
    assert thresholds(given, "fineweb.line_punct_ratio", "de") == [0.0]


def test_any_number_of_stop_words_and_a_list_for_the_rest() -> None:
    text = " ".join(f"word{k}" for k in range(200))
    frame = pl.DataFrame({"doc_id": ["a"], "url": [None], "text": [text]})
    stop = {"*": [f"word{k}" for k in range(150)]}
    result = run.filter_documents(frame, config(gopher={"stop_words": stop}))
    assert result.tables["signals"]["stop_words"].to_list() == [150]


def test_the_preset_has_what_is_published() -> None:
    given = load_config(preset="fineweb2")
    assert given.dedup.scope == "language"
    assert not given.filter.c4.enabled
    assert given.filter.language.min_scores["sw"] == 0.3
    assert set(given.filter.per_language) == set(given.filter.language.keep)
    assert thresholds(given.filter, "gopher_quality.gopher_above_avg_threshold", "hi") == [21]
    reasons = {rule.reason for rule in run.rules(given.filter)}
    gone = ("gopher_repetition.dup_para_frac", "fineweb.short_line_ratio", "c4.lorem_ipsum")
    assert not reasons & {*gone, "gopher_repetition.dup_line_char_frac"}
