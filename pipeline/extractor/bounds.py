"""Compiled: what a page would cost a parser, told from its bytes before any parser sees them.

Parsers are quadratic in depth (lexbor: 50,000 open `<div>` take 2 s), and HTML5 opens unclosed
formatting again in every later block: 1,000 kinds of open `<font>` before 10,000 `<p>` are ten
million elements out of 100 kB. Both are bounded by counts, so that the decision is the same on any
machine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pipeline.extractor.compiled import kernel
from pipeline.extractor.counts import PRIME, SEED, find
from pipeline.extractor.vocabulary import fnv, open_table

FLAT, FORMATTING = 1, 2
"""Tags that do not nest: void, or closed by their like. Tags that are opened again."""
FLAT_TAGS = (
    "area base br col embed hr img input link meta param source track wbr "
    "p li dt dd option tr td th thead tbody tfoot"
)
FORMATTING_TAGS = "b big code em font i nobr s small strike strong tt u"
KINDS = open_table(
    [
        *((fnv(name), FLAT) for name in FLAT_TAGS.split(" ")),
        *((fnv(name), FORMATTING) for name in FORMATTING_TAGS.split(" ")),
    ]
)
NAMES, VARIANTS, ALIKE = 256, 4096, 3
"""Buckets for names; for whole formatting tags; of equal ones at most three are opened again
(HTML, 13.2.4.3, the Noah's Ark clause)."""


class Cost(NamedTuple):
    """How many `<`, how deep its tags nest at most, and elements opened again at most."""

    tags: int
    depth: int
    reopened: int


def page_cost(html: bytes) -> Cost:
    """The cost of a page, from its tags alone: an estimate that no page can cheat downwards far.

    A closing tag takes away only what its name opened. Comments and scripts count as markup.
    """
    return Cost(*(int(value) for value in survey(np.frombuffer(html, np.uint8), KINDS)))


@njit(cache=True, nogil=True)
def survey(buffer: Any, kinds: Any) -> Any:
    """(tags, depth, reopened) of `page_cost`."""
    return count_tags(
        buffer,
        kinds,
        np.zeros(NAMES, np.int64),
        np.zeros(NAMES, np.int64),
        np.zeros(VARIANTS, np.bool_),
    )


@kernel
def count_tags(buffer: Any, kinds: Any, open_tags: Any, variants: Any, seen: Any) -> Any:
    """Walk over the tags. `open_tags` and `variants` count by name."""
    n = len(buffer)
    tags = level = deepest = formatting = reopened = 0
    for i in range(n):
        if buffer[i] != 60:
            continue
        tags += 1
        close = i + 1 < n and buffer[i + 1] == 47
        j = i + 2 if close else i + 1
        if j >= n or not 97 <= buffer[j] | 32 <= 122:
            continue
        name = lower_name(buffer, j, n)
        kind = find(kinds, name)
        if kind == FLAT:
            reopened += 0 if close else formatting
            continue
        k = np.int64(name & np.uint64(NAMES - 1))
        before = min(open_tags[k], ALIKE * variants[k])
        if close:
            if open_tags[k] > 0:
                open_tags[k] -= 1
                level -= 1
        else:
            open_tags[k] += 1
            level += 1
            deepest = max(deepest, level)
        if kind == FORMATTING:
            if not close:
                note_variant(buffer, j, n, k, variants, seen)
            formatting += min(open_tags[k], ALIKE * variants[k]) - before
        elif not close:
            reopened += formatting
    return tags, deepest, reopened


@kernel
def lower_name(buffer: Any, j: int, n: int) -> Any:
    """The hash of the tag name at `j`, in lower case."""
    h = SEED
    while j < n:
        c = buffer[j]
        if c in (32, 62, 47, 9, 10, 12, 13):
            break
        if 65 <= c <= 90:
            c = np.uint8(c + 32)
        h = (h ^ np.uint64(c)) * PRIME
        j += 1
    return h


@kernel
def note_variant(buffer: Any, j: int, n: int, k: int, variants: Any, seen: Any) -> None:
    """Count a formatting tag that was not written like this before."""
    h = SEED
    while j < n and buffer[j] != 62:
        h = (h ^ np.uint64(buffer[j])) * PRIME
        j += 1
    slot = (h ^ (h >> np.uint64(31))) & np.uint64(VARIANTS - 1)
    if not seen[slot]:
        seen[slot] = True
        variants[k] += 1


def names_rights(html: bytes) -> bool:
    """Whether a page may have marks of licences or reservations.

    It says `licen[cs]e` or `creativecommons`, or `noai`, `noimageai` or `tdm-` in a `<meta>`, in
    any case: for the other pages one pass over the bytes saves the queries.
    """
    return bool(find_rights(np.frombuffer(html, np.uint8), LETTERS, *RIGHTS))


LETTERS = np.isin(np.arange(256), list(b"cCvV<"))
"""The bytes at which a word may be: a rare letter of each."""
RIGHTS = tuple(
    np.frombuffer(word, np.uint8).copy()
    for word in (b"licen", b"creativecommons", b"<meta", b"noai", b"noimageai", b"tdm-")
)


@kernel
def find_rights(
    buffer: Any,
    letters: Any,
    licen: Any,
    commons: Any,
    meta: Any,
    no_ai: Any,
    no_image: Any,
    tdm: Any,
) -> Any:
    """Whether the words are in the bytes."""
    n = len(buffer)
    for i in range(n):
        c = buffer[i]
        if not letters[c]:
            continue
        if c == 60:
            if like(buffer, i, n, meta):
                j = i
                while j < n and buffer[j] != 62:
                    for word in (no_ai, no_image, tdm):
                        if like(buffer, j, n, word):
                            return True
                    j += 1
        elif c | 32 == 99:
            if i >= 2 and like(buffer, i - 2, n, licen):
                k = i + 3
                if k + 1 < n and buffer[k] | 32 in (99, 115) and buffer[k + 1] | 32 == 101:
                    return True
        elif i >= 6 and like(buffer, i - 6, n, commons):
            return True
    return False


@kernel
def like(buffer: Any, i: int, n: int, word: Any) -> Any:
    """Whether the word stands at `i`, in any case."""
    if i + len(word) > n:
        return False
    for k in range(len(word)):
        c = buffer[i + k]
        if (c + 32 if 65 <= c <= 90 else c) != word[k]:
            return False
    return True
