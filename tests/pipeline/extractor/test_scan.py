"""The compiled pass: what becomes text, where blocks end, what elements say."""

from __future__ import annotations

import pytest

from pipeline.extractor.page import Page, parse_page
from pipeline.extractor.vocabulary import (
    B_BOLD,
    B_BR,
    B_FIRST,
    B_IMG,
    B_LINK,
    B_LINKS,
    B_NODE,
    B_TAG,
    B_TITLE,
    B_WORDS,
    GROUPS,
    HIDDEN,
    NO_NUMBER,
    PREFORMATTED,
    TAGS,
)


def texts(html: str) -> list[str]:
    return parse_page(html).block_texts()


def tags(page: Page) -> list[str]:
    return [TAGS[code] for code in page.tag[1:]]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>a <b>b</b>\n\t c<p>d", ["a b c", "d"]),
        ("a<br>b<br><br>c", ["a", "b", "c"]),
        ("<div>one<div>two</div>three</div>", ["one", "two", "three"]),
        (
            "<p>a &amp; b &lt;i&gt; &quot;c&quot; &nbsp; d &copy; &amp;lt;",
            ['a & b <i> "c" d © &lt;'],
        ),
        ("<p>don&shy;key\ufeff", ["donkey"]),
        ("<p>a<img src=x>b<wbr>c", ["a bc"]),
        ("<button>a</button><button>b</button>", ["a b"]),
        ("<p> \n&nbsp; </p><p>x", ["x"]),
        ("<a>x<a>y", ["xy"]),
        ("", []),
        ("a\x00b", ["ab"]),
        ("<table><tr><td>a<td>b</table>", ["a", "b"]),
    ],
)
def test_text_and_blocks(html: str, expected: list[str]) -> None:
    assert texts(html) == expected


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>a<script>if (a<b) x='</p>'</script>b<style>p{}</style>c", ["abc"]),
        ("<p>a<script><!-- <script> b </script> c --></script>d", ["ad"]),
        ("<p>a<script>x", ["a"]),
        ("<p>a<style>p<b></styl></style>b", ["ab"]),
        ("<iframe><p>a</iframe>b<noembed>c</noembed><noframes>d</noframes>", ["b"]),
        ("<xmp>a<b>\n c</xmp>d", ["a<b>\n c", "d"]),
        ("<p>a<plaintext>b<i>c", ["a", "b<i>c"]),
        ("<p>a<plaintext>b</plaintext>c", ["a", "b", "c"]),
        ("<noscript><p>a</noscript><p>b", ["a", "b"]),
        ("<template><p>a</template>b", ["b"]),
        ("<p>a<!-- b --!> c --><!-->d<!--->e<!>f<?g?>h<!-- i", ["a c -->defh"]),
        ("<select><option>a</select><textarea>b</textarea>c", ["c"]),
        ("<p>a<svg><title>b</title><text>c</text><p>d", ["a", "d"]),
        ("<svg><input>x</input></svg><p>y", ["y"]),
        ("<svg><style></svg><p>x</style></svg><p>y", ["x", "y"]),
        ("<svg><style><![CDATA[</svg>]]></style><text>b</text></svg>c", ["c"]),
        ("<math><input>x</math>y", ["xy"]),
        ("<object>a</object><canvas>b</canvas><video>c</video>d", ["d"]),
    ],
)
def test_raw_text_and_what_is_skipped(html: str, expected: list[str]) -> None:
    assert texts(html) == expected


@pytest.mark.parametrize(
    "html",
    [
        '<p title="a < b > c">x',
        "<p title='a \"quoted\" >'>x",
        '<p hidden=no a"b=1 =c =x=2 ""=3 class>x',
        "<p a a b b>x",
        "<p a=1 a=2>x",
        "<p/a=b/c>x",
        "<p data-x=&quot;&gt;>x",
        '<p a="b"c="d">x',
    ],
)
def test_wild_attributes_cost_no_text(html: str) -> None:
    assert texts(f"{html}</p><div class=comment>y") == ["x", "y"]


def test_the_first_of_two_equal_attributes_counts() -> None:
    page = parse_page('<div class="comment" class="nav">x')
    assert page.bits[-1] & 1 << GROUPS.index("comment")
    assert not page.bits[-1] & 1 << GROUPS.index("nav")


def test_an_attribute_without_value_counts() -> None:
    assert parse_page("<div hidden>x").bits[-1] & HIDDEN


@pytest.mark.parametrize(
    ("attribute", "flag"),
    [
        ('style="color: red; display : none"', HIDDEN),
        ('style="display: block"', 0),
        ('aria-hidden="true"', HIDDEN),
        ('aria-hidden="false"', 0),
        ('style="white-space: pre-wrap"', PREFORMATTED),
        ('style="white-space: pre-line"', 0),
        ('style="disp"', 0),
    ],
)
def test_flags(attribute: str, flag: int) -> None:
    assert parse_page(f"<div {attribute}>x").bits[-1] & (HIDDEN | PREFORMATTED) == flag


def test_groups_of_class_id_role_and_itemprop() -> None:
    page = parse_page('<div class="mainNav_3 post-17" id="comments" role="search">x')
    found = {name for k, name in enumerate(GROUPS) if page.bits[-1] & 1 << k}
    assert {"nav", "article", "comment", "search", "content"} == found


