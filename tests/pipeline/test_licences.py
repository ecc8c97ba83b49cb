from __future__ import annotations

import pytest
from selectolax.lexbor import LexborHTMLParser

from pipeline.bodies import Http
from pipeline.extractor.bounds import names_rights
from pipeline.licences import NO_MARKS, Marks, licence_id, page_marks, reservations

BY = "https://creativecommons.org/licenses/by/4.0/"


def marks(html: str, url: str | None = "https://a.example/p/") -> Marks:
    return page_marks(LexborHTMLParser(html), url) if names_rights(html.encode()) else NO_MARKS


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (BY, "CC-BY-4.0"),
        ("http://creativecommons.org/licenses/by-nc-sa/3.0/de/deed.en", "CC-BY-NC-SA-3.0-DE"),
        ("//creativecommons.org/licenses/by-sa/4.0/legalcode", "CC-BY-SA-4.0"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "CC-PDM-1.0"),
        ("CC BY-SA 4.0", "CC-BY-SA-4.0"),
        ("CC0", "CC0-1.0"),
        ("https://www.apache.org/licenses/LICENSE-2.0.html", "Apache-2.0"),
        ("https://spdx.org/licenses/MIT.html", "MIT"),
        ("https://opensource.org/license/bsd-3-clause/", "bsd-3-clause"),
        ("https://a.example/terms", "https://a.example/terms"),
        ("  ", None),
    ],
)
def test_licence_ids(value: str, expected: str | None) -> None:
    assert licence_id(value) == expected


@pytest.mark.parametrize(
    ("html", "licence", "source"),
    [
        (f'<link rel="license" href="{BY}">', "CC-BY-4.0", "link"),
        (f'<a rel="noopener license" href="{BY}">text</a>', "CC-BY-4.0", "link"),
        ('<a rel="license" href="../terms">t</a>', "https://a.example/terms", "link"),
        (f'<meta name="dcterms.license" content="{BY}">', "CC-BY-4.0", "meta"),
        (
            f'<script type="application/ld+json">{{"@graph": [{{"license": "{BY}"}}]}}</script>',
            "CC-BY-4.0",
            "json-ld",
        ),
        (
            f'<script type="application/ld+json">{{"license": {{"@id": "{BY}"}}}}</script>',
            "CC-BY-4.0",
            "json-ld",
        ),
        (f'<p>Text is under <a href="{BY}deed.de">CC</a>.</p>', "CC-BY-4.0", "anchor"),
        ('<a rel="license" href="http://[::1/by">t</a>', "http://[::1/by", "link"),
        ('<script type="application/ld+json">{"license": broken</script>', None, None),
        ("<p>No licence is named here, only the word license.</p>", None, None),
    ],
)
def test_each_kind_of_mark(html: str, licence: str | None, source: str | None) -> None:
    assert (marks(html).licence, marks(html).licence_source) == (licence, source)


def test_a_page_that_links_several_deeds_is_about_licences() -> None:
    other = BY.replace("/by/", "/by-sa/")
    assert marks(f'<a href="{BY}">a</a><a href="{other}">b</a>').licence is None
    assert marks(f'<a href="{BY}">a</a><a href="{BY}deed.fr">b</a>').licence == "CC-BY-4.0"


def test_reservations_of_page_and_header_are_joined() -> None:
    html = (
        '<meta name="robots" content="index, NoAI"><meta name="tdm-reservation" content="1">'
        '<meta name="tdm-policy" content="https://a.example/tdm.json">'
    )
    http = Http(200, (("x-robots-tag", "otherbot: noimageai, noindex"),), b"")
    page = marks(html).reservations
    assert reservations(http, page) == [
        "noai", "noimageai", "tdm-policy=https://a.example/tdm.json", "tdm-reservation",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("html", "fields"),
    [
        ('<meta name="robots" content="noindex, nofollow">', ()),
        ('<meta name="tdm-reservation" content="0">', (("tdm-reservation", "0"),)),
        ('<meta name="description" content="noai in a sentence">', ()),
    ],
)
def test_no_reservation_is_null(html: str, fields: tuple[tuple[str, str], ...]) -> None:
    assert reservations(Http(200, fields, b""), marks(html).reservations) is None


def test_header_alone_reserves() -> None:
    assert reservations(Http(200, (("tdm-reservation", "1"),), b""), None) == ["tdm-reservation"]
