"""One document that just passes each rule and one that just fails it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from pipeline.config.filter import FilterConfig
from pipeline.filters import run
from pipeline.filters.run import explain
from pipeline.schema import REASONS

WORDS = ["".join(letters) for letters in product("bcdfg", "aeiou", "klmnp", "aeiou")]
"""625 distinct words of four letters, none of them a stop word."""


def words(n: int, start: int = 0) -> str:
    return " ".join(WORDS[start : start + n])


def lines(n: int, size: int = 8, end: str = ".") -> list[str]:
    """`n` different lines of `size` different words."""
    return [words(size, k * size) + end for k in range(n)]


def row(text: str, rule: str, **sections: Any) -> tuple[float | None, bool]:
    config = FilterConfig.model_validate({"language": {"min_chars": 0}, **sections})
    found = [r for r in explain(text, "http://a.example/", config) if r.rule == rule]
    assert len(found) == 1, rule
    return found[0].value, found[0].passes


def repeated(n: int, of: int, size: int = 8) -> str:
    """`of` lines, the last `n` of which repeat the first."""
    first = lines(of - n, size)
    return "\n".join([*first, *[first[0]] * n])


def paragraphs(n: int, of: int) -> str:
    return repeated(n, of).replace("\n", "\n\n")


def prefix(head: str, n: int) -> str:
    return f"{head} {words(n)}"


def starred(head: str, n: int, of: int) -> str:
    """`of` lines of which `n` start with `head`."""
    body = lines(of)
    return "\n".join([*(head + line for line in body[:n]), *body[n:]])


def gram(size: int, times: int, rest: int) -> str:
    """An n-gram that occurs `times` times, apart from each other, and `rest` other words."""
    head = words(size, 600)
    between = [f"{head} {words(1, 400 + k)}" for k in range(times)]
    return " ".join([*between, words(rest)])


REPETITION: list[tuple[str, str, str]] = [
    # 10 lines: 3 of 10 are repeats, then 4 of 11
    ("dup_line_frac", repeated(3, 10), repeated(4, 11)),
    ("dup_para_frac", paragraphs(3, 10), paragraphs(4, 11)),
    # one line in five is just under a fifth of all characters, because line ends count
    ("dup_line_char_frac", repeated(1, 5), repeated(1, 4)),
    ("dup_para_char_frac", paragraphs(1, 5), paragraphs(1, 4)),
    # 9 characters, three times, of 139 or 134: the last word makes the difference
    ("top_2_gram", gram(2, 3, 19), gram(2, 3, 18)),
    ("top_3_gram", gram(3, 3, 35), gram(3, 3, 34)),
    ("top_4_gram", gram(4, 3, 57), gram(4, 3, 56)),
    # repeats count 4 characters a word
    ("duplicated_5_n_grams", gram(5, 2, 15), gram(5, 2, 14)),
    ("duplicated_6_n_grams", gram(6, 2, 21), gram(6, 2, 20)),
    ("duplicated_7_n_grams", gram(7, 2, 28), gram(7, 2, 27)),
    ("duplicated_8_n_grams", gram(8, 2, 36), gram(8, 2, 35)),
    ("duplicated_9_n_grams", gram(9, 2, 46), gram(9, 2, 45)),
    ("duplicated_10_n_grams", gram(10, 2, 59), gram(10, 2, 58)),
    ("empty", "a", ""),
]


@pytest.mark.parametrize(("rule", "passing", "failing"), REPETITION, ids=lambda v: str(v)[:24])
def test_gopher_repetition(rule: str, passing: str, failing: str) -> None:
    good, bad = (row(text, f"gopher_repetition.{rule}") for text in (passing, failing))
    assert good[1], good
    assert not bad[1], bad


STOP = "the and "
QUALITY: list[tuple[str, str, str]] = [
    ("gopher_short_doc", words(50), words(49)),
    ("gopher_long_doc", words(600) + " x" * 40, words(600) + " x" * 41),
    ("gopher_below_avg_threshold", "abc " * 50, "abc " * 49 + "ab"),
    ("gopher_above_avg_threshold", "abcdefghij " * 50, "abcdefghij " * 49 + "abcdefghijk"),
    # 10 marks in 100 tokens, 11 in 101
    ("gopher_too_many_hashes", prefix("# " * 10, 90), prefix("# " * 11, 90)),
    ("gopher_too_many_ellipsis", prefix("… " * 10, 90), prefix("… " * 11, 90)),
    ("gopher_too_many_bullets", starred("• ", 9, 10), starred("- ", 10, 10)),
    (
        "gopher_too_many_end_ellipsis",
        "\n".join(lines(3, end="...") + lines(10)[3:]),
        "\n".join(lines(4, end="...") + lines(10)[4:]),
    ),
    ("gopher_below_alpha_threshold", words(80) + " 7" * 20, words(79) + " 7" * 20),
    ("gopher_enough_stop_words", STOP + "dog " * 60, "the the " + "dog " * 60),
]


@pytest.mark.parametrize(("rule", "passing", "failing"), QUALITY, ids=lambda v: str(v)[:24])
def test_gopher_quality(rule: str, passing: str, failing: str, english: None) -> None:
    gopher = {"max_words": 640} if rule == "gopher_long_doc" else {}
    good, bad = (row(text, f"gopher_quality.{rule}", gopher=gopher) for text in (passing, failing))
    assert good[1], good
    assert not bad[1], bad


@pytest.fixture
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word salad has no language; the stop-word rule needs it to be English."""
    import polars as pl

    from pipeline import language

    def told(texts: pl.Series, config: Any) -> pl.DataFrame:
        frame = language.identify(texts)
        return frame.with_columns(pl.lit("en").alias("language"))

    monkeypatch.setattr(language, "signals", told)


