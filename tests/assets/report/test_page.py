"""The report page: offline, escaped, well-formed, and complete where data is there."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from assets.report.charts import Line, histogram, line_chart, ticks
from assets.report.data import (
    Check,
    Example,
    Pair,
    ReportData,
    Stage,
    TokenRow,
    TracedToken,
)
from assets.report.html import marked
from assets.report.page import SECTIONS, render
from assets.spikes import Culprit, Spike

VOID = {"meta", "br", "circle", "rect", "line", "polyline"}
EVIL = "<script>alert(1)</script><img src=https://evil.example/x.png onerror=alert(2)>"


class Balance(HTMLParser):
    """Collects tags, and fails where an element is closed that is not the open one."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parse(html: str) -> Balance:
    parser = Balance()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    return parser


def sample(text: str = "The pond above the mill fills during the night.") -> ReportData:
    reasons = {f"gopher_quality.rule_{n}": 10 + n for n in range(10)}
    return ReportData(
        title="Two small snapshots, milled",
        lead=text,
        facts=[("pages", "880", "in two snapshots"), ("loss", "3.20", text)],
        funnel=[
            Stage("CRAWL-DEMO-01", "extracted_text", 1240, 470, {"record.request": 770}, "records"),
            Stage("CRAWL-DEMO-01", "filtered_text", 470, 325, reasons),
            Stage("CRAWL-DEMO-02", text, 100, 90, {text: 10}),
        ],
        kept=[Example("https://en.millpond.example/", text)],
        dropped=[Example(text, text, text, 3.0, 50.0)],
        pairs=[Pair("https://a.example/", f"one two {text} three", text, f"one {text} four", 0.91)],
        languages=[("en", 300, 1_400_000), (text, 14, 20_000)],
        hosts=[(text, 90, 60)],
        score_counts=[3, 5, 8, 13, 21],
        score_threshold=0.2,
        tokens=[TokenRow(text, 10, 1000, 3800)],
        losses=[(n, 8.0 / (n + 1) + 2) for n in range(1000)],
        held_out=[(100, 3.0), (200, 2.4)],
        unigram_bits_per_byte=2.7,
        early=text,
        spikes=[
            Spike(
                70,
                text,
                text,
                "7.3",
                "5.1",
                "0.7",
                "2.2",
                8,
                [
                    Culprit(11.5, True, text, "ab" * 16, text, text, 0.5, text, text),
                    Culprit(None, False, text, "", text, text, None, text),
                ],
                [text],
            )
        ],
        token=TracedToken(
            " mill", 512, text, 7, "ab" * 16, text, text, text, 100, 50, f"{text} The mill turns"
        ),
        prompt=text,
        continuation=text,
        checks=[Check(text, "warn", text)],
        times=[(text, 12.5)],
        commands=[(text, "gristmill up")],
    )


def test_page_is_well_formed_and_shows_every_section() -> None:
    page = parse(render(sample()))
    sections = [attrs["id"] for tag, attrs in page.seen if tag == "section"]
    assert sections == [name for name, _, _ in SECTIONS]
    assert [tag for tag, _ in page.seen if tag == "h1"] == ["h1"]


def test_no_text_of_a_page_becomes_markup() -> None:
    page = parse(render(sample(EVIL)))
    assert {tag for tag, _ in page.seen}.isdisjoint({"script", "img", "iframe", "object"})
    assert not [attrs for _, attrs in page.seen if any(name.startswith("on") for name in attrs)]
    assert "alert(1)" in "".join(page.text)


def test_page_loads_nothing() -> None:
    html = render(sample())
    page = parse(html)
    for tag, attrs in page.seen:
        assert tag not in {"link", "script", "img"}
        assert attrs.get("src") is None
        assert (attrs.get("href") or "#").startswith("#")
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


def test_excerpts_are_at_most_200_characters() -> None:
    data = replace(sample(), kept=[Example("https://a.example/", "word " * 400)])
    shown = re.findall(r'<p class="excerpt">(.*?)</p>', render(data))
    assert shown
    assert max(len(text) for text in shown if "<" not in text) == 200


def test_empty_data_leaves_sections_out() -> None:
    page = parse(render(ReportData("Nothing yet", "No stage has run.")))
    assert [tag for tag, _ in page.seen if tag == "section"] == []


def test_verdict_on_learning_follows_the_numbers() -> None:
    assert "has learned context" in render(sample())
    assert "train longer" in render(replace(sample(), unigram_bits_per_byte=2.0))


def test_points_that_are_not_finite_leave_the_curve_out() -> None:
    assert line_chart("t", [Line("a", [(1, math.nan)])], x_label="x", y_label="y") == ""
    chart = line_chart("t", [Line("a", [(1, math.inf), (2, 1.0)])], x_label="x", y_label="y")
    assert "inf" not in chart
    assert histogram("t", [0, 0]) == ""


@pytest.mark.parametrize(("low", "high"), [(0, 1), (2.01, 2.02), (0, 98765), (5, 5)])
def test_ticks_lie_within_and_are_few(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 1 <= len(found) <= 8
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in found)


def test_marked_shows_the_difference_even_far_into_the_text() -> None:
    same = "grain " * 500
    first, second = marked(f"{same} old <b>", f"{same} new <b>")
    assert "<mark>old</mark>" in first
    assert "<mark>new</mark>" in second
    assert "&lt;b&gt;" in first
