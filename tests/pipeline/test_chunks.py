"""The compiled tokenizer cuts every run as spaCy does, or asks it."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import spacy
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import chunk_kernels as kernels
from pipeline.chunks import PLANE, ChunkTokenizer, rules_of

ENGLISH = spacy.blank("en")
SPACY = ENGLISH.tokenizer
CHUNKS = ChunkTokenizer()


def cut(chunk: str) -> list[str]:
    """The tokens; the special cases that spaCy finds across blanks are none of one run."""
    return [token.text for token in SPACY(chunk)]


def test_tokens_of_runs() -> None:
    assert CHUNKS.tokens('("state-of-the-art"),') == cut('("state-of-the-art"),')
    assert CHUNKS.tokens("") == []


SIGNS = st.sampled_from([
    "", *"([\"',;:?!)]./-+*^%$#@_~<>=&{}|\\`§°…—–“”’‘«»£€¶•", "'s", "’S", "..", "....", "……", "://",
    "--", "---", "——", "US$", "C$", "°C.", "n't", "'ll", ":)", ":-(", "('", "'')",
])  # fmt: skip
STEMS = st.sampled_from([
    "word", "Inc", "Jan", "don", "let", "Zürich", "can", "dont", "what", "ma", "a", "A", "AB", "v",
    "5", "42", "2019", "1.5", "10", "km", "km/h", "мм²", "http", "www", "example", "com", "x_y",
    "слово", "Слово", "λόγος", "漢字", "한국", "हिन्दी", "é", "ª", "º", "i.e.", "p.m", "192.168.0.1",
    "٣", "\u0301", "\ufe0f", "\u200b", "😀", "US", "C++", "mailto", "localhost", "8080",
])  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.lists(st.one_of(SIGNS, STEMS), min_size=1, max_size=8))
def test_runs_of_signs_and_words(parts: list[str]) -> None:
    chunk = "".join(parts)
    assert CHUNKS.tokens(chunk) == cut(chunk)


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=st.characters(blacklist_categories=["Cs", "Zs", "Zl", "Zp"]), max_size=12))
def test_any_runs(text: str) -> None:
    chunk = "".join(text.split())
    assert CHUNKS.tokens(chunk) == cut(chunk)


def test_every_special_case() -> None:
    for case in SPACY.rules:
        if not case.isspace():
            for chunk in (case, f"({case})", f"x/{case}", f"{case},y", f"“{case}”."):
                assert CHUNKS.tokens(chunk) == cut(chunk), chunk


def test_every_character_of_the_plane() -> None:
    """Alone, at either end and between letters and digits of both cases: by spaCy's expressions."""
    rules = rules_of(SPACY)
    find = (SPACY.find_prefix, SPACY.find_suffix)
    for code in [*range(0x21, 0x3400), *range(0xA000, PLANE, 7)]:
        character = chr(code)
        if character.isspace() or 0xD800 <= code < 0xE000:
            continue
        for text in (character + "a", "5" + character + "a", "b" + character + "B"):
            points = np.array([ord(c) for c in text])
            ends = (
                kernels.prefix(points, rules.kinds, 0, len(points)),
                kernels.suffix(points[:-1], rules.kinds, 0, len(points) - 1, rules.units),
            )
            assert ends == (find[0](text), find[1](text[:-1])), text
            inside = [(m.start(), m.end() - m.start()) for m in SPACY.find_infix(text) or []]
            found = kernels.infix(points, rules.kinds, 0, len(text) - 2, len(text))
            assert dict(inside).get(len(text) - 2, 0) == found, text


def test_most_runs_are_decided_here() -> None:
    runs = [
        "The",
        "3rd",
        "edition",
        "(2nd",
        "printing),",
        "foo.bar_baz(x)[0]",
        "cost",
        "$5.30;",
        "state-of-the-art",
    ]
    data = [run.encode() for run in runs]
    ends = np.cumsum([len(d) for d in data])
    begins = np.concatenate([[0], ends[:-1]])
    rules = rules_of(SPACY)
    counts, out = np.empty(len(runs), np.int64), np.empty(int(ends[-1]), np.int64)
    kernels.cut_runs(
        np.frombuffer(b"".join(data), np.uint8), begins, ends, rules.kinds, rules.units,
        rules.specials, rules.longest, counts, out,
    )  # fmt: skip
    assert (counts != kernels.REFUSED).all()


@pytest.mark.shared
@pytest.mark.slow
def test_every_run_of_real_texts(shared: Path) -> None:
    runs: set[str] = set()
    for path in sorted((shared / "data" / "sources").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                runs.update(json.loads(line)["text"].split())
    ordered = sorted(runs)
    data = [run.encode() for run in ordered]
    buffer = np.frombuffer(b"".join(data), np.uint8)
    ends = np.cumsum([len(d) for d in data])
    begins = np.concatenate([[0], ends[:-1]])
    places, counts = CHUNKS.cut(buffer, begins, ends)
    bounds = np.split(places, np.cumsum(counts)[:-1])
    assert len(ordered) > 300_000
    with ENGLISH.memory_zone():
        for run, piece, begin, ours in zip(ordered, data, begins, bounds, strict=True):
            at = [0, *(ours - begin).tolist()]
            assert [piece[a:b].decode() for a, b in pairwise(at)] == cut(run)
