"""The compiled pass gives the texts that the Polars expression gives."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.quality.plain_text import ODD, PLANES, lower_case, normalise, reference

HARD = [
    "", " ", "\0", " \n\t ", "A  B", "ΣΑΣ ΟΔΟΣ", "İstanbul IŞIK", "STRASSE Straße ẞ", "\u1e9e",
    "K\u212a \u212b", "Ⱥ Ⱦ", "DŽ Dž ǅ", "\u00a0x\u00a0", "a\u2028b\u3000c\u0085d", "a\x1cb\x7f",
    "</s>", "a </S> b", "__label__1", "__LABEL__ x", "__label__label__", "_ _label__", "< /s>",
    "\U00010400 \U0001d400 \U00020000", "\ufeffx", "e\u0301 É", "ΑΣ", "ᲀ Ა ა", "\x00a\x00",
]  # fmt: skip
CHARACTERS = "aB zÉßİıΣσςKẞ\u212aȺ Ⱦǅ\t\n\r\x00\x0b\x1c\u0085\u00a0\u2003\u3000_<>/sLabel𐐀"


def test_hard_texts() -> None:
    texts = pl.Series("text", [*HARD, None])
    assert normalise(texts).to_list() == reference(texts).to_list()
    assert normalise(texts).name == "text"


@given(st.lists(st.text(alphabet=CHARACTERS), max_size=8))
def test_texts_of_hard_characters(texts: list[str]) -> None:
    series = pl.Series(texts, dtype=pl.String)
    assert normalise(series).to_list() == reference(series).to_list()


@given(st.lists(st.text(), max_size=8))
def test_any_text(texts: list[str]) -> None:
    series = pl.Series(texts, dtype=pl.String)
    assert normalise(series).to_list() == reference(series).to_list()


@given(st.text(alphabet="aB \t\n\r\x00\x0b\u00a0\u2003\u3000"))
def test_blanks_are_squashed(text: str) -> None:
    plain = " ".join(text.replace("\0", " ").lower().split())
    assert normalise(pl.Series([text])).to_list() == [plain]


def test_every_character() -> None:
    points = [c for c in range(0x30000) if not 0xD800 <= c < 0xE000]
    texts = pl.Series([f"x{chr(c)}y" for c in points])
    assert normalise(texts).equals(reference(texts))
    assert (
        pl.Series(map(chr, range(PLANES, 0x110000)))
        .str.to_lowercase()
        .equals(pl.Series(map(chr, range(PLANES, 0x110000))))
    )
    assert (lower_case()[:0xD800] == ODD).sum() == 4  # İ, Σ, Ⱥ, Ⱦ


def test_slices_and_nulls_of_a_larger_column() -> None:
    texts = pl.Series(["First", None, "Second  One", "ΟΔΟΣ", "Last"])
    assert normalise(texts[1:4]).to_list() == ["", "second one", "οδος"]


@pytest.mark.shared
def test_texts_of_many_languages(shared: Path) -> None:
    texts = pl.read_ndjson(shared / "data/labels/language.jsonl.gz")["text"]
    assert normalise(texts).equals(reference(texts))
