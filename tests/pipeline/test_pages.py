from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.config.extract import MODES, ExtractConfig
from pipeline.pages import extract_page, tidy
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


@pytest.mark.parametrize("mode", MODES)
def test_main_text_and_title(mode: str) -> None:
    page = extract_page(PAGE, "http://a.example/", ExtractConfig(mode=mode))
    assert page.reason is None
    assert page.title == "The mill"
    assert "Paragraph 4: the miller opens the sluice" in page.text
    winner = {"best": "gristmill", "resiliparse": "resiliparse"}
    assert page.extractor == winner.get(mode, "trafilatura")


def test_bytes_are_decoded_first() -> None:
    page = extract_page(PAGE.replace("miller", "Müller").encode("cp1252"), None, ExtractConfig())
    assert "the Müller opens" in page.text
    assert page.charset == "windows-1252"


def test_the_second_opinion_wins_where_it_has_twice_the_words() -> None:
    keep = extract_page(FORUM, None, ExtractConfig(mode="cascade"))
    assert keep.extractor == "resiliparse"
    assert "Answer 5" in keep.text
    never = extract_page(FORUM, None, ExtractConfig(mode="cascade", second_opinion=0.0))
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


@pytest.mark.parametrize(
    ("html", "value"),
    [
        (f"<p {' '.join(f'a{n}=b' for n in range(10_001))}>x", 10_001),
        ("<select>" + "<option>x" * 20_001, 20_001),
        ("".join(f"<font size={n}>" for n in range(1_500)) + "<p>x" * 1_400, 2_100_000),
    ],
)
def test_attributes_options_and_open_formatting_decide(html: str, value: int) -> None:
    page = extract_page(html, None, ExtractConfig())
    assert (page.reason, page.value) == ("extract.too_large", value)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("levels", [10, 300, 1000])
def test_depth_decides(mode: str, levels: int) -> None:
    html = f"<html><body>{'<div>' * levels}<p>{MARKER}</p>{'</div>' * levels}</body></html>"
    page = extract_page(html, None, ExtractConfig(mode=mode, max_depth=1002))
    assert MARKER in page.text
    if levels == 1000:
        page = extract_page(html, None, ExtractConfig(mode=mode, max_depth=1001))
        assert (page.reason, page.value) == ("extract.too_deep", 1002)


def test_lists_in_table_cells_are_values() -> None:
    rows = "".join(
        f"<tr><td>{day}</td><td><ul><li><span>{hours} to five</span></li></ul></td></tr>"
        for day, hours in (("Monday", "eight"), ("Thursday", "seven"))
    )
    html = PAGE.replace("</article>", f"<table>{rows}</table></article>")
    page = extract_page(html, None, ExtractConfig(mode="cascade"))
    row = next(line for line in page.text.split("\n") if "Thursday" in line)
    assert "seven to five" in row


def test_tidy() -> None:
    assert tidy("  a  \r\n\n\n\n  b\x00\t\n \n") == "a\n\n  b"


@pytest.mark.parametrize("mode", MODES)
def test_texts_do_not_depend_on_the_pages_before(mode: str) -> None:
    pages = [PAGE, FORUM, PAGE.replace("mill", "smithy"), f"<p>{MARKER}</p>" * 3]
    config = ExtractConfig(mode=mode)
    first = [extract_page(page, None, config) for page in pages]
    again = [extract_page(page, None, config) for _ in range(3) for page in reversed(pages)]
    assert again == [*reversed(first)] * 3


BANNER = (
    '<div id="cookie-consent" class="cookie-banner" role="dialog"><p>We use cookies to improve '
    "your experience. By using our website you agree to our use of cookies.</p><button>Accept all"
    "</button><button>Settings</button></div>"
)
MENU = (
    '<nav class="navbar"><ul>'
    + "".join(f'<li><a href="/{n}">Section {n}</a></li>' for n in range(8))
    + "</ul></nav>"
)
SIDE = (
    '<aside class="sidebar"><h3>Most read</h3><ul>'
    + "".join(f'<li><a href="/r{n}">Another story number {n}</a></li>' for n in range(6))
    + "</ul></aside>"
)
FOOT = (
    '<footer class="footer"><a href="/i">Imprint</a> <a href="/p">Privacy</a> &copy; 2026</footer>'
)


@pytest.mark.parametrize("first", [True, False])
def test_banners_and_menus_are_not_main_text(first: bool) -> None:
    around = PAGE.replace("<body>", f"<body>{BANNER if first else ''}{MENU}")
    page = extract_page(
        around.replace("</body>", f"{SIDE}{FOOT}{'' if first else BANNER}</body>"),
        None,
        ExtractConfig(),
    )
    assert "Paragraph 0" in page.text
    assert "Paragraph 4" in page.text
    for unwanted in ("cookies", "Accept all", "Section 3", "Another story", "Imprint"):
        assert unwanted not in page.text


MANUAL = """<html><head><title>Manual of the mill</title></head><body><div class="document">
<div class="body" role="main"><h1>Turning a wheel</h1>
<p>A wheel turns when water falls on its paddles. The function below takes the wheel and the water,
and says what the wheel did.</p>
<div class="highlight"><table class="highlighttable"><tr><td class="linenos"><pre>1
2
3
4</pre></td><td class="code"><pre>def turn(wheel, water):
    if not water:
        return None
    return wheel.turn(water)</pre></td></tr></table></div>
<p>The power is <script type="math/tex">P = \\rho g Q H</script> which for this mill, at its best,
is about 10<sup>4</sup> watts in spring and much less in a dry summer.</p>
<h2>Stopping it</h2><p>Close the sluice, and wait until the water in the channel has run off. The
wheel stops by itself within a minute or two.</p></div></div></body></html>"""


def test_code_formulas_and_numbers_keep_their_form() -> None:
    text = extract_page(MANUAL, None, ExtractConfig()).text
    code = "def turn(wheel, water):\n    if not water:\n        return None\n    return wheel"
    assert f"what the wheel did.\n\n{code}.turn(water)\n\nThe power is" in text
    assert "is $P = \\rho g Q H$ which" in text
    assert "about 10^4 watts" in text


def test_a_shell_has_the_text_of_its_scripts() -> None:
    story = "The mill stands by the river. Its wheel turns. It has ground corn for ages. " * 8
    script = f'<script type="application/ld+json">{{"articleBody": "{story}"}}</script>'
    page = extract_page(f"<div id=app>Loading</div>{script}", None, ExtractConfig())
    assert (page.extractor, page.text) == ("json_ld", story.strip())
    page = extract_page(PAGE.replace("</body>", f"{script}</body>"), None, ExtractConfig())
    assert page.extractor == "gristmill"
