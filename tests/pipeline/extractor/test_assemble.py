"""Kept blocks to text: paragraphs, lists, tables, listings."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.extractor.assemble import page_text
from pipeline.extractor.page import parse_page

LONG = "A sentence of some length that fills a cell of a table which arranges a page. " * 5


def text(html: str, drop: str | None = None) -> str:
    page = parse_page(html)
    kept = [drop is None or drop not in block for block in page.block_texts()]
    return page_text(page, np.array(kept, np.bool_))


def test_nothing_kept_is_no_text() -> None:
    assert text("<p>a", drop="a") == ""
    assert text("") == ""


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<h1>A</h1><p>b<p>c", "A\n\nb\n\nc"),
        ("<p>verse<br>verse<br><br>stanza", "verse\nverse\n\nstanza"),
        ("<dl><dt>a<dd>b<dt>c<dd>d</dl>e", "a\nb\nc\nd\n\ne"),
        ("<div>a<div>b</div></div>", "a\n\nb"),
    ],
)
def test_paragraphs_and_lines(html: str, expected: str) -> None:
    assert text(html) == expected


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>x</p><ul><li>a<li>b</ul><p>y", "x\n\n- a\n- b\n\ny"),
        ("<ul><li>a<ul><li>b<li>c</ul><li>d</ul>", "- a\n  - b\n  - c\n- d"),
        ("<ul><li>a<ul><li>b</ul>tail<li>d</ul>", "- a\n  - b\ntail\n- d"),
        ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
        ("<ol start=9><li>a<li>b<ul><li>c</ul><li>d</ol>", "9. a\n10. b\n  - c\n11. d"),
        ("<ol><li>a<li value=7>b<li>c</ol>", "1. a\n7. b\n8. c"),
        ("<ol reversed><li>a<li>b<li>c</ol>", "3. a\n2. b\n1. c"),
        ("<ol reversed start=-1><li>a<li>b</ol>", "-1. a\n-2. b"),
        ("<ol><li>1. a<li>2) b</ol>", "1. a\n2) b"),
        ("<ul><li>• a<li>- b<li>* c<li>-d</ul>", "• a\n- b\n* c\n- -d"),
        ("<ul><li><p>a<p>b</ul>", "- a\n\nb"),
        ("<ul><li><a href=x><span>a</span></a><li><div>b</div></ul>", "- a\n- b"),
        (f"<ul><li><p>{LONG}<p>{LONG}</ul>", f"{LONG.strip()}\n\n{LONG.strip()}"),
        ("<ul><li>a</ul><ul><li>b</ul>", "- a\n\n- b"),
        ("<ul><ul><li>a</ul></ul>", "- a"),
        ("<pre><ol><li>a = 1<li>b = 2</ol></pre>", "a = 1\nb = 2"),
        ("<li>a<li>b", "- a\n- b"),
    ],
)
def test_lists(html: str, expected: str) -> None:
    assert text(html) == expected


def test_a_numbered_item_keeps_its_number_when_others_are_dropped() -> None:
    assert text("<ol><li>a<li>gone<li>c</ol>", drop="gone") == "1. a\n3. c"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>c", "a\tb\n1\t2\n\nc"),
        ("<table><tr><td><th>a<th>b<tr><th>x<td><td>2</table>", "\ta\tb\nx\t\t2"),
        ("<table><tr><td>Friday<td><ul><li>six<li>to five</ul></table>", "Friday\tsix to five"),
        ("<table><tr><td>a<br>b<td><p>c<p>d</table>", "a b\tc d"),
        ("<table><tr><td>one<tr><td>two</table>", "one\ntwo"),
        (f"<table><tr><td>menu<td><p>{LONG}<p>x</table>", f"menu\n\n{LONG.strip()}\n\nx"),
        ("<table><tr><td><table><tr><td>a<td>b</table></table>", "a\tb"),
        ("<ul><li><table><tr><td>a<td>b</table></ul>", "a\tb"),
        ("<tr><td>a", "a"),
    ],
)  # fmt: skip
def test_tables(html: str, expected: str) -> None:
    assert text(html) == expected


def test_a_dropped_cell_leaves_no_column() -> None:
    assert text("<table><tr><td>a<td>gone<td>c</table>", drop="gone") == "a\tc"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>x</p><pre>  a\n    b</pre><p>y", "x\n\n  a\n    b\n\ny"),
        ("<pre><div>a</div><div>  b</div></pre><pre>c</pre>", "a\n  b\n\nc"),
        (
            "<table><tr><td class=line-number>1<td>if x:<tr><td class=line-number>2<td>    y"
            "</table>",
            "if x:\n    y",
        ),
        (
            "<table><tr><td class=gutter><div>1</div><div>2</div><td class=code><div><div>if x:"
            "</div><div>&nbsp;&nbsp;y</div></div></table>",
            "if x:\n  y",
        ),
    ],
)
def test_listings(html: str, expected: str) -> None:
    assert text(html) == expected


def test_many_levels_and_long_numbers() -> None:
    assert text("<ul><li>a" * 12).endswith("\n" + "  " * 7 + "- a")
    assert text("<ol start=9999999><li>a") == "9999999. a"
    assert text("<table><tr>" + "<td>" * 100 + "a<td>b<td>c</table>").lstrip("\t") == "a\tb\tc"
