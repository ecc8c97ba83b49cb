"""Which blocks are kept: the rule of expected F1, comments, and the files of models."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.extract import SHIPPED_MODEL
from pipeline.errors import GristmillError, UsageError
from pipeline.extractor import features, forest, select
from pipeline.extractor.choice import REPEATED_WORDS, keep, once
from pipeline.extractor.page import parse_page
from pipeline.extractor.vocabulary import B_WORDS

ARTICLE = '<meta property="og:type" content="article">'
THREAD = """<html><head>{head}</head><body><article>
<p>The story has a first paragraph with quite enough words in it.</p></article>
<section class="comments"><p>I disagree with the story, and here is why I do so.</p></section>
</body></html>"""


def constant(value: float) -> forest.Forest:
    """A forest of one leaf: the same answer for any block."""
    empty = np.zeros(0)
    columns = (empty, empty, [0], empty, empty, [value])
    types = forest.FIELDS.values()
    return forest.Forest(*(np.array(c, t) for c, t in zip(columns, types, strict=True)))


def kept(p: list[float], words: list[int]) -> list[bool]:
    return [bool(b) for b in keep(np.array(p, np.float32), np.array(words))]


def test_sure_pages_are_cut_near_one_half() -> None:
    assert kept([0.99, 0.98, 0.55, 0.02], [50, 50, 50, 50]) == [True, True, True, False]
    assert kept([0.99, 0.98, 0.40, 0.02], [50, 50, 50, 50]) == [True, True, False, False]


def test_unsure_pages_keep_more() -> None:
    assert kept([0.3, 0.3, 0.05], [20, 20, 20]) == [True, True, False]


def test_something_is_always_kept_and_equals_are_kept_together() -> None:
    assert kept([0.001], [5]) == [True]
    assert kept([], []) == []
    assert kept([0.5, 0.5, 0.5], [1, 9, 1]) == [True, True, True]


def test_nothing_is_kept_where_nothing_is_likely() -> None:
    assert kept([0.0, 0.0], [5, 5]) == [False, False]


def test_text_said_twice_is_taken_once() -> None:
    p = np.array([0.9, 0.7, 0.9, 0.8, 0.9], np.float32)
    words = np.array([10, 10, 10, 9, 9])
    text = np.array([1, 1, 1, 2, 2])
    assert once(p, words, text) == pytest.approx([0.9, 0, 0, 0.8, 0.9])
    assert p[1] == pytest.approx(0.7)  # what was given is left alone
    assert once(p, words, np.arange(5)) is p


@pytest.mark.parametrize(("words", "n"), [(REPEATED_WORDS, 1), (REPEATED_WORDS - 1, 2)])
def test_long_copies_are_dropped_and_short_ones_stay(words: int, n: int) -> None:
    line = " ".join(f"word{k}" for k in range(words))
    page = parse_page(f"<p>{line}</p><p>{line}</p>")
    model = select.unpack(select.pack(constant(1.0), constant(1.0)), "m")
    assert select.kept_blocks(page, "keep", model).tolist() == [True, True][:n] + [False] * (2 - n)


@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 40)), min_size=1, max_size=7))
@settings(max_examples=100, deadline=None)
def test_no_other_choice_of_blocks_is_better(blocks: list[tuple[int, int]]) -> None:
    p = np.array([percent / 100 for percent, _ in blocks], np.float32)
    words = np.array([words for _, words in blocks])
    weight = words + 0.5

    def expected(chosen: np.ndarray) -> float:
        return float(2 * (p * weight)[chosen].sum() / (weight[chosen].sum() + (p * weight).sum()))

    ours = expected(np.flatnonzero(keep(p, words)))
    sizes = range(1, len(p) + 1)
    best = max(expected(np.array(c)) for n in sizes for c in combinations(range(len(p)), n))
    assert ours == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    ("head", "comments", "dropped"),
    [
        (ARTICLE, "drop", True),
        (ARTICLE, "keep", False),
        ("", "drop", False),
        (ARTICLE + '<div itemtype="https://schema.org/QAPage">', "drop", False),
    ],
)
def test_comments_are_dropped_from_articles_alone(head: str, comments: str, dropped: bool) -> None:
    page = parse_page(THREAD.replace("{head}", head))
    model = select.unpack(select.pack(constant(1.0), constant(1.0)), "m")
    keeps = select.kept_blocks(page, comments, model)  # type: ignore[arg-type]
    assert keeps.tolist() == [True, not dropped]


def test_a_page_without_text_keeps_nothing() -> None:
    model = select.unpack(select.pack(constant(1.0), constant(1.0)), "m")
    assert select.kept_blocks(parse_page(""), "keep", model).shape == (0,)


def test_the_second_forest_decides() -> None:
    page = parse_page("<p>some text</p>")
    model = select.unpack(select.pack(constant(5.0), constant(-5.0)), "m")
    assert select.probabilities(page, model) == pytest.approx(1 / (1 + np.exp(5)), abs=1e-4)


def test_a_model_of_other_features_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = select.pack(constant(1.0), constant(1.0))
    monkeypatch.setattr(features, "NAMES", (*features.NAMES[1:], "new"))
    with pytest.raises(GristmillError, match=r"m\.npz is no extractor model of this version"):
        select.unpack(packed, "m.npz")
    with pytest.raises(GristmillError, match="of this version"):
        select.unpack(forest.dump({}), "m.npz")


def test_a_model_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    page = parse_page("<p>some text</p>")
    with pytest.raises(UsageError, match=r"m\.npz cannot be read"):
        select.load_model(path)
    with pytest.raises(UsageError, match=r"cannot be read \(Is a directory\)"):
        select.load_model(tmp_path)
    for moment, value in enumerate((1.0, -1.0)):
        path.write_bytes(select.pack(constant(value), constant(value)))
        os.utime(path, ns=(0, moment))
        assert (select.load_model(path)(page) > 0.5).all() == (value > 0)
    assert select.load_model(path) is select.load_model(path)


def test_the_shipped_model() -> None:
    model = select.load_model()
    assert SHIPPED_MODEL.stat().st_size < 200_000
    page = parse_page(THREAD.replace("{head}", ""))
    p = model(page)
    assert p.shape == (2,)
    assert p.dtype == np.float32
    assert ((p > 0) & (p < 1)).all()
    assert select.kept_blocks(page).any()
    assert page.blocks[:, B_WORDS].tolist() == [12, 12]
