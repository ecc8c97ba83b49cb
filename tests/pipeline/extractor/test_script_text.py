"""Text in the JSON of scripts."""

from __future__ import annotations

import json

import pytest
from selectolax.lexbor import LexborHTMLParser

from pipeline.extractor.script_text import script_text

STORY = "The mill stands by the river. Its wheel turns. It has ground corn for ages. " * 8


def text(*scripts: str) -> str:
    return script_text(LexborHTMLParser("<div id=root></div>" + "".join(scripts)))


def ld(value: object) -> str:
    return f'<script type="application/ld+json">{json.dumps(value)}</script>'


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"@type": "NewsArticle", "articleBody": STORY}, STORY.strip()),
        ({"@graph": [{"@type": "WebSite"}, {"@type": "Article", "articleBody": "One."}]}, "One."),
        ([{"@type": "Question", "text": "Why?", "acceptedAnswer": {"@type": "Answer",
          "text": "So."}}], "Why?\n\nSo."),
        ({"@type": ["Comment", "x"], "text": "Said."}, "Said."),
        ({"@type": "WebPage", "text": "no", "description": "no"}, ""),
        ({"articleBody": "<p>One.</p><p>Two &amp; three.</p>"}, "One.\n\nTwo & three."),
        ({"articleBody": "a < b"}, "a < b"),
        ({"articleBody": ["no", 1, None]}, ""),
        ({"articleBody": "  "}, ""),
    ],
)  # fmt: skip
def test_schema(value: object, expected: str) -> None:
    assert text(ld(value)) == expected


def test_equal_bodies_come_once() -> None:
    assert text(ld({"articleBody": "One."}), ld({"articleBody": "One."})) == "One."


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"props": {"page": {"html": f"<p>{STORY}</p><p>end.</p>"}}}, f"{STORY.strip()}\n\nend."),
        ({"short": "Too short. For. This."}, ""),
        ({"code": "a" * 1000}, ""),
        ({"nested": json.dumps({"a": STORY})}, ""),
    ],
)
def test_state_of_an_application(state: object, expected: str) -> None:
    assert text(f'<script type="application/json">{json.dumps(state)}</script>') == expected


def test_markup_in_a_string_literal() -> None:
    literal = json.dumps(f"<div><p>{STORY}</p></div>").replace("<", "\\u003c")
    assert text(f"<script>self.push([1,{literal}])</script>") == STORY.strip()
    assert text(f"<script>var a = {json.dumps(STORY)}</script>") == ""
    assert text(f"<script src=x>{literal}</script>") == ""


@pytest.mark.parametrize(
    "script",
    [
        '<script type="application/ld+json">{broken</script>',
        f'<script type="application/json">{"[" * 100_000}</script>',
        '<script type="application/json">7</script>',
        f"<script>{chr(34)}{'x' * 1000}</script>",
        '<script>"' + "\\q" * 500 + '"</script>',
    ],
)
def test_broken_scripts_have_no_text(script: str) -> None:
    assert text(script) == ""