def test_signatures_pass_over_digits() -> None:
    page = parse_page("<p class=post-1>a<p class=post-27>b<p class=reply-1>c<div class=post-1>d")
    a, b, c, d = page.sig[-4:]
    assert a == b
    assert len({a, c, d}) == 3


def test_elements_and_their_parents() -> None:
    page = parse_page("<div><p>a<b>b</b></p><img><ul><li>c</ul></div>")
    assert tags(page) == ["html", "body", "div", "p", "b", "ul", "li"]
    assert page.parent[1:].tolist() == [0, 1, 2, 3, 4, 3, 6]
    assert (page.parent[1:] < range(1, len(page.parent))).all()


def test_block_columns() -> None:
    page = parse_page(
        "<title>The old Mill</title><div><img><p>See <b>the mill</b> <a href=x>here</a>.<br>old"
    )
    first, second = page.blocks
    assert TAGS[first[B_TAG]] == "p"
    assert first[B_NODE] == first[B_FIRST]
    assert (first[B_WORDS], first[B_TITLE], first[B_IMG], first[B_LINKS]) == (4, 2, 1, 1)
    assert first[B_LINK] == len(" here")
    assert first[B_BOLD] == len(" the mill")
    assert (second[B_BR], second[B_TITLE]) == (1, 1)


def test_breaks_before_a_block() -> None:
    page = parse_page("a<br>b<br><br>c<br><br><br>d<p>e")
    assert page.blocks[:, B_BR].tolist() == [0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> a &amp; b </title><p>x", " a & b "),
        ("<svg><title>no</title></svg><p>x", None),
        ("<body><p>x<title>late</title>", "late"),
        ("<title>one</title><title>two</title>", "one"),
        ("<p>x", None),
    ],
)
def test_titles(html: str, title: str | None) -> None:
    assert parse_page(html).title == title


@pytest.mark.parametrize(
    ("html", "hints"),
    [
        ('<meta property="og:type" content="article">', 1),
        ('<meta content="product" property="og:type">', 2),
        ('<meta property="og:title" content="article">', 0),
        ('<div itemscope itemtype="https://schema.org/QAPage">', 4),
        ('<script type="application/ld+json">{"@type": ["ItemList", "x"]}</script>', 8),
        ('<script>{"@type":"Recipe"},{"@type" : "NewsArticle"}</script>', 65),
        ('<script>"@type"</script>', 0),
        ("<p>article", 0),
    ],
)
def test_hints(html: str, hints: int) -> None:
    assert parse_page(html).hints == hints


def test_numbers_of_lists() -> None:
    page = parse_page("<ol start=5><li>a<li value=-3>b<li value=x>c</ol><ol start=99999999><li>d")
    wanted = [n for n, tag in zip(page.number[1:], tags(page), strict=True) if tag in ("ol", "li")]
    assert wanted == [5, NO_NUMBER, -3, NO_NUMBER, NO_NUMBER, NO_NUMBER]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<pre>\n\n  a\n    b\n\n  c \n</pre>", ["  a\n    b\n\n  c"]),
        ("<pre>a<br>b<span>  c</span>\n</pre>d", ["a\nb  c", "d"]),
        ('<div style="white-space:pre"> a\n  b</div>', [" a\n  b"]),
        ("<pre>a&nbsp;&nbsp;b\tc", ["a  b\tc"]),
    ],
)
def test_preformatted_text(html: str, expected: list[str]) -> None:
    assert texts(html) == expected


@pytest.mark.parametrize(
    "html",
    [
        "<table><td class=linenos><pre>1\n2</pre><td class=code><pre>if x:\n    y</pre></table>",
        "<table><tr><td><pre> 9\n10</pre><td><pre>if x:\n    y</pre></table>",
        "<figure><table><tr><td class=gutter><pre><span class=line>1</span><br><span class=line>2"
        "</span></pre><td class=code><pre><span>if x:</span><br>    y</pre></table></figure>",
        "<table><tr><td class=line-number>1<td>if x:<tr><td class=line-number>2<td>    y</table>",
        "<table><tr><td data-line-number=1><td>if x:<tr><td data-line-number=2><td>    y</table>",
        "<pre><span class=lineno>1 </span>if x:\n<span class=lineno>2 </span>    y</pre>",
        "<pre><span class=ln>1</span>if x:\n<span class=ln>2</span>    y</pre>",
    ],
)
def test_line_numbers_are_no_text(html: str) -> None:
    assert "\n".join(texts(html)) == "if x:\n    y"


@pytest.mark.parametrize(
    "html",
    [
        "<pre>1\n3</pre>",
        "<pre>7</pre>",
        "<table><tr><td class=gutter>text<td>b</table>",
        "<pre><span class=hljs-number>1</span> + x</pre>",
        "<table><tr><td>1<td>b</table>",
    ],
)
def test_other_numbers_stay(html: str) -> None:
    assert texts(html)[0][0] in "17t"


def test_signs_of_heading_links_are_no_text() -> None:
    html = "<h1>Title<a href=#t>¶</a></h1><h2>Next <a href=#n>#</a></h2><p>C <a href=x>C#</a>"
    assert texts(html) == ["Title", "Next", "C C#"]


def test_the_place_of_closing_tags_that_open_nothing() -> None:
    assert texts("<div>a</p></b></td>b</div></div></body>c") == ["a", "b", "c"]