FIVE = "\n".join(lines(5))
C4: list[tuple[str, str, str]] = [
    ("lorem_ipsum", FIVE + "\nlorem, ipsum dolor sit", FIVE + "\nLorem Ipsum dolor sit"),
    # in a line that is removed before, a bracket does no harm
    ("curly_bracket", FIVE + "\njavascript { a b c", FIVE + "\ncode { a b c"),
    ("too_few_sentences", FIVE, "\n".join(lines(4))),
    ("too_few_sentences", words(9) + ". Foo bar baz! Who? Me? You.", words(9) + ". Foo bar baz."),
    # lines of fewer than three words, too long words and policy phrases are no sentences
    ("too_few_sentences", "\n".join(lines(5, size=3)), "\n".join(lines(5, size=2))),
    (
        "too_few_sentences",
        "\n".join([*lines(4), "a b " + "x" * 1000]),
        "\n".join([*lines(4), "a b " + "x" * 1001]),
    ),
    (
        "too_few_sentences",
        "\n".join([*lines(4), "we use cookie jars"]),
        "\n".join([*lines(4), "we use Cookies here"]),
    ),
]


@pytest.mark.parametrize(("rule", "passing", "failing"), C4, ids=lambda v: str(v)[:24])
def test_c4(rule: str, passing: str, failing: str) -> None:
    good, bad = (row(text, f"c4.{rule}") for text in (passing, failing))
    assert good[1], good
    assert not bad[1], bad


def test_c4_terminal_punctuation_is_off_by_default() -> None:
    text = "\n".join([*lines(4), words(8), words(8) + "..."])
    on = {"c4": {"terminal_punctuation": True}}
    assert row(text, "c4.too_few_sentences") == (6.0, True)
    assert row(text, "c4.too_few_sentences", **on) == (4.0, False)


FINEWEB: list[tuple[str, str, str]] = [
    ("empty", "a b c", ""),
    # 3 of 25 lines are 0.12
    (
        "line_punct_ratio",
        "\n".join(lines(3) + lines(25, end="")[3:]),
        "\n".join(lines(3) + lines(26, end="")[3:]),
    ),
    # 30 characters are short, 31 are not; 2 of 3 are under 0.67, 3 of 4 over
    (
        "short_line_ratio",
        "\n".join([words(6) + " x."] * 2 + lines(1)),
        "\n".join([words(6)] * 2 + [words(6) + "x"] + lines(1)),
    ),
    # a line of 30 characters again: 30 of 3000 is not over 0.01
    ("char_dup_ratio", repeated(1, 100, size=6), repeated(1, 99, size=6)),
    ("list_ratio", "\n".join(["a b c d"] * 2 + ["a b"]), "a b\nc d\ne"),
]


@pytest.mark.parametrize(("rule", "passing", "failing"), FINEWEB, ids=lambda v: str(v)[:24])
def test_fineweb(rule: str, passing: str, failing: str) -> None:
    c4 = {"enabled": False}  # its line rules would change the lines
    good, bad = (row(text, f"fineweb.{rule}", c4=c4) for text in (passing, failing))
    assert good[1], good
    assert not bad[1], bad


SWITCHES: list[tuple[str, dict[str, Any]]] = [
    ("gopher_repetition", {"gopher": {"repetition": False}}),
    ("gopher_quality", {"gopher": {"quality": False}}),
    ("c4", {"c4": {"enabled": False}}),
    ("fineweb", {"fineweb": {"enabled": False}}),
    ("language", {"language": {"enabled": False}}),
]


@pytest.mark.parametrize(("family", "sections"), SWITCHES)
def test_rule_sets_can_be_switched_off(family: str, sections: dict[str, Any]) -> None:
    def asked(change: dict[str, Any]) -> set[str]:
        rows = explain("a", None, FilterConfig.model_validate(change))
        return {r.rule.split(".")[0] for r in rows}

    assert asked({}) - asked(sections) == {family}


def test_null_switches_a_rule_off() -> None:
    config = FilterConfig.model_validate({"gopher": {"min_words": None, "top_2_gram": None}})
    rules = {r.rule for r in explain("a", None, config)}
    assert not rules & {"gopher_quality.gopher_short_doc", "gopher_repetition.top_2_gram"}


def test_every_reason_is_in_the_vocabulary() -> None:
    config = FilterConfig.model_validate({"dclm": {"enabled": True}, "language": {"keep": ["en"]}})
    named = {f"{family}.{rule}" for family, rules in REASONS.items() for rule in rules}
    found = {rule.reason for rule in run.rules(config)}
    assert found <= named
    for family in ("gopher_repetition", "gopher_quality", "c4", "dclm", "fineweb", "url"):
        assert {r for r in named if r.startswith(f"{family}.")} <= found
