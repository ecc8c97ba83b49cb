"""DCLM's rules: one page that just passes each and one that just fails; against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.filter import DclmConfig, FilterConfig
from pipeline.edits import trace_back
from pipeline.filters import dclm
from pipeline.filters.run import filter_documents
from pipeline.words import Words, texts_of, tokenizer

ONLY_DCLM: dict[str, Any] = {
    "language": {"enabled": False, "min_chars": 0},
    "gopher": {"quality": False, "repetition": False},
    "c4": {"enabled": False},
    "dclm": {"enabled": True},
    "fineweb": {"enabled": False},
}
STOP = "the and "
FILLER = [
    "old mill by the river turned slowly while farmers waited with their carts and talked of rain",
    "someone had painted the door of that house in blue so that it could be seen from the bridge",
    "children came to see how the stones were lifted and put back before the winter storms began",
    "nobody remembers who built it or why the wheel is so much larger than those of other mills",
]


def decided(text: str, **changes: Any) -> tuple[str | None, float | None]:
    """Reason and value of an English page under DCLM's rules alone."""
    config = {**ONLY_DCLM, "dclm": {"enabled": True, **changes}}
    frame = pl.DataFrame({"doc_id": ["a"], "url": [None], "text": [text]})
    result = filter_documents(frame, FilterConfig.model_validate(config))
    return result.tables["decisions"].select("reason", "value").row(0)


def words(n: int) -> str:
    """`n` words of prose, without line ends."""
    return " ".join((" ".join(FILLER) + " ").split()[k % 68] for k in range(n))


def test_the_filler_passes() -> None:
    assert decided("\n".join(FILLER)) == (None, None)


RULES: list[tuple[str, str, str, dict[str, Any]]] = [
    # signs alone are no words
    ("short", words(50), words(49) + " - ,", {}),
    ("long", words(60), words(61), {"max_words": 60}),
    ("word_length_below", "the and boy " * 20, "the and bo " * 20, {}),
    # 30 letters in three words are ten a word
    ("word_length_above", f"the and {'a' * 24} " * 40, f"the and {'a' * 25} " * 40, {}),
    # "...", ". . ." and "…" count like "#", per word
    ("symbols", words(89) + " # ... … #" + " #" * 5, words(87) + " # . . . … ..." + " #" * 7, {}),
    ("bullets", "* " + "\n* ".join(FILLER * 2) + "\n" + FILLER[0], "- " + "\n● ".join(FILLER), {}),
    (
        "ellipses",
        "\n".join([FILLER[0] + " ...", *FILLER[1:]]),
        "\n".join([FILLER[0] + " . . .", FILLER[1] + "…", *FILLER[2:]]),
        {},
    ),
    ("non_alphabetic", words(80) + " 7" * 20, words(79) + " 7" * 21, {}),
    # the same one twice is enough
    ("stop_words", "The cat sat THE " + "dog " * 60, "the cat sat " + "dog " * 60, {}),
]


@pytest.mark.parametrize(
    ("rule", "passing", "failing", "changes"), RULES, ids=lambda v: str(v)[:20]
)
def test_page_rules(
    rule: str, passing: str, failing: str, changes: dict[str, Any], english: None
) -> None:
    assert decided(passing, **changes)[0] != f"dclm.{rule}"
    assert decided(failing, **changes)[0] == f"dclm.{rule}"


def test_stop_words_are_english(monkeypatch: pytest.MonkeyPatch) -> None:
    told_as(monkeypatch, "de")
    assert decided("the cat sat " + "dog " * 60) == (None, None)


def test_a_page_that_loses_too_many_words(english: None) -> None:
    body = "\n".join(FILLER[k % 4] for k in range(8))
    assert len(body.split()) == 142
    caps = "\nBUY NOW AT OUR GREAT SHOP"  # 6 of 148 words are 0.041
    assert decided(body + caps) == (None, None)
    reason, value = decided(body + caps + " TODAY, FRIENDS")  # 8 of 150 are 0.053
    assert reason == "dclm.removed_words"
    assert value == pytest.approx(8 / 150)


