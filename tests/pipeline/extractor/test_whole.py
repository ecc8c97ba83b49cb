"""Tables and listings that a choice of blocks tears apart are put together."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.extractor.page import parse_page
from pipeline.extractor.whole import complete

TABLE = "<table><tr><th>Day<th>Hours<tr><td>Monday<td>nine to five<tr><td>Sunday<td>closed</table>"
CODE = "<p>Before.<pre>one\n two</pre><pre>three</pre><p>After.<p>Last."


def kept(html: str, p: list[float]) -> list[str]:
    """The texts kept of a page whose blocks above one half were chosen."""
    page = parse_page(html)
    answers = np.array(p, np.float32)
    whole = complete(
        page.blocks, page.parent, page.tag, page.bits, page.number, answers, answers > 0.5
    )
    return [text for text, keep in zip(page.block_texts(), whole, strict=True) if keep]


def test_a_table_kept_for_the_most_part_is_kept_whole() -> None:
    assert kept(TABLE, [0.1, 0.1, 0.9, 0.9, 0.9, 0.9]) == [
        "Day", "Hours", "Monday", "nine to five", "Sunday", "closed",
    ]  # fmt: skip


def test_a_table_kept_in_parts_stays_as_chosen() -> None:
    assert kept(TABLE, [0.1, 0.1, 0.1, 0.9, 0.1, 0.1]) == ["nine to five"]


def test_each_table_is_judged_by_itself() -> None:
    html = f"<table><tr><td>outer<td>{TABLE}</table>"
    assert kept(html, [0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9])[0] == "Day"


def test_a_table_that_arranges_the_page_stays_as_chosen() -> None:
    html = f"<table><tr><td>Menu<td>{'A long text of the page. ' * 20}</table>"
    assert len(kept(html, [0.1, 0.9])) == 1


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.9, 0.1, 0.1, 0.9, 0.9], ["Before.", "one\n two", "three", "After.", "Last."]),
        ([0.9, 0.1, 0.1, 0.1, 0.9], ["Before.", "one\n two", "three", "Last."]),
        ([0.1, 0.1, 0.1, 0.9, 0.1], ["one\n two", "three", "After."]),
        ([0.1, 0.1, 0.1, 0.1, 0.9], ["Last."]),
        ([0.9, 0.0, 0.1, 0.9, 0.9], ["Before.", "three", "After.", "Last."]),
    ],
)
def test_listings_next_to_kept_blocks(p: list[float], expected: list[str]) -> None:
    assert kept(CODE, p) == expected


def test_rows_of_code_are_a_listing() -> None:
    rows = "".join(
        f"<tr><td data-line-number={n}></td><td>{line}</td>" for n, line in enumerate("ab")
    )
    assert kept(f"<p>Text.<table>{rows}</table>", [0.9, 0.1, 0.9]) == ["Text.", "a", "b"]


def test_styled_text_is_no_listing() -> None:
    assert kept('<p>Text.<p style="white-space: pre-wrap">Menu', [0.9, 0.1]) == ["Text."]


def test_a_page_without_blocks() -> None:
    assert kept("<p></p>", []) == []
