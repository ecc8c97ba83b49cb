"""Tokens equal spaCy's, whatever the table has seen; scripts without blanks are segmented."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import word_kernels as kernels
from pipeline.words import Tokenizer, Words, series_of, texts_of, tokenizer

SPACY = spacy.blank("en")
SPACY.add_pipe("sentencizer")


def reference(text: str) -> list[str]:
    return [token.text for token in SPACY.tokenizer(text) if token.text.strip()]


def check(words: Words, expected: list[list[str]]) -> None:
    """The tokens of each document are those expected: numbers stand for tokens one to one."""
    numbers = [[words.number(token) for token in tokens] for tokens in expected]
    assert [words.tokens[a:b].tolist() for a, b in pairwise(words.offsets)] == numbers


TEXTS = [
    'He said: "Don\'t go (yet), Mr. Smith!" It\'s 3.5km -- isn\'t it?',
    "U.S. state-of-the-art e.g. foo_bar, www.example.com/x?y=1; a@b.example",
    "tabs\tand\u00a0no-break\u2003blanks\x1cand\x85others",
    "", "   ", "ends in blanks \n ", "naïve café Œuvre größer",
]  # fmt: skip


def test_tokens_are_those_of_spacy() -> None:
    check(tokenizer().words(texts_of(pl.Series(TEXTS))), [*map(reference, TEXTS)])


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="aBé1.,'\"-! \t\n\u00a0…", max_size=60))
def test_tokens_are_those_of_spacy_on_any_text(text: str) -> None:
    check(tokenizer().words(texts_of(pl.Series([text]))), [reference(text)])


def test_what_is_known_of_tokens() -> None:
    words = tokenizer().words(texts_of(pl.Series(["Zürich 42 … ? » a. — %x"])))
    known = words.vocabulary
    found = {
        token: (known.lengths[words.number(token)], known.flags[words.number(token)])
        for token in ("Zürich", "42", "…", "?", "»", "%")
    }
    word, letter, end, mark = (
        kernels.HAS_WORD_CHARACTER, kernels.HAS_LETTER, kernels.ENDS_SENTENCE,
        kernels.IS_PUNCTUATION,
    )  # fmt: skip
    assert found == {
        "Zürich": (6, word | letter), "42": (2, word), "…": (1, mark), "?": (1, end | mark),
        "»": (1, mark), "%": (1, mark),
    }  # fmt: skip
    assert words.number("Geneva") == -1
    assert words.numbers(["Geneva", "42"]).tolist().count(1) == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["Foo", "bar", ".", "?", "!)", "(", "…", " ", "  ", "\t", "。"])))
def test_sentences_are_those_of_spacy(parts: list[str]) -> None:
    text = " ".join(parts).strip()
    words = tokenizer().words(texts_of(pl.Series([text])))
    expected = sum(1 for _ in SPACY(text).sents)
    assert words.breaks[0] == max(expected - 1, 0)


def test_a_small_table_is_emptied_and_gives_the_same() -> None:
    small = Tokenizer(most_known=4)
    for text in [*TEXTS, *TEXTS]:
        check(small.words(texts_of(pl.Series([text]))), [reference(text)])


def test_memory_is_bounded_over_any_number_of_documents() -> None:
    small = Tokenizer(most_known=3000)
    sizes = set()
    for k in range(40):
        text = " ".join(f"w{n} (x{n})" for n in range(500 * k, 500 * k + 500))
        words = small.words(texts_of(pl.Series([text])))
        assert len(words.tokens) == 2000
        assert small.known <= 3000 + 1000 + 2000  # the bound, and the runs and tokens of a batch
        sizes.add(len(words.table))
    assert len(sizes) == 1


def test_words_of_a_batch_outlive_the_table() -> None:
    small = Tokenizer(most_known=1)
    words = small.words(texts_of(pl.Series(["one two"])))
    small.words(texts_of(pl.Series(["three four five"])))
    check(words, [["one", "two"]])
    assert words.number("five") == -1


def test_null_is_empty_and_slices_work() -> None:
    column = pl.Series("t", ["zero", "eins", None, "zwei"])[1:]
    check(tokenizer().words(texts_of(column)), [["eins"], [], ["zwei"]])
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
    lengths = words.vocabulary.lengths[words.tokens]
    assert lengths.sum() == len(text)
    assert low < lengths.mean() < high
    assert words.spacing[0] > 0


def test_a_few_such_characters_in_another_text_are_left_alone() -> None:
    text = "The words 東京タワー stand in an English sentence of some length, as names do."
    words = tokenizer().words(texts_of(pl.Series([text])))
    assert words.spacing[0] == 0
    check(words, [reference(text)])


KANA_TEXT, UNSPACED_TEXT = "これは日本語の文章です。" * 4, "这是一个中文句子。" * 4


def _described(known: Tokenizer, text: str) -> tuple[list[int], list[int], int]:
    """Lengths and flags of the tokens of a text, and its sentence breaks."""
    words = known.words(texts_of(pl.Series([text])))
    vocabulary = words.vocabulary
    columns = (vocabulary.lengths[words.tokens], vocabulary.flags[words.tokens])
    return columns[0].tolist(), columns[1].tolist(), int(words.breaks[0])


def test_a_run_is_another_in_a_script_without_blanks() -> None:
    # hashes that begin with the sum of mode and offset take `-`, `,` and `/` of these for `.`
    plain, signs = "One . Two . 1 2 3 a b c", "。 - 。 , 。 / 。 1 2 a b"
    for others in (KANA_TEXT, UNSPACED_TEXT):
        other = others + signs
        alone = [_described(Tokenizer(), text) for text in (plain, other)]
        for texts in ([plain, other], [other, plain]):
            one = Tokenizer()
            found = {text: _described(one, text) for text in texts}
            assert [found[plain], found[other]] == alone
