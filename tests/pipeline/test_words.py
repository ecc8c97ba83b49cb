"""Tokens equal spaCy's, whatever the table has seen; scripts without blanks are segmented."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunks import PLAIN, ChunkTokenizer
from pipeline.segment import segment
from pipeline.words import Tokenizer, Words, series_of, texts_of, tokenizer

SPACY = spacy.blank("en")
SPACY.add_pipe("sentencizer")
CHUNKS = ChunkTokenizer()


def tokens(words: Words) -> list[list[str]]:
    names = list(words.index)
    return [[names[t] for t in words.tokens[a:b]] for a, b in pairwise(words.offsets)]


def reference(text: str) -> list[str]:
    return [token.text for token in SPACY.tokenizer(text) if token.text.strip()]


TEXTS = [
    'He said: "Don\'t go (yet), Mr. Smith!" It\'s 3.5km -- isn\'t it?',
    "U.S. state-of-the-art e.g. foo_bar, www.example.com/x?y=1; a@b.example",
    "tabs\tand\u00a0no-break\u2003blanks\x1cand\x85others",
    "", "   ", "ends in blanks \n ", "naïve café Œuvre größer",
]  # fmt: skip


def test_tokens_are_those_of_spacy() -> None:
    assert tokens(tokenizer().words(texts_of(pl.Series(TEXTS)))) == [*map(reference, TEXTS)]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="aBé1.,'\"-! \t\n\u00a0…", max_size=60))
def test_tokens_are_those_of_spacy_on_any_text(text: str) -> None:
    assert tokens(tokenizer().words(texts_of(pl.Series([text])))) == [reference(text)]


SIGNS = st.sampled_from(["", *"([\"',;:?!)].", "'s", '."', '?"', "),", ".)", "-", "n't"])
STEMS = st.sampled_from(["word", "Inc", "Jan", "don", "let", "Zürich", "can", "dont", "what", "ma"])


@settings(max_examples=300, deadline=None)
@given(st.tuples(SIGNS, STEMS, SIGNS, STEMS, SIGNS, SIGNS))
def test_the_short_way_gives_the_same_cuts(parts: tuple[str, ...]) -> None:
    chunk = "".join(parts)
    assert list(CHUNKS.tokens(chunk)) == [token.text for token in SPACY.tokenizer(chunk)]


def test_the_short_way_is_taken() -> None:
    assert PLAIN.fullmatch('("Well-known"),') is None
    assert PLAIN.fullmatch("(well-known),") is not None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["Foo", "bar", ".", "?", "!)", "(", "…", " ", "  ", "\t", "。"])))
def test_sentences_are_those_of_spacy(parts: list[str]) -> None:
    text = " ".join(parts).strip()
    words = tokenizer().words(texts_of(pl.Series([text])))
    expected = sum(1 for _ in SPACY(text).sents)
    assert words.breaks[0] == max(expected - 1, 0)


def test_a_small_table_is_emptied_and_gives_the_same() -> None:
    small = Tokenizer(most_runs=4)
    for text in [*TEXTS, *TEXTS]:
        assert tokens(small.words(texts_of(pl.Series([text])))) == [reference(text)]


def test_null_is_empty_and_slices_work() -> None:
    column = pl.Series("t", ["zero", "eins", None, "zwei"])[1:]
    assert tokens(tokenizer().words(texts_of(column))) == [["eins"], [], ["zwei"]]
    assert series_of(texts_of(column)).to_list() == ["eins", "", "zwei"]


SCRIPTS = {
    "zh": ("博物馆灯塔钟楼图书河水。港口码头工厂老人孩子铁匠。" * 3, 1.2, 4),
    "ja": ("今日は天気がいいので、公園に行きました。" * 3, 1.5, 5),
    "th": ("ห้องสมุดตลาดร้านค้าโรงเรียนถนนชาวประมง" * 3, 2, 8),
    "km": ("ភាសាខ្មែរជាភាសាផ្លូវការរបស់កម្ពុជា" * 3, 2, 12),
    "lo": ("ພາສາລາວເປັນພາສາທາງການຂອງປະເທດລາວ" * 3, 2, 12),
    "my": ("မြန်မာဘာသာစကားသည်မြန်မာနိုင်ငံ၏" * 3, 2, 14),
}


@pytest.mark.parametrize("code", SCRIPTS)
def test_scripts_without_blanks_have_words(code: str) -> None:
    text, low, high = SCRIPTS[code]
    words = tokenizer().words(texts_of(pl.Series([text])))
    found = tokens(words)[0]
    assert "".join(found) == text
    assert low < sum(map(len, found)) / len(found) < high
    assert words.spacing[0] > 0


def test_a_few_such_characters_in_another_text_are_left_alone() -> None:
    text = "The words 東京タワー stand in an English sentence of some length, as names do."
    words = tokenizer().words(texts_of(pl.Series([text])))
    assert words.spacing[0] == 0
    assert tokens(words)[0] == reference(text)


@given(st.text(max_size=50), st.booleans())
def test_segments_join_to_the_text(text: str, kana: bool) -> None:
    chunk = "".join(text.split())
    assert "".join(segment(chunk, kana=kana)) == chunk
