from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.config.extract import ExtractConfig
from pipeline.pages import extract_page, nesting, tidy
from tests.pipeline.warcs import PAGE

MARKER = "deep marker sentence about the old mill and its wheel in the water"
FORUM = (
    "<html><body><div class='post'><p>How do I mend the wheel of a mill that stands in the river?"
    "</p></div>"
    + "".join(
        f"<div class='comments'><div class='comment'><p>Answer {n}: take the wheel out of the "
        "water, let the boards dry for a week and nail new ones across the frame.</p></div></div>"
        for n in range(6)
    )
    + "</body></html>"
)


@pytest.mark.parametrize("mode", ["cascade", "trafilatura", "resiliparse"])
def test_main_text_and_title(mode: str) -> None:
    page = extract_page(PAGE, "http://a.example/", ExtractConfig(mode=mode))
    assert page.reason is None
    assert page.title == "The mill"
    assert "Paragraph 4: the miller opens the sluice" in page.text
    assert page.extractor == ("resiliparse" if mode == "resiliparse" else "trafilatura")


def test_bytes_are_decoded_first() -> None:
    page = extract_page(PAGE.replace("miller", "Müller").encode("cp1252"), None, ExtractConfig())
    assert "the Müller opens" in page.text
    assert page.charset == "windows-1252"


def test_the_second_opinion_wins_where_it_has_twice_the_words() -> None:
    keep = extract_page(FORUM, None, ExtractConfig())
    assert keep.extractor == "resiliparse"
    assert "Answer 5" in keep.text
    never = extract_page(FORUM, None, ExtractConfig(second_opinion=0.0))
    assert never.extractor == "trafilatura"


def test_comments_can_be_dropped() -> None:
    page = extract_page(FORUM, None, ExtractConfig(mode="resiliparse", comments="drop"))
    assert "Answer" not in page.text


def test_an_unknown_mode_names_the_known_ones() -> None:
    with pytest.raises(ValidationError, match="mode 'fast' is unknown; use best, cascade"):
        ExtractConfig(mode="fast")


@pytest.mark.parametrize("html", ["", "<html><body></body></html>", "\ufffd\ufffd", "<", "&#0;"])
def test_a_page_without_text_is_empty(html: str) -> None:
    assert extract_page(html, None, ExtractConfig()).reason == "extract.empty"


def test_bytes_decide() -> None:
    html = PAGE.encode()
    assert extract_page(html, None, ExtractConfig(max_bytes=len(html))).reason is None
    page = extract_page(html + b" ", None, ExtractConfig(max_bytes=len(html)))
    assert (page.reason, page.value, page.threshold) == (
        "extract.too_large",
        len(html) + 1,
        len(html),
    )


def test_tags_decide() -> None:
    html = f"<p>{'<i>x</i>' * 100}</p>"
    assert extract_page(html, None, ExtractConfig(max_nodes=202)).reason is None
    page = extract_page(html, None, ExtractConfig(max_nodes=201))
    assert (page.reason, page.value) == ("extract.too_large", 202)


@pytest.mark.parametrize("mode", ["cascade", "trafilatura", "resiliparse"])
@pytest.mark.parametrize("levels", [10, 300, 1000])
def test_depth_decides(mode: str, levels: int) -> None:
    html = f"<html><body>{'<div>' * levels}<p>{MARKER}</p>{'</div>' * levels}</body></html>"
    page = extract_page(html, None, ExtractConfig(mode=mode, max_depth=1002))
    assert MARKER in page.text
    if levels == 1000:
        page = extract_page(html, None, ExtractConfig(mode=mode, max_depth=1001))
        assert (page.reason, page.value) == ("extract.too_deep", 1002)


@pytest.mark.parametrize(
    ("html", "depth"),
    [
        ("<p>one<p>two<br><img src=a><li>x", 0),
        ("<div><span>a</span><b>c</b></div>", 2),
        ("</div></div><div><div>", 2),
        ("<DIV><pre><table><tr><td></table></pre></DIV>", 3),
        ("a < b <!-- c --> <1>", 0),
    ],
)
def test_nesting(html: str, depth: int) -> None:
    assert nesting(html) == depth


def test_lists_in_table_cells_are_values() -> None:
    rows = "".join(
        f"<tr><td>{day}</td><td><ul><li><span>{hours} to five</span></li></ul></td></tr>"
        for day, hours in (("Monday", "eight"), ("Thursday", "seven"))
    )
    html = PAGE.replace("</article>", f"<table>{rows}</table></article>")
    page = extract_page(html, None, ExtractConfig())
    row = next(line for line in page.text.split("\n") if "Thursday" in line)
    assert "seven to five" in row


def test_tidy() -> None:
    assert tidy("  a  \r\n\n\n\n  b\x00\t\n \n") == "a\n\n  b"


def test_texts_do_not_depend_on_the_pages_before() -> None:
    pages = [PAGE, FORUM, PAGE.replace("mill", "smithy"), f"<p>{MARKER}</p>" * 3]
    config = ExtractConfig()
    first = [extract_page(page, None, config) for page in pages]
    again = [extract_page(page, None, config) for _ in range(3) for page in reversed(pages)]
    assert again == [*reversed(first)] * 3
