"""The kinds of personal data: a gate for all texts, a finder for those that pass.

Gates run in Polars over the whole column and are never stricter than their finder. They use ASCII
classes without \\b and \\d, which are Unicode there and turn its fast automaton off: 48 against
2,700 MB/s. Finders are exact and see the few texts that pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from pipeline.scrub import addresses, keys, numbers

Span = tuple[int, int]


@dataclass(frozen=True)
class Found:
    """One piece of personal data, in characters of the text."""

    begin: int
    end: int
    kind: str


GATES = {
    "secret": (
        r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36}|github_pat_|[sr]k_live_|[sr]k_test_"
        r"|xox[abeoprs]-|AIza[0-9A-Za-z_-]{35}|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY"
        r"|[Aa][Ww][Ss]_?[Ss][Ee][Cc][Rr][Ee][Tt]"
    ),
    "email": r"[^ ]@[^ ]|[\[(] ?[Aa][Tt] ?[\])]",
    "iban": r"[A-Z][A-Z][0-9][0-9] ?[A-Z0-9] ?[A-Z0-9] ?[A-Z0-9] ?[A-Z0-9] ?[A-Z0-9] ?[A-Z0-9]",
    "card": r"[3-6][0-9](?:[ -]?[0-9]){11}",
    "ip": r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|[23][0-9a-fA-F]{3}:[0-9a-fA-F]{0,4}:",
    "phone": (
        r"[+(]\(?[0-9][0-9 ().\x{a0}\x{2010}-\x{2013}/-]{5,22}[0-9]"
        r"|[0-9][0-9][0-9][-.][0-9][0-9][0-9][-.][0-9][0-9][0-9][0-9]"
        r"|(?:[Tt][Ee][Ll]|[Tt][éÉ][Ll]|[Pp][Hh][Oo][Nn][Ee]|[Ff][Aa][Xx]|[Mm][Oo][Bb][Ii][Ll]"
        r"|[Cc][Ee][Ll][Ll]|[Hh][Aa][Nn][Dd][Yy]|[Cc][Aa][Ll][Ll]|☎|電話|电话|전화)"
        r"[^0-9\n]{0,32}[0-9][0-9 ().\x{a0}\x{2010}-\x{2013}/-]{5,22}[0-9]"
    ),
}
"""Kind -> what a text with one contains. In this order the kinds are found: where two overlap, as a
card does with a phone number, the earlier kind has it."""

MASK = "\0"
"""Stands for what was found already while later kinds are looked for; no shape contains it."""


def hot(column: str, kinds: Iterable[str]) -> list[pl.Expr]:
    """One boolean expression a kind, named after it: texts that may hold one."""
    return [pl.col(column).str.contains(GATES[kind]).fill_null(False).alias(kind) for kind in kinds]


def find(text: str, kinds: Iterable[str], language: str | None = None) -> list[Found]:
    """Everything of the given kinds in a text, in its order, without overlaps."""
    found: list[Found] = []
    wanted = set(kinds)
    for kind in GATES:
        spans = sorted(_spans(kind, text, language)) if kind in wanted else []
        end = 0
        for begin, stop in spans:
            if begin >= end:
                found.append(Found(begin, stop, kind))
                text = f"{text[:begin]}{MASK * (stop - begin)}{text[stop:]}"
                end = stop
    return sorted(found, key=lambda each: each.begin)


def _spans(kind: str, text: str, language: str | None) -> Iterator[Span]:
    match kind:
        case "secret":
            return keys.secrets(text)
        case "email":
            return addresses.emails(text)
        case "iban":
            return numbers.ibans(text)
        case "card":
            return numbers.cards(text)
        case "ip":
            return addresses.ips(text)
        case "phone":
            return numbers.phones(text, language)
        case _:
            message = f"no kind {kind!r}"
            raise ValueError(message)
