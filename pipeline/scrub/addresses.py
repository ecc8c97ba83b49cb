"""Finders of e-mail and IP addresses in running text, where code and version numbers look alike.

E-mail is searched outwards from each `@`. What looks like one and is none: `git@host:path`, user
names in URLs, package versions (`include@1.0.0`), file names (`logo@2x.png`). A dotted quad is an
address unless what stands before it speaks of versions or sections and nothing of networks.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

Span = tuple[int, int]

LOCAL = re.compile(r"[\w+%'-]+(?:\.[\w+%'-]+)*")
DOMAIN = re.compile(
    r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,24})(?![\w-])",
    re.IGNORECASE,
)
LOCAL_LENGTH = 64  # RFC 5321
AT = re.compile(r"[ ]?[\[(] ?at ?[\])] ?", re.IGNORECASE)
SPELT_DOMAIN = re.compile(r"[\w-]{1,63}(?:(?: ?[\[(] ?dot ?[\])] ?|\.)[\w-]{1,63})+", re.IGNORECASE)
USER_OF_URL = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/]*\Z", re.IGNORECASE)
REMOTE_PATH = re.compile(r":(?:[~/]|[\w.~-]+/|[\w.-]+\.git\b)")
REPOSITORY_USERS = {"cvs", "forgejo", "git", "gitea", "gitolite", "hg", "svn"}
VERSION = re.compile(r"v?\d+\.\d+(?:\.|\Z)", re.IGNORECASE)
FILE_ENDINGS = {
    "class", "css", "csv", "exe", "gif", "gz", "html", "ico", "jpeg", "jpg", "js", "json", "jsx",
    "php", "png", "svg", "tgz", "ts", "tsx", "txt", "webp", "xml", "yaml", "yml",
}  # fmt: skip


def emails(text: str) -> Iterator[Span]:
    """E-mail addresses, also with letters beyond ASCII, also written `name [at] site [dot] org`."""
    at = text.find("@")
    while at >= 0:
        domain = DOMAIN.match(text, at + 1)
        begin = _local_before(text, at)
        if domain and begin < at and _is_email(text, begin, at, domain):
            yield begin, domain.end()
        at = text.find("@", at + 1)
    for match in AT.finditer(text):
        domain = SPELT_DOMAIN.match(text, match.end())
        begin = _local_before(text, match.start())
        if domain and begin < match.start():
            yield begin, domain.end()


def _local_before(text: str, at: int) -> int:
    """Where the name that ends before `at` begins; `at` where there is none."""
    # backwards, as one match: the pattern reads the same both ways
    name = LOCAL.match(text[max(at - LOCAL_LENGTH, 0) : at][::-1])
    return at - len(name[0].rstrip("'%+-")) if name else at


def _is_email(text: str, begin: int, at: int, domain: re.Match[str]) -> bool:
    name = domain[0].lower()
    if name.rpartition(".")[2] in FILE_ENDINGS or name.startswith("self.") or VERSION.match(name):
        return False
    if USER_OF_URL.search(text, max(begin - 80, 0), begin):
        return False
    after = domain.end()
    if text[after : after + 1] == ":" and text[after + 1 : after + 2].strip():
        return text[begin:at].lower() not in REPOSITORY_USERS and not REMOTE_PATH.match(text, after)
    return True


OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
QUAD = re.compile(
    rf"(?<![\w.])(?<![a-z0-9][-_])(?:{OCTET}\.){{3}}{OCTET}(?![\w-]|\.\d)(?!\.[a-z])",
    re.ASCII | re.IGNORECASE,
)
COLONS = re.compile(
    r"(?<![\w:.])[23][0-9a-f]{3}:[0-9a-f:]*[0-9a-f:](?:\.\d{1,3}){0,3}(?![\w])",
    re.ASCII | re.IGNORECASE,
)
LONE_GROUP = re.compile("[0-9a-fA-F]+::")
DOCUMENTATION = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32", "3fff::/20"),
    )
)  # RFC 5737, 3849, 9637
NETWORK_WORDS = re.compile(
    r"\b(?:ips?|ipv[46]|address(?:es)?|addr|hosts?|server|dns|gateway|router|ping|proxy|port"
    r"|netmask|subnet|nameserver|resolver|client|node|peer|listen|bind|connect|ssh|telnet|curl"
    r"|whois|traceroute|from|localhost)\b|://\Z|@\Z",
    re.IGNORECASE,
)
VERSION_WORDS = re.compile(
    r"\b(?:v|ver|versions?|releases?|rel|rev|revisions?|build|firmware|patch|update[ds]?"
    r"|upgrad(?:e|es|ed|ing)|sections?|sec|chapters?|chap|clauses?|paragraphs?|appendix|annex"
    r"|articles?|tables?|figures?|fig|items?|steps?|rules?|oids?|requires?|since|before)\b|§",
    re.IGNORECASE,
)
SERVICE = re.compile(r":\d{2,5}(?![\w.])|/\d{1,2}(?![\w.])| - - ")
"""A port, a prefix length, the next columns of a web server's log."""
REQUIREMENT = re.compile(r"[=~<>!]=\s?\Z|\b\d:\Z")
"""`numpy==1.2.3.4`, and the epoch in Debian's `1:2.10.2.3`."""
VERSION_NEAR = re.compile(r"(?<![\w.])\d{1,3}\.\d{1,3}\.\d{1,5}(?!\w|\.\d)")
MIXED_CASE = re.compile(r"[A-Z][a-z]+[A-Z]")
SENTENCE_END = re.compile(r"(?<=[.!?;])\s+(?=[^\d])|\n")
SMALL = 40
WORD_BEFORE = re.compile(r"(?:(?<=\s)|(?<=\A))([^\s]+)[ \t]+\Z")
LOOK_BACK = 48  # characters, about eight words
LOOK_AHEAD = 16