@pytest.fixture
def english(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of these texts have no language; the rule for stop words needs them to be English."""
    told_as(monkeypatch, "en")


def told_as(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    from pipeline import language

    real = language.signals

    def told(texts: pl.Series, config: Any) -> pl.DataFrame:
        return real(texts, config).with_columns(pl.lit(code).alias("language"))

    monkeypatch.setattr(language, "signals", told)


def edited(text: str, **changes: Any) -> str | None:
    texts = texts_of(pl.Series([text]))
    config = DclmConfig(enabled=True, **changes)
    found = dclm.edit(texts, tokenizer().words(texts), config, tokenizer())
    return found.cut.texts.buffer.tobytes().decode()


def test_lines_go() -> None:
    assert edited("ABcd efg\nABCD ef\nfine here") == "ABcd efg\nfine here"  # 2 of 8, 4 of 7
    assert edited("12\n1 2\nx 2") == "1 2\nx 2"  # a line of figures alone has one word too
    assert edited("123456\n123456 7890", min_line_words=0) == "123456 7890"
    assert edited("one\ntwo words\n\n") == "two words"
    assert edited("a b\n\n\nc d\n   \ne f") == "a b\n\n\nc d\ne f"
    assert edited("ONE\n7", max_uppercase=None, max_numeric=None, min_line_words=1) == "ONE\n7"


LINES = st.lists(
    st.text(alphabet="aB Ñé7٣½.#-*…●\t\u00a0\u2003漢", max_size=9)
    | st.sampled_from(
        ["...", ". . .", ". . . . .", "....", "the", "Of and", "12", "● a", "x…", "\0a"]
    ),
    max_size=8,
)


def page_by_hand(text: str) -> tuple[Any, ...]:
    """The page signals as the published code computes them."""
    tokens = text.split()
    rows = [line for line in (p.strip() for p in text.split("\n")) if line]
    marks = sum(text.count(sign) for sign in ("#", "...", ". . .", "…"))
    bullets = sum(line.startswith(("●", "•", "*", "-")) for line in rows)
    trailing = sum(line.endswith(("...", ". . .", "…")) for line in rows)
    bare = sum(not any(c.isalpha() for c in word) for word in tokens)
    stop = sum(word.lower() in DclmConfig().stop_words for word in tokens)
    n, m = len(tokens), len(rows)
    return (
        plain(text), sum(map(len, tokens)) / n if n else None, marks / n if n else None,
        bullets / m if m else None, trailing / m if m else None, bare / n if n else None, stop,
    )  # fmt: skip


def plain(text: str) -> int:
    """fastText's words that begin with a letter or digit."""
    cut = text.translate(dict.fromkeys(map(ord, "\n\r\t\v\f\0"), " ")).split(" ")
    return sum(word[0].isalnum() for word in cut if word)


@settings(max_examples=400, deadline=None)
@given(LINES)
def test_page_signals_are_those_of_plain_python(lines: list[str]) -> None:
    text = "\n".join(lines)
    row = dclm.signals(texts_of(pl.Series([text])), DclmConfig()).row(0)
    expected = page_by_hand(text)
    if not text.split():  # signs without words divide by nothing
        row, expected = row[:2] + row[3:], expected[:2] + expected[3:]
    assert row == pytest.approx(expected)


@settings(max_examples=400, deadline=None)
@given(LINES)
def test_lines_are_those_of_plain_python(lines: list[str]) -> None:
    text = "\n".join(lines)
    kept = [
        line
        for line in lines
        if not line
        or (
            sum(c.isupper() for c in line) / len(line) <= 0.5
            and sum(c.isdigit() for c in line) / len(line) <= 0.999999
            and len(line.split()) >= 2
        )
    ]
    texts = texts_of(pl.Series([text]))
    found = dclm.edit(texts, tokenizer().words(texts), DclmConfig(enabled=True), tokenizer())
    expected = "\n".join(kept).strip()
    assert found.cut.texts.buffer.tobytes().decode() == expected
    lost = found.signals["dclm_removed_words"][0]
    before = plain(text)
    left = plain("\n".join(kept))
    assert lost == (pytest.approx((before - left) / before) if before else None)


@settings(max_examples=150, deadline=None)
@given(LINES, LINES)
def test_every_byte_leads_back_through_both_editors_and_earlier_edits(
    lines: list[str], more: list[str]
) -> None:
    body = "\n".join([*lines, "a { fine line [1] here.", "THIS IS LOUD TALK", *more, "so it ends."])
    raw = f"<p>{body}</p>".encode()
    data = body.encode()
    earlier = [{"out": 0, "in": 3, "length": len(data)}]  # what extraction left
    frame = pl.DataFrame({"doc_id": ["a"], "url": ["http://a.example/"], "text": [body]})
    frame = frame.with_columns(pl.Series("edits", [earlier], pl.List(dclm_span())))
    loose = {**ONLY_DCLM, "c4": {"min_sentences": None, "curly_bracket": False}}
    none = dict.fromkeys(
        ("min_words", "min_word_length", "max_symbol_ratio", "max_bullet_lines", "min_stop_words",
         "max_ellipsis_lines", "max_non_alphabetic_words", "max_removed_words")
    )  # fmt: skip
    loose["dclm"] = {"enabled": True, **none}
    part = filter_documents(frame, FilterConfig.model_validate(loose)).tables["parts"]
    assert len(part) == 1
    text, edits = part["text"][0].encode(), part["edits"].to_list()[0]
    assert b"LOUD" not in text
    assert b"a { fine line  here." in text
    for offset, byte in enumerate(text):
        origin = trace_back(edits, offset)
        assert byte == 10 if origin is None else raw[origin] == byte


def dclm_span() -> Any:
    from pipeline.filters.edited import SPAN

    return SPAN


def test_words_after_the_edit_are_of_the_edited_text() -> None:
    texts = texts_of(pl.Series(["ALL LOUD\nquiet words"]))
    found = dclm.edit(texts, tokenizer().words(texts), DclmConfig(enabled=True), tokenizer())
    assert isinstance(found.words, Words)
    assert np.diff(found.words.offsets).tolist() == [2]
