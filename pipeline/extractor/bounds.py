"""Compiled: what a page would cost a parser, told from its bytes before any parser sees them.

Parsers are quadratic in depth (lexbor: 50,000 open `<div>` take 2 s), in the attributes of a tag
(200,000 take 95 s) and in the options of a choice (20,000 take 1 s). HTML5 opens unclosed
formatting again in every later block: 1,000 kinds of open `<font>` before 10,000 `<p>` are ten
million elements out of 100 kB. All are bounded by counts, so the decision is the same on any
machine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pipeline.compiled import bare_kernel, kernel
from pipeline.extractor.counts import PRIME, SEED, find
from pipeline.extractor.items import (
    DD,
    DT,
    LI,
    NESTED,
    enter_element,
    leave_element,
    new_items,
    note_item,
)
from pipeline.extractor.vocabulary import fnv, open_table

FLAT, FORMATTING, SCRIPT, OPTION = 1, 2, 3, 4
"""Tags that do not nest: void, or closed by their like. Tags that are opened again."""
FLAT_TAGS = (
    "area base br col embed hr img input link meta param source track wbr "
    "p tr td th thead tbody tfoot"
)
FORMATTING_TAGS = "b big code em font i nobr s small strike strong tt u"
KINDS = open_table(
    [
        *((fnv(name), FLAT) for name in FLAT_TAGS.split(" ")),
        *((fnv(name), SCRIPT) for name in ("script", "style")),
        *(
            (fnv(name), kind)
            for name, kind in (("option", OPTION), ("li", LI), ("dt", DT), ("dd", DD))
        ),
        *((fnv(name), FORMATTING) for name in FORMATTING_TAGS.split(" ")),
    ]
)
GAP, QUOTE, END = 1, 2, 3
STOPS = np.zeros(256, np.uint8)
"""What a byte inside a tag may be: a gap before an attribute, a quote, the end."""
STOPS[list(b" \t\n\f\r/")], STOPS[list(b"\"'")], STOPS[ord(">")] = GAP, QUOTE, END
LONGEST_NAME, LONGEST_TAG = 32, 256
"""Bytes that are looked at, so that the walk is linear."""
NAMES, VARIANTS, ALIKE = 256, 4096, 3
"""Buckets for names; for whole formatting tags; of equal ones at most three are opened again
(HTML, 13.2.4.3, the Noah's Ark clause)."""


class Cost(NamedTuple):
    """How many `<`; how deep its tags nest at most; elements opened again at most; attributes of
    one tag at most; options."""

    tags: int
    depth: int
    reopened: int
    attributes: int
    options: int


def page_cost(html: bytes) -> Cost:
    """The cost of a page, from its tags alone: an estimate that no page can cheat downwards far.

    A closing tag takes away only what its name opened. Comments and scripts count as markup.
    """
    return Cost(*(int(value) for value in survey(np.frombuffer(html, np.uint8), KINDS, STOPS)))


@kernel
def survey(buffer: Any, kinds: Any, stops: Any) -> Any:
    """The numbers of `Cost`."""
    return count_tags(
        buffer,
        kinds,
        stops,
        np.zeros(NAMES, np.int64),
        np.zeros(NAMES, np.int64),
        np.zeros(VARIANTS, np.bool_),
        new_items(),
    )


@bare_kernel
def count_tags(
    buffer: Any, kinds: Any, stops: Any, open_tags: Any, variants: Any, seen: Any, items: Any
) -> Any:
    """Walk over the tags. `open_tags` and `variants` count by name."""
    n = len(buffer)
    tags = level = deepest = formatting = reopened = attributes = options = tag_end = 0
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
        if i >= tag_end and not close:
            tag_end, found = count_attributes(buffer, j, n, stops)
            attributes = max(attributes, found)
            if kind == SCRIPT:
                tag_end = script_end(buffer, tag_end, n)
        options += kind == OPTION and not close
        if kind in (FLAT, OPTION) or kind >= LI:
            reopened += 0 if close else formatting
            if kind >= LI:
                note_item(items, kind, close)
                deepest = max(deepest, level + items.state[NESTED])
            continue
        k = np.int64(name & np.uint64(NAMES - 1))
        before = min(open_tags[k], ALIKE * variants[k])
        if close:
            if open_tags[k] > 0:
                open_tags[k] -= 1
                level -= 1
                leave_element(items, level)
        else:
            open_tags[k] += 1
            enter_element(items, level)
            level += 1
            deepest = max(deepest, level + items.state[NESTED])
        if kind == FORMATTING:
            if not close:
                note_variant(buffer, j, n, k, variants, seen)
            formatting += min(open_tags[k], ALIKE * variants[k]) - before
        elif not close:
            reopened += formatting
    return tags, deepest, reopened, attributes, options


@bare_kernel
def count_attributes(buffer: Any, j: int, n: int, stops: Any) -> Any:
    """(behind the start tag whose name is at `j`, how many attributes it has at most)."""
    found = 0
    while j < n:
        stop = stops[buffer[j]]
        if stop == 0:
            j += 1
        elif stop == END:
            break
        elif stop == QUOTE:
            quote, value = buffer[j], buffer[j - 1] == 61 or after_equals(buffer, j)
            j += 1
            while value and j < n and buffer[j] != quote:
                j += 1
            j += 1 if value else 0
        else:
            j += 1
            while j < n and stops[buffer[j]] == GAP:
                j += 1
            found += 1 if j < n and buffer[j] != 61 and stops[buffer[j]] == 0 else 0
    return j + 1, found


@bare_kernel
def script_end(buffer: Any, j: int, n: int) -> Any:
    """The next `</s`: what looks like a tag in a script is none."""
    while j + 2 < n and not (buffer[j] == 60 and buffer[j + 1] == 47 and buffer[j + 2] | 32 == 115):
        j += 1
    return j


@bare_kernel
def after_equals(buffer: Any, j: int) -> Any:
    """Whether an equals sign stands before `j`, but for some blanks."""
    k = j - 1
    while k > 0 and j - k < LONGEST_NAME and (buffer[k] == 32 or 9 <= buffer[k] <= 13):
        k -= 1
    return buffer[k] == 61


@bare_kernel
def lower_name(buffer: Any, j: int, n: int) -> Any:
    """The hash of the tag name at `j`, in lower case."""
    h, end = SEED, min(n, j + LONGEST_NAME)
    while j < end:
        c = buffer[j]
        if c in (32, 62, 47, 9, 10, 12, 13):
            break
        if 65 <= c <= 90:
            c = np.uint8(c + 32)
        h = (h ^ np.uint64(c)) * PRIME
        j += 1
    return h


@bare_kernel
def note_variant(buffer: Any, j: int, n: int, k: int, variants: Any, seen: Any) -> None:
    """Count a formatting tag that was not written like this before."""
    h, end = SEED, min(n, j + LONGEST_TAG)
    while j < end and buffer[j] != 62:
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


@bare_kernel
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


@bare_kernel
def like(buffer: Any, i: int, n: int, word: Any) -> Any:
    """Whether the word stands at `i`, in any case."""
    if i + len(word) > n:
        return False
    for k in range(len(word)):
        c = buffer[i + k]
        if (c + 32 if 65 <= c <= 90 else c) != word[k]:
            return False
    return True