def ips(text: str) -> Iterator[Span]:
    """Public IPv4 and IPv6 addresses; documentation ranges count as public."""
    for match in QUAD.finditer(text):
        if is_public(match[0]) and not _is_number(text, match):
            yield match.span()
    for match in COLONS.finditer(text):
        address = match[0] if match[0].endswith("::") else match[0].rstrip(":")
        # `2006::` at a line's end is a year in reStructuredText
        if not LONE_GROUP.fullmatch(address) and is_public(address):
            yield match.start(), match.start() + len(address)


def is_public(value: str) -> bool:
    """Whether `value` is an address that may be somebody's: not private, not loopback ..."""
    try:
        address = ipaddress.ip_address(value)
    except ValueError:
        return False
    if any(address in network for network in DOCUMENTATION if network.version == address.version):
        return True
    return not (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )


def _is_number(text: str, quad: re.Match[str]) -> bool:
    """Whether a dotted quad is a version or a section number."""
    begin, end = quad.span()
    before, after = text[max(begin - LOOK_BACK, 0) : begin], text[end : end + LOOK_AHEAD]
    word = WORD_BEFORE.search(before)
    last = word[1].strip("(\"':=,") if word else ""
    if VERSION_WORDS.fullmatch(last.rstrip(".#")) or REQUIREMENT.search(before):
        return True
    sentence = SENTENCE_END.split(before)[-1]
    if SERVICE.match(after) or NETWORK_WORDS.search(sentence):
        return False
    octets = {int(octet) for octet in quad[0].split(".")}
    return (
        bool(VERSION_WORDS.search(sentence) or VERSION_NEAR.search(sentence))
        or bool(VERSION_NEAR.match(after.lstrip("`'\", ")))
        or quad[0].endswith(".0")
        # 1 in 1,700 addresses has small figures only, nearly every section number has
        or (max(octets) <= SMALL and len(octets) > 1)
        # `OpenWidget 1.84.1.3`: a name; a capital alone at a sentence's start is none
        or bool(MIXED_CASE.match(last))
        or (last[:1].isupper() and sentence.strip() not in ("", word[1] if word else ""))
    )
