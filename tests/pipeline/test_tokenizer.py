"""The tokenizer: same bytes, exact round trips, specials in text, blobs, sample, freeze."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.tokenizer import TokenizerConfig
from pipeline.encoding import encode_texts
from pipeline.errors import ConfigError, ContractError
from pipeline.token_costs import measure
from pipeline.tokenizer import (
    END_OF_TEXT,
    SPECIALS,
    check_frozen,
    is_ours,
    load_tokenizer,
    plan_sample,
    tokenizer_hash,
    train_tokenizer,
)

WORDS = "the mill by the river grinds barley, rye and wheat; it's 1234 years old. "
TEXTS = [WORDS, WORDS.upper(), "नदी के पास चक्की है। " * 3, "def f(x):\n    return x + 1\n\n" * 2]
SMALL = TokenizerConfig(vocab_size=300)

any_text = st.text(st.characters(exclude_categories=["Cs"]))
# what the cuts of pipeline.encoding look at: all white space, signs, letters of many widths
WHITE = " \t\n\u000b\u000c\u0085\u00a0\u1680\u180e\u2003\u200b\u2028\u202f\u205f\u3000\ufeff"
OTHERS = "a9.'\"-s\u2019\u2013\u0301\u00e9\u4e2d\u0915\u094d\u093f\u1ebf\U0001f642"
tricky_text = st.lists(
    st.sampled_from([*WHITE, *OTHERS, " the", "\n\n", "'s", "  ", END_OF_TEXT]), max_size=30
).map("".join)


@pytest.fixture(scope="module")
def trained() -> str:
    return train_tokenizer(TEXTS * 3, SMALL)[0]


def test_golden_output(trained: str) -> None:
    # another hash for the same texts: bump CODE_VERSION of pipeline.tokenizer, then this
    golden = "sha256:5f36dcde0923f586f02caacf3143a653fa609d22e669e7f8258775d0d02daabd"
    assert tokenizer_hash(trained) == golden


def test_same_texts_same_bytes_in_any_order(trained: str) -> None:
    again, report = train_tokenizer(reversed(TEXTS * 3), SMALL)
    assert again == trained
    size = sum(len(text.encode()) for text in TEXTS) * 3
    assert report == {"vocab_size": 300, "documents": 12, "bytes": size}


def test_special_tokens_have_the_first_ids(trained: str) -> None:
    tokenizer = load_tokenizer(trained)
    assert [tokenizer.token_to_id(name) for name in SPECIALS] == list(range(8))
    assert SPECIALS[0] == "<|endoftext|>"


@settings(max_examples=200, deadline=None)
@given(any_text | tricky_text)
def test_round_trip(trained: str, text: str) -> None:
    tokenizer = load_tokenizer(trained)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert not set(ids) & set(range(8))
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@settings(max_examples=300, deadline=None)
@given(st.lists(any_text | tricky_text, max_size=5))
def test_encoding_by_chunks_gives_the_ids_of_whole_texts(trained: str, texts: list[str]) -> None:
    tokenizer = load_tokenizer(trained)
    ids, lengths = encode_texts(trained, pl.Series(texts, dtype=pl.String))
    expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    assert ids.tolist() == [i for text in expected for i in text]
    assert lengths.tolist() == [len(text) for text in expected]


def test_another_tokenizer_is_given_whole_texts(trained: str) -> None:
    content = json.loads(trained)
    content["normalizer"] = {"type": "Lowercase"}
    foreign = json.dumps(content)
    assert is_ours(trained)
    assert not is_ours(foreign)
    ids, _ = encode_texts(foreign, pl.Series(["The Mill"]))
    assert load_tokenizer(trained).decode(ids.tolist()) == "the mill"


def test_pieces(trained: str) -> None:
    pre = load_tokenizer(trained).pre_tokenizer
    text = "It's 12345 x\n\n  y" + "a" * 100 + " हिन्दी"
    pieces = [text[a:b] for _, (a, b) in pre.pre_tokenize_str(text)]
    blob = [" y" + "a" * 47, "a" * 48, "a" * 5]
    assert pieces == ["It", "'s", " ", "123", "45", " x", "\n\n", " ", *blob, " हिन्दी"]


def test_a_vocabulary_larger_than_the_text_supports_names_the_size_reached() -> None:
    with pytest.raises(ConfigError, match=r"tokenizer.vocab_size is 5000, but .* support \d+ ent"):
        train_tokenizer(TEXTS, TokenizerConfig(vocab_size=5000))
    with pytest.raises(ConfigError, match="0 bytes of text in 0 documents support 264"):
        train_tokenizer([], TokenizerConfig(vocab_size=265))
    assert train_tokenizer([], TokenizerConfig(vocab_size=264))[1]["vocab_size"] == 264


def test_what_is_no_tokenizer_is_refused() -> None:
    with pytest.raises(ContractError, match=r"no tokenizer\.json"):
        load_tokenizer("{}")
    bare = json.dumps(
        {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    )
    with pytest.raises(ContractError, match="has no token"):
        load_tokenizer(bare)


def sample(
    sizes: dict[tuple[str, str], int], config: TokenizerConfig, each: int = 100
) -> dict[tuple[str, str], int]:
    rows = [
        (f"{source}{language}{i}", source, language, each)
        for (source, language), n in sizes.items()
        for i in range(n)
    ]
    names = ["doc_id", "source", "language", "n_bytes"]
    table = pl.DataFrame(rows, schema=names, orient="row")
    kept = table.filter(plan_sample(table, config))
    again = table.reverse().filter(plan_sample(table.reverse(), config))
    assert sorted(again["doc_id"]) == sorted(kept["doc_id"])
    counts = kept.group_by("source", "language").len().iter_rows()
    return {(source, language): n for source, language, n in counts}


def test_sample_by_size_keeps_everything_that_fits_the_budget() -> None:
    sizes = {("web", "en"): 30, ("web", "de"): 5, ("code", "und"): 7}
    assert sample(sizes, TokenizerConfig(sample_bytes=100_000)) == sizes


def test_sample_keeps_to_weights_and_lifts_small_languages() -> None:
    sizes = {("web", "en"): 900, ("web", "de"): 100, ("code", "und"): 500}
    config = TokenizerConfig(sample_bytes=40_000, weights={"web": 3, "code": 1}, language_alpha=0.5)
    # 300 documents of the web, shared as sqrt(900) : sqrt(100)
    assert sample(sizes, config) == {("web", "en"): 225, ("web", "de"): 75, ("code", "und"): 100}
    with pytest.raises(ConfigError, match=r"tokenizer\.weights names 'wb', .*"):
        sample(sizes, TokenizerConfig(weights={"wb": 1}))


def test_a_document_larger_than_the_budget_is_taken_alone() -> None:
    config = TokenizerConfig(sample_bytes=1_000)
    assert sample({("web", "en"): 5}, config, each=5_000) == {("web", "en"): 1}


def test_measure_counts_bytes_per_token(trained: str) -> None:
    documents = pl.DataFrame(
        {
            "doc_id": ["1", "2", "3"],
            "text": ["abcd" * 3, "नदी", ""],
            "source": [None, "notes", "notes"],
            "language": ["en", "hi", None],
        }
    )
    report = measure(trained, documents)
    _, lengths = encode_texts(trained, documents["text"])
    assert report["bytes"] == 12 + 9
    assert report["tokens"] == sum(lengths)
    assert report["by_language"]["hi"]["bytes_per_token"] == round(9 / int(lengths[1]), 4)
    assert set(report["by_source"]) == {"web", "notes"}
    assert 0 < report["vocabulary_used"] < 0.2


def test_a_trained_tokenizer_is_frozen(trained: str) -> None:
    new = tokenizer_hash(trained)
    assert new.startswith("sha256:")
    check_frozen(None, new, unfreeze=False)
    check_frozen(new, new, unfreeze=False)
    check_frozen("sha256:old", new, unfreeze=True)
    with pytest.raises(ConfigError, match="token_shards/A would become stale") as caught:
        check_frozen("sha256:old", new, unfreeze=False, stale=["token_shards/A"])
    assert "tokenizer.unfreeze: true" in (caught.value.hint or "")


@pytest.mark.parametrize("weights", [{"web": -1.0}, {"web": float("nan")}, {"web": 0.0}])
def test_absurd_weights_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        TokenizerConfig(weights=weights)


@pytest.mark.shared
def test_case_one_blob(shared: Path) -> None:
    lines = gzip.decompress((shared / "cases/tokenizer/one-blob.jsonl.gz").read_bytes()).split(
        b"\n"
    )
    texts = [json.loads(line)["text"] for line in lines if line]
    config = TokenizerConfig(vocab_size=600)
    seconds = []
    for given_texts in (texts[:-1], texts[:-1], texts):
        start = time.perf_counter()
        train_tokenizer(given_texts, config)
        seconds.append(time.perf_counter() - start)
    assert len(texts[-1]) > 200_000
    assert seconds[2] <= 3 * seconds[1] + 1


@pytest.mark.shared
def test_case_round_trip(shared: Path, trained: str) -> None:
    tokenizer = load_tokenizer(trained)
    for line in (shared / "cases/tokenizer/round-trip.jsonl").read_text().splitlines():
        text = json.loads(line)["text"].replace("\r\n", "\n").replace("\r", "\n")
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text
