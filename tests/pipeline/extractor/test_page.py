"""Properties of a page's arrays on any markup, and the bounds before the parser."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from pipeline.extractor.assemble import page_text
from pipeline.extractor.bounds import names_rights, page_cost
from pipeline.extractor.page import parse_page
from pipeline.extractor.vocabulary import (
    B_BOLD,
    B_CHARS,
    B_END,
    B_FIRST,
    B_LINK,
    B_NODE,
    B_START,
    B_TAG,
    N_COLUMNS,
    TAGS,
)

NAMES = str.split(
    "p div b a sup sub span pre code table tr td th ul ol li math msup mi annotation script style "
    "svg title template noscript textarea select option br img h1 xmp plaintext iframe foo-bar "
    "head body html frameset button nobr font dl dt"
)
ATTRIBUTES = (
    "", " class=gutter", " class='comment post-1'", " style='white-space:pre'", " hidden",
    " type=math/tex", " encoding=application/x-tex", " start=3", " aria-hidden=true", ' x="a>b"',
    " data-mathml=x", " '", ' "', " =", ' ""=', "/", ' alttext="x^2"',
)  # fmt: skip
TEXTS = (
    "word", " ", "\n", "1", "23", "&amp;", "&nbsp;", "&lt;p>", "ü", "漢字", "<!--", "-->", "</",
    "<", ">", "\x00", "\u00ad", "Two words.", "$", "</script>", "]]>", "<![CDATA[", "¶",
)  # fmt: skip

piece = st.one_of(
    st.builds("<{}{}>".format, st.sampled_from(NAMES), st.sampled_from(ATTRIBUTES)),
    st.builds("</{}>".format, st.sampled_from(NAMES)),
    st.sampled_from(TEXTS),
    st.text(max_size=5),
)
soup = st.lists(piece, max_size=60).map("".join)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(soup)
def test_any_markup_is_a_page(html: str) -> None:
    page = parse_page(html)
    blocks, n = page.blocks, len(page.parent)
    assert blocks.shape[1] == N_COLUMNS
    starts, ends = blocks[:, B_START], blocks[:, B_END]
    assert (starts < ends).all()
    assert (ends[:-1] <= starts[1:]).all()
    assert (starts >= 0).all()
    assert (ends <= len(page.text)).all()
    assert (page.parent[1:] < np.arange(1, n)).all()
    assert (page.parent >= 0).all()
    assert (blocks[:, [B_NODE, B_FIRST]] < n).all()
    assert (page.tag[blocks[:, B_NODE]] == blocks[:, B_TAG]).all()
    assert (blocks[:, [B_LINK, B_BOLD, B_CHARS]] >= 0).all()
    assert ((page.tag >= 0) & (page.tag < len(TAGS))).all()
    page.text.tobytes().decode("utf-8")  # no character is cut
    kept = np.ones(len(blocks), np.bool_)
    text = page_text(page, kept)
    assert "\x00" not in text
    words = [word for block in page.block_texts() for word in re.findall(r"[^\W\d_]{4,}", block)]
    assert [word for word in re.findall(r"[^\W\d_]{4,}", text)] == words


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(soup)
def test_every_word_of_a_block_is_in_the_parsed_page(html: str) -> None:
    page = parse_page(html)
    tree = LexborHTMLParser(html.encode("utf-8", "replace"))
    whole = re.sub(r"[\s\u00ad\ufeff]", "", tree.root.text()) + "x"  # of the only alttext
    for block in page.block_texts():
        for word in re.findall(r"[^\W\d_]+", block):
            assert word in whole


def test_a_page_is_read_alike_whatever_was_read_before() -> None:
    pages = ["<p>a<sup>2</sup>", "<math><mi>x</mi></math>y", "<pre>1\n2</pre><div class=x>z"]
    first = [parse_page(page).block_texts() for page in pages]
    assert [parse_page(page).block_texts() for page in reversed(pages)] == first[::-1]


@pytest.mark.parametrize(
    "html",
    [
        "<div>" * 2_000 + "x",
        "<b>" * 1_500 + "word<br>" * 3_000,
        "<ul><li>a" * 900,
        "<sup>a" * 1_500,
        "<ol reversed><li>a" * 900,
        "<table><tr><td>a" * 300,
        "<p>x<sup>" + "word " * 20_000 + "</sup>",
        "<pre>" + "<span class=lineno>1</span>x\n" * 3_000,
        "<script>" + '"@type":"Article",' * 20_000 + "</script><p>x",
        "<p>x" + "</span></b>" * 20_000,
        "<p>" + "&amp;" * 50_000,
        "<!--" * 20_000,
    ],
)
def test_large_and_deep_pages(html: str) -> None:
    page = parse_page(html)
    page_text(page, np.ones(len(page.blocks), np.bool_))


@pytest.mark.parametrize(
    ("html", "cost"),
    [
        ("<p>one<p>two<br><img src=a><li>x", (5, 0, 0, 1, 0)),
        ("<div><span>a</span><b>c</b></div>", (6, 2, 0, 0, 0)),
        ("<div></span></span><div>", (4, 2, 0, 0, 0)),
        ("<font size=1><font size=2><p>a<p>b", (4, 2, 4, 1, 0)),
        ("<b><b><b><b><b><p>a", (6, 5, 3, 0, 0)),
        ("<b>a</b><p>b<p>c", (4, 1, 0, 0, 0)),
        ("<a b=c d='e f' g = \"h i\" j/k>", (1, 1, 0, 5, 0)),
        ("<script>if (a<b c d e f</script>", (3, 2, 0, 0, 0)),
        ("<select><option>a<option>b</select>", (4, 1, 0, 0, 2)),
        ("<", (1, 0, 0, 0, 0)),
        ("a < b <1", (2, 0, 0, 0, 0)),
    ],
)
def test_cost(html: str, cost: tuple[int, ...]) -> None:
    assert tuple(page_cost(html.encode())) == cost


@pytest.mark.parametrize(
    "html", ["<b" * 30_000, '<b a="' * 30_000, "<font " * 30_000, "<a b='" * 30_000, "<script>" * 9]
)
def test_broken_tags_cost_little(html: str) -> None:
    assert page_cost(html.encode()).tags == html.count("<")


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<a rel=License>", True),
        ("LICENCE", True),
        ("http://CreativeCommons.org/", True),
        ('<META name=robots content="index, NoAI">', True),
        ("<meta name='tdm-reservation' content=1>", True),
        ("<meta content=noimageai name=robots>", True),
        ("noai tdm- <p title=noai>", False),
        ("licens licenc lice nse", False),
        ("", False),
        ("<meta", False),
    ],
)
def test_names_rights(html: str, expected: bool) -> None:
    assert names_rights(html.encode()) is expected
