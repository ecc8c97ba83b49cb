"""What a page says about its licence, and what use it reserves.

Licence marks: `rel=license` links, deeds of Creative Commons, license meta elements, schema.org
JSON-LD. Reservations: `noai`/`noimageai` in robots directives (meta or X-Robots-Tag) and the TDM
Reservation Protocol (header or meta `tdm-reservation`, `tdm-policy`; W3C TDMRep).
They are statements of the page, not legal findings: kept, counted, shown in the bill of materials.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from pipeline.bodies import Http

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

DEED = re.compile(
    r"creativecommons\.org/(?:licen[cs]es|publicdomain)/([a-z][a-z+-]*)/(\d\.\d)(?:/([a-z]{2})\b)?",
    re.IGNORECASE,
)
KNOWN = (
    (re.compile(r"apache\.org/licenses/LICENSE-2\.0", re.IGNORECASE), "Apache-2.0"),
    (re.compile(r"gnu\.org/(?:copyleft|licenses)/fdl", re.IGNORECASE), "GFDL"),
    (re.compile(r"gnu\.org/(?:copyleft|licenses)/agpl", re.IGNORECASE), "AGPL"),
    (re.compile(r"gnu\.org/(?:copyleft|licenses)/lgpl", re.IGNORECASE), "LGPL"),
    (re.compile(r"gnu\.org/(?:copyleft|licenses)/(?:old-licenses/)?gpl", re.IGNORECASE), "GPL"),
)
BY_NAME = re.compile(r"(?:spdx|opensource)\.org/licen[cs]es?/([\w.+-]+?)(?:\.html|\.php)?/?$")
NAMED_CC = re.compile(
    r"\bCC[ -]?(0|BY(?:-(?:NC|ND|SA)){0,2})(?:[ -](\d\.\d))?(?![\w.-])", re.IGNORECASE
)
META_LICENCE = ("license", "licence", "dc.rights.license", "dcterms.license", "dc.license")
NO_AI = ("noai", "noimageai")
LONGEST = 200


@dataclass(frozen=True)
class Marks:
    """Licence, where it was read (link, meta, json-ld, anchor), and the reserved uses."""

    licence: str | None = None
    licence_source: str | None = None
    reservations: tuple[str, ...] | None = None


NO_MARKS = Marks()


def page_marks(tree: LexborHTMLParser, url: str | None) -> Marks:
    """The marks inside the page: the first source of link, meta, json-ld, anchor that has one.

    An unnamed link to a deed (anchor) counts only while all of the page name one licence: a page
    about licences, or a gallery under several, is no mark.
    """
    licence, source = next(_licences(tree, url), (None, None))
    return Marks(licence, source, _some(_page_reservations(tree)))


def reservations(http: Http | None, page: Iterable[str] | None) -> list[str] | None:
    """What header and page reserve together, sorted; null where nothing is."""
    sent = _header_reservations(http) if http else ()
    return sorted({*sent, *(page or ())}) or None


def licence_id(value: str) -> str | None:
    """The id of a licence by URL or name: `CC-BY-SA-4.0`, `CC0-1.0`, `Apache-2.0`; else the value.

    Null for an empty value.
    """
    value = " ".join(value.split())
    if match := DEED.search(value):
        return _deed(match[1].lower(), match[2], match[3])
    for pattern, name in KNOWN:
        if pattern.search(value):
            return name
    if match := BY_NAME.search(value):
        return match[1]
    if match := NAMED_CC.search(value):
        version = match[2] or ("1.0" if match[1] == "0" else None)
        name = "CC0" if match[1] == "0" else f"CC-{match[1].upper()}"
        return f"{name}-{version}" if version else name
    return value[:LONGEST] or None


def _deed(kind: str, version: str, country: str | None) -> str:
    if kind == "zero":
        return f"CC0-{version}"
    if kind == "mark":
        return f"CC-PDM-{version}"
    port = f"-{country.upper()}" if country else ""
    return f"CC-{kind.upper()}-{version}{port}"


def _licences(tree: LexborHTMLParser, url: str | None) -> Iterator[tuple[str, str]]:
    """Licences with their source, in the order of trust."""
    for node in tree.css("[rel~=license][href]"):
        if found := licence_id(_absolute(url, node.attributes["href"] or "")):
            yield found, "link"
    for node in tree.css("meta[content]"):
        said = node.attributes
        name = said.get("name") or said.get("property") or said.get("itemprop") or ""
        if name.lower() in META_LICENCE and (found := licence_id(said["content"] or "")):
            yield found, "meta"
    for node in tree.css('script[type="application/ld+json"]'):
        for value in _json_ld(node.text()):
            if found := licence_id(value):
                yield found, "json-ld"
    deeds = [
        _deed(match[1].lower(), match[2], match[3])
        for node in tree.css('a[href*="creativecommons.org/"]')
        if (match := DEED.search(node.attributes["href"] or ""))
    ]
    if len(set(deeds)) == 1:
        yield deeds[0], "anchor"


def _absolute(url: str | None, href: str) -> str:
    try:
        return urljoin(url or "", href)
    except ValueError:  # a malformed IPv6 host, for one
        return href


def _json_ld(text: str) -> Iterator[str]:
    try:
        pending: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return
    while pending:
        node = pending.pop(0)
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            value = node.get("license")
            for one in value if isinstance(value, list) else [value]:
                named = one.get("url") or one.get("@id") or "" if isinstance(one, dict) else one
                if isinstance(named, str) and named:
                    yield named
            pending.extend(child for child in node.values() if isinstance(child, dict | list))


def _page_reservations(tree: LexborHTMLParser) -> Iterator[str]:
    for node in tree.css("meta[name][content]"):
        name = (node.attributes["name"] or "").lower()
        content = (node.attributes["content"] or "").strip()
        if name == "tdm-reservation" and content == "1":
            yield name
        elif name == "tdm-policy" and content:
            yield f"{name}={content[:LONGEST]}"
        elif "robots" in name or name.endswith("bot"):
            yield from _no_ai(content)


def _header_reservations(http: Http) -> Iterator[str]:
    if "1" in http.values("tdm-reservation"):
        yield "tdm-reservation"
    for policy in http.values("tdm-policy")[:1]:
        yield f"tdm-policy={policy[:LONGEST]}"
    for value in http.values("x-robots-tag"):
        yield from _no_ai(value)


def _no_ai(directives: str) -> Iterator[str]:
    words = re.findall(r"[\w-]+", directives.lower())
    yield from (word for word in NO_AI if word in words)


def _some(found: Iterable[str]) -> tuple[str, ...] | None:
    return tuple(sorted(set(found))) or None
