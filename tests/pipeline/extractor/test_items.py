"""How deep lists nest is told from their tags, near to what the parser makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from pipeline.config.extract import ExtractConfig
from pipeline.extractor.bounds import page_cost
from pipeline.extractor.items import MOST_ITEMS
from pipeline.pages import extract_page

TAGS = [f"<{slash}{name}>" for name in ("li", "dt", "dd", "ul", "dl") for slash in ("", "/")]


@pytest.mark.parametrize(
    ("html", "depth"),
    [
        ("<ul>" + "<li>a" * 1000, 1),
        ("<dl>" + "<dt>a</dt><dd>b</dd>" * 1000, 1),
        ("<dl>" + "<dt>a<dd>b" * 1000, 1),
        ("<dl>" + "<dt>a<dd><ul><li>a<li>b</ul>" * 1000, 2),
        ("<dl>" + "<dd><li>a</dd>" * 1000, 2),
        ("<dl>" + "<dt>a</dt><li>b</li>" * 1000, 1),
        ("<li>x<dt>" * 1000, 1999),
        ("<li><ul></ul><dt><a></a>" * 1000, 2000),
        ("<dt><li></li></dd><li>" * 1000, 1999),
    ],
)
def test_items_nest_in_items_of_the_other_kind(html: str, depth: int) -> None:
    assert page_cost(html.encode()).depth == depth


def test_a_page_of_nested_items_is_too_deep() -> None:
    page = extract_page("<li>text of an item<dt>" * 90_000, None, ExtractConfig())
    assert page.reason == "extract.too_deep"
    assert page.value is not None
    assert page.value > MOST_ITEMS


def nesting(html: str) -> int:
    """How deep the parser nests, the body not counted."""

    def below(node: LexborNode) -> int:
        return max((1 + below(child) for child in node.iter(include_text=False)), default=0)

    body = LexborHTMLParser(html).body
    assert body is not None
    return below(body)


@given(st.lists(st.sampled_from(TAGS), max_size=60))
def test_no_list_is_deeper_than_twice_the_estimate(tags: list[str]) -> None:
    html = "".join(tags)
    assert nesting(html) <= 2 * page_cost(html.encode()).depth + 1
