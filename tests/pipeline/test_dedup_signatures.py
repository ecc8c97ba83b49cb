"""Words, shingles and signatures against slow references."""

from __future__ import annotations

import unicodedata

import numpy as np
import polars as pl
import pytest
import regex
from datasketch import MinHash
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.dedup import DedupConfig
from pipeline.dedup.exact import text_keys
from pipeline.dedup.run import sign_part
from pipeline.dedup.shingles import shingle_hashes, shingle_sets, word_classes, word_hashes
from pipeline.dedup.signatures import EMPTY, signatures

SPACELESS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
WORD = regex.compile(
    rf"[[{SPACELESS}]&&[\p{{L}}\p{{M}}\p{{N}}]]|[[\p{{L}}\p{{M}}\p{{N}}_]--[{SPACELESS}]]+",
    regex.V1,
)
MIXED = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab Z9_-.,\n"),
        st.sampled_from("éÉßΣσİ日本語ไทยកမ्िー한\u0301\u200b２½"),
        st.characters(exclude_categories=["Cs", "Cn", "Co"]),
    ),
    max_size=60,
)


def words(text: str) -> list[str]:
    lowered: str = pl.Series([text]).str.to_lowercase()[0]
    return WORD.findall(lowered)  # type: ignore[no-any-return]


@settings(max_examples=200, deadline=None)
@given(st.lists(MIXED, min_size=1, max_size=6))
def test_words_are_those_of_the_definition(texts):
    hashes, offsets = word_hashes(pl.Series(texts, dtype=pl.String))
    expected = [words(text) for text in texts]
    assert np.diff(offsets).tolist() == [len(w) for w in expected]
    names = [w for ws in expected for w in ws]
    assert len(set(hashes.tolist())) == len(set(names))
    assert len(set(zip(names, hashes.tolist(), strict=True))) == len(set(names))


def test_words_of_known_texts():
    text = "Hello, WORLD_1 ÉTÉ! 日本語 ไทย コーヒー"
    assert words(text) == [
        "hello", "world_1", "été", "日", "本", "語", "ไ", "ท", "ย", "コ", "ー", "ヒ", "ー"
    ]  # fmt: skip
    hashes, _ = word_hashes(pl.Series([text, "hello"]))
    assert hashes[0] == hashes[-1]


def test_word_hashes_stay_what_they_are():
    # stored signatures rest on these values
    hashes, _ = word_hashes(pl.Series(["gristmill 日"]))
    assert [f"{h:016x}" for h in hashes.tolist()] == GOLDEN_WORDS
    shingles, _ = shingle_hashes(*word_hashes(pl.Series(["a b c d e f"])), 5)
    assert [f"{h:016x}" for h in shingles.tolist()] == GOLDEN_SHINGLES


GOLDEN_WORDS = ["77cfca0af08d64fd", "fe12c3e68e8014b3"]
GOLDEN_SHINGLES = ["e98d9c8491e00671", "d198bd99695ccb82"]


def test_classes_agree_with_python_where_both_know_a_character():
    table = word_classes()
    for point in [*range(0x3000), *range(0x4E00, 0x4F00), *range(0x1F600, 0x1F650)]:
        category = unicodedata.category(chr(point))
        if category != "Cn":  # the tables differ in their Unicode version
            assert bool(table[point]) == (category[0] in "LMN" or chr(point) == "_"), hex(point)


@pytest.mark.parametrize(
    ("text", "count"), [("a b c d", 0), ("a b c d e", 1), ("a b c d e f", 2), ("", 0)]
)
def test_a_text_has_shingles_from_n_words_on(text, count):
    _, starts = shingle_hashes(*word_hashes(pl.Series([text])), 5)
    assert starts.tolist() == [0, count]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=20).map(" ".join), min_size=1, max_size=5)
)
def test_sets_hold_each_shingle_once(texts):
    sets, starts = shingle_sets(pl.Series(texts, dtype=pl.String), 3)
    for k, text in enumerate(texts):
        w = text.split()
        expected = {tuple(w[i : i + 3]) for i in range(len(w) - 2)}
        mine = sets[starts[k] : starts[k + 1]]
        assert len(mine) == len(expected)
        assert (np.diff(mine.astype(object)) > 0).all()


def test_signatures_are_those_of_datasketch():
    texts = [" ".join(f"w{(i * k) % 97}" for i in range(10 + 30 * k)) for k in range(20)] + [
        "few words"
    ]
    hashes, offsets = shingle_hashes(*word_hashes(pl.Series(texts)), 5)
    mine = signatures(hashes, offsets, 112, 1)
    for d in range(len(texts)):
        theirs = MinHash(112, seed=1, scheme="affine32", hashfunc=lambda h: h)
        for h in hashes[offsets[d] : offsets[d + 1]].astype(np.uint32):
            theirs.update(h)
        assert (theirs.hashvalues == mine[d]).all()
    assert (mine[-1] == EMPTY).all()


def test_similarity_is_estimated_without_bias():
    a = [f"x{i}" for i in range(400)]
    texts = [" ".join(a), " ".join(a[:360] + [f"y{i}" for i in range(40)])]
    sets, starts = shingle_sets(pl.Series(texts), 5)
    first, second = (set(sets[starts[k] : starts[k + 1]].tolist()) for k in range(2))
    truth = len(first & second) / len(first | second)
    values = signatures(sets, starts, 4096, 7)
    assert (values[0] == values[1]).mean() == pytest.approx(truth, abs=0.03)


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("cafe\u0301 du port", True),
        ("ca\u200bf\u00e9  du\r\n port\n", True),
        ("caf\u00e9 du\u00a0port", True),
        ("Caf\u00e9 du port", False),
        ("cafe du port", False),
        ("caf\u00e9 duport", False),
    ],
)
def test_the_text_key_looks_past_how_it_is_written_down(other, same):
    first, second = text_keys(pl.Series(["caf\u00e9 du port", other]))
    assert (first == second) is same
    assert len(first) == 16


def test_a_signed_part_has_a_row_a_document_in_order():
    frame = pl.DataFrame({"doc_id": ["b", "a", "c"], "text": ["x y z", None, "p q r s t u"]})
    signed = sign_part(frame, DedupConfig())
    assert signed["doc_id"].to_list() == ["b", "a", "c"]
    assert signed["n_shingles"].to_list() == [0, 0, 2]
    assert signed.schema["signature"] == pl.Array(pl.UInt32, 112)
    assert signed["sequence"].to_list() == [0, 0, 0]
    assert sign_part(frame.clear(), DedupConfig()).height == 0
