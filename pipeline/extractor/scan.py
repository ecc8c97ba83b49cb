"""Compiled: one pass over the regular HTML5 that lexbor writes -> text, blocks and elements.

The pass is linear: each byte is read a bounded number of times, an end tag looks at most
`CLOSE_LEVELS` elements up. What lexbor writes is closed and quoted; the few places where that does
not hold (raw text inside SVG, `plaintext`, content of void names in foreign elements) cost text,
never more. Elements that are skipped with all they hold, and raw text, are no elements here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipeline.extractor.attributes import (
    ASIDE, DISPLAY, RENDERED, TEX, has, read_attributes, type_hint,
)  # fmt: skip
from pipeline.extractor.counts import PRIME, SEED, find, title_words
from pipeline.extractor.raised import separate
from pipeline.extractor.sheet import (
    ALT_END, ALT_START, BLOCKS, BOLD, BREAKS, CODE_ROW, DRAWN, ELEMENTS, GUTTER_NODE, GUTTERS,
    HINTS, IMAGES, LINK, LINKS, MATH, MATH_SPACE, OUT, PRE, RAISED, RAISED_LINKS, SKIP, SKIP_DEPTH,
    SKIP_POPS, SPACE, START, TITLE_END, TITLE_START, TOP, begin_block, end_block, is_numbers,
    new_sheet, put, write_raw, write_tex, write_text,
)  # fmt: skip
from pipeline.extractor.vocabulary import (
    BLOCK, GUTTER, INLINE, LINE, NO_NUMBER, NUMBERS, PREFORMATTED, RAW, SKIPPED, TAG_CODE, VOID,
)  # fmt: skip

CLOSE_LEVELS = 64
(
    BR, WBR, A, B, STRONG, PRE_TAG, LISTING, TITLE, HEAD, SCRIPT, XMP, PLAINTEXT, SUP, SUB, BUTTON,
    MATH_TAG, MSUP, MSUB, MSUBSUP, MFRAC, ANNOTATION, ANNOTATION_XML, TD, OL, LI, TEMPLATE,
) = (
    TAG_CODE[name]
    for name in "br wbr a b strong pre listing title head script xmp plaintext sup sub button math "
    "msup msub msubsup mfrac annotation annotation-xml td ol li template".split()
)  # fmt: skip
TYPE_KEY, OPEN_SCRIPT, END_COMMENT = (
    np.frombuffer(word, np.uint8).copy() for word in (b'"@type"', b"<script", b"-->")
)


@njit(cache=True, nogil=True)
def scan(buffer: Any, tables: Any) -> Any:
    """(text, blocks, parent, tag, bits, sig, number, hints, start and end of the title's bytes).

    `buffer` is uint8, a page as lexbor writes it; `tables` is `attributes.Tables`.
    """
    n = len(buffer)
    sheet = new_sheet(buffer)
    s = sheet.state
    add_element(sheet, 0, SEED, SEED, np.int64(0), np.int64(NO_NUMBER), BLOCK)
    titles = title_words(buffer, 0, 0)
    i = 0
    while i < n:
        if buffer[i] != 60:
            j = i
            while j < n and buffer[j] != 60:
                j += 1
            if s[SKIP] == 0:
                write_text(sheet, i, j)
            i = j
        elif i + 1 < n and (buffer[i + 1] == 33 or buffer[i + 1] == 63):
            i = after_comment(buffer, i, n)
        elif i + 1 < n and buffer[i + 1] == 47:
            i = end_tag(sheet, i + 2, n, tables, titles)
        else:
            i = start_tag(sheet, i + 1, n, tables, titles)
            if s[TITLE_END] < 0:
                s[TITLE_END] = -s[TITLE_END]
                titles = title_words(buffer, s[TITLE_START], s[TITLE_END])
    end_block(sheet, titles)
    m = s[ELEMENTS]
    return (
        sheet.out[: s[OUT]].copy(), sheet.blocks[: s[BLOCKS]].copy(), sheet.parent[:m].copy(),
        sheet.tag[:m].copy(), sheet.bits[:m].copy(), sheet.sig[:m].copy(), sheet.number[:m].copy(),
        s[HINTS], s[TITLE_START], s[TITLE_END],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def after_comment(buffer: Any, i: int, n: int) -> Any:
    """Behind the comment, doctype or instruction at `i`."""
    if i + 3 < n and buffer[i + 2] == 45 and buffer[i + 3] == 45 and buffer[i + 1] == 33:
        i += 4
        while i < n and not (buffer[i] == 45 and has(buffer, i, n, END_COMMENT)):
            i += 1
        return i + 3
    while i < n and buffer[i] != 62:
        i += 1
    return i + 1


@njit(cache=True, nogil=True)
def tag_name(buffer: Any, j: int, n: int) -> Any:
    """(behind the name at `j`, its hash)."""
    h = SEED
    while j < n and buffer[j] != 62 and buffer[j] != 32:
        h = (h ^ np.uint64(buffer[j])) * PRIME
        j += 1
    return j, h


@njit(cache=True, nogil=True)
def add_element(sheet: Any, t: int, name: Any, sig: Any, own: Any, number: Any, kind: int) -> None:
    """Make an element the innermost open one."""
    s = sheet.state
    v, parent = s[ELEMENTS], s[TOP]
    sheet.parent[v], sheet.tag[v], sheet.bits[v] = parent, t, own
    sheet.sig[v], sheet.name[v], sheet.number[v] = sig, name, number
    sheet.line[v] = v if kind == BLOCK else sheet.line[parent]
    sheet.at[v], sheet.children[v] = s[OUT], 0
    s[TOP] = v
    s[ELEMENTS] = v + 1


@njit(cache=True, nogil=True)
def start_tag(sheet: Any, j: int, n: int, tables: Any, titles: Any) -> Any:
    """Read the start tag whose name is at `j`; where to go on."""
    s, buffer = sheet.state, sheet.buffer
    first = j
    j, name = tag_name(buffer, j, n)
    t = find(tables.tag_keys, tables.tag_values, name)
    kind = tables.kind[t]
    i, own, sig, number, flags, hints, alt_start, alt_end = read_attributes(
        buffer, j, n, t, name, tables
    )
    s[HINTS] |= hints
    if kind == RAW:
        return raw_text(sheet, i, n, first, j, t, flags, tables, titles)
    if t == TITLE and s[TITLE_START] < 0 and (s[SKIP] == 0 or s[SKIP] == HEAD):
        note_title(sheet, i, n)
    if s[SKIP]:
        s[SKIP_DEPTH] += t == s[SKIP]
        return i
    if kind == SKIPPED:
        s[SKIP], s[SKIP_DEPTH], s[SKIP_POPS] = t, 1, 0
        s[SPACE] |= s[OUT] > s[START]
        return i
    if s[MATH] and kind == BLOCK:
        kind = INLINE
    if kind == BLOCK or t == BR:
        break_line(sheet, t, titles)
    if kind == VOID:
        void_tag(sheet, t)
        return i
    parent = s[TOP]
    s[SPACE] |= t == BUTTON
    if t == TD and s[CODE_ROW] and parent == s[CODE_ROW]:
        own |= PREFORMATTED
    if s[MATH]:
        math_operator(sheet, parent)
    add_element(sheet, t, name, sig, own, number, kind)
    return opened(sheet, t, own, flags, alt_start, alt_end, i, n)


@njit(cache=True, nogil=True)
def note_title(sheet: Any, i: int, n: int) -> None:
    """Keep where the title's text stands; its end is negative until its words are read."""
    j = i
    while j < n and sheet.buffer[j] != 60:
        j += 1
    sheet.state[TITLE_START], sheet.state[TITLE_END] = i, -j


@njit(cache=True, nogil=True)
def break_line(sheet: Any, t: int, titles: Any) -> None:
    """End the block at a block-level tag or `<br>`; inside preformatted text `<br>` is a line."""
    s = sheet.state
    if t == BR and s[PRE]:
        sheet.out[s[OUT]] = 10
        s[OUT] += 1
        return
    breaks = s[BREAKS]
    blocks = s[BLOCKS]
    end_block(sheet, titles)
    if t != BR:
        s[BREAKS] = 0
    else:
        s[BREAKS] = 1 if s[BLOCKS] > blocks else min(breaks + 1, 9)


@njit(cache=True, nogil=True)
def void_tag(sheet: Any, t: int) -> None:
    """An element without content: a gap in the line, but for `<wbr>`."""
    s = sheet.state
    if t == BR or t == WBR:
        return
    s[IMAGES] += 1
    if s[OUT] > s[START] and s[PRE] == 0:
        s[SPACE] = 1


@njit(cache=True, nogil=True)
def math_operator(sheet: Any, parent: int) -> None:
    """`^`, `_` or `/` between the parts of a formula that is given by its drawing alone."""
    s = sheet.state
    t, k = sheet.tag[parent], sheet.children[parent]
    sheet.children[parent] = k + 1
    if k == 0 or s[OUT] <= max(sheet.at[parent], s[START]):
        return
    if (t == MSUP and k == 1) or (t == MSUBSUP and k == 2):
        put(sheet, 94)
    elif (t == MSUB or t == MSUBSUP) and k == 1:
        put(sheet, 95)
    elif t == MFRAC and k == 1:
        put(sheet, 47)


@njit(cache=True, nogil=True)
def skip_element(sheet: Any, t: int) -> None:
    """Skip the innermost element with all it holds."""
    s = sheet.state
    s[SKIP], s[SKIP_DEPTH], s[SKIP_POPS] = t, 1, 1


@njit(cache=True, nogil=True)
def opened(
    sheet: Any, t: int, own: Any, flags: int, alt_start: int, alt_end: int, i: int, n: int
) -> Any:
    """What the element just opened begins; where to go on."""
    s = sheet.state
    v = s[TOP]
    s[PRE] += t == PRE_TAG or t == LISTING or own & PREFORMATTED != 0
    if own & GUTTER:
        s[GUTTERS] += 1
        if s[GUTTERS] == 1:
            s[GUTTER_NODE] = v
    if t == A:
        s[LINK] += 1
        s[LINKS] += 1
    elif t == B or t == STRONG:
        s[BOLD] += 1
    elif t == SUP or t == SUB:
        s[RAISED], s[RAISED_LINKS] = s[OUT], s[LINKS]
    elif t == MATH_TAG and s[MATH] == 0:
        s[MATH], s[MATH_SPACE], s[ALT_START], s[ALT_END] = v, s[SPACE], alt_start, alt_end
    elif s[MATH] and (t == ANNOTATION or t == ANNOTATION_XML):
        return annotation(sheet, t, flags, i, n)
    parent = sheet.parent[v]
    drawn = flags & ASIDE and s[DRAWN] and (parent == s[DRAWN] or parent == sheet.parent[s[DRAWN]])
    if drawn or (flags & RENDERED and s[MATH] == 0):
        skip_element(sheet, t)
    return i


@njit(cache=True, nogil=True)
def annotation(sheet: Any, t: int, flags: int, i: int, n: int) -> Any:
    """TeX takes the place of the drawing so far, and the rest of the formula is skipped."""
    s = sheet.state
    if flags & TEX == 0:
        skip_element(sheet, t)
        return i
    j = i
    while j < n and sheet.buffer[j] != 60:
        j += 1
    replace_math(sheet, i, j)
    s[TOP] = s[MATH]
    skip_element(sheet, MATH_TAG)
    return j


@njit(cache=True, nogil=True)
def replace_math(sheet: Any, i: int, j: int) -> None:
    """Write TeX instead of what the open formula has put down."""
    s = sheet.state
    v = s[MATH]
    s[OUT], s[SPACE] = max(sheet.at[v], s[START]), s[MATH_SPACE]
    write_tex(sheet, i, j, True, False)
    s[DRAWN] = sheet.parent[v]


@njit(cache=True, nogil=True)
def end_tag(sheet: Any, j: int, n: int, tables: Any, titles: Any) -> Any:
    """Read the end tag whose name is at `j`; where to go on."""
    s, buffer = sheet.state, sheet.buffer
    j, name = tag_name(buffer, j, n)
    while j < n and buffer[j] != 62:
        j += 1
    t = find(tables.tag_keys, tables.tag_values, name)
    kind = tables.kind[t]
    if s[SKIP]:
        if t != s[SKIP]:
            return j + 1
        s[SKIP_DEPTH] -= 1
        if s[SKIP_DEPTH]:
            return j + 1
        s[SKIP] = 0
        if s[SKIP_POPS] == 0:
            return j + 1
        name = sheet.name[s[TOP]]
    if kind == BLOCK and s[MATH] == 0:
        break_line(sheet, t, titles)
    v, levels = s[TOP], 0
    while v > 0 and sheet.name[v] != name and levels < CLOSE_LEVELS:
        v = sheet.parent[v]
        levels += 1
    if v > 0 and sheet.name[v] == name:
        parent = sheet.parent[v]
        while s[TOP] != parent:
            close_element(sheet)
    return j + 1


@njit(cache=True, nogil=True)
def close_element(sheet: Any) -> None:
    """Take the innermost element off, and what it began."""
    s = sheet.state
    v = s[TOP]
    t, own = sheet.tag[v], sheet.bits[v]
    s[TOP] = sheet.parent[v]
    s[PRE] -= t == PRE_TAG or t == LISTING or own & PREFORMATTED != 0
    if own & GUTTER:
        close_gutter(sheet, v, own)
    if t == A:
        s[LINK] -= 1
    elif t == B or t == STRONG:
        s[BOLD] -= 1
    elif t == BUTTON:
        s[SPACE] = 1
    elif (t == SUP or t == SUB) and s[RAISED] >= 0:
        linked = s[LINKS] > s[RAISED_LINKS] or s[LINK] > 0
        s[OUT] = separate(sheet.out, s[START], s[RAISED], s[OUT], t == SUP, linked)
        s[RAISED] = -1
    elif v == s[MATH]:
        if s[DRAWN] != s[TOP] or s[OUT] == sheet.at[v]:
            write_alternative(sheet)
        s[MATH] = 0


@njit(cache=True, nogil=True)
def close_gutter(sheet: Any, v: int, own: Any) -> None:
    """Take back the line number that stands in the line, and note a row of code."""
    s = sheet.state
    s[GUTTERS] -= 1
    if own & LINE and own & NUMBERS and sheet.tag[v] == TD:
        s[CODE_ROW] = s[TOP]
    begin = max(sheet.at[v], s[START])
    if is_numbers(sheet.out, begin, s[OUT]):
        s[OUT] = begin


@njit(cache=True, nogil=True)
def write_alternative(sheet: Any) -> None:
    """The `alttext` of a formula without source, where it looks like TeX."""
    s = sheet.state
    for i in range(s[ALT_START], s[ALT_END]):
        c = sheet.buffer[i]
        if c == 92 or c == 94 or c == 95:
            replace_math(sheet, s[ALT_START], s[ALT_END])
            return


@njit(cache=True, nogil=True)
def raw_text(
    sheet: Any, i: int, n: int, first: int, last: int, t: int, flags: int, tables: Any, titles: Any
) -> Any:
    """Pass over text up to its end tag; formulas and preformatted text are kept."""
    s, buffer = sheet.state, sheet.buffer
    k = raw_end(sheet, i, n, first, last, t, tables)
    if s[SKIP] == 0:
        if t == SCRIPT and flags & TEX:
            write_tex(sheet, i, k, False, flags & DISPLAY != 0)
        elif t == XMP or t == PLAINTEXT:
            break_line(sheet, 0, titles)
            begin_block(sheet, s[TOP])
            write_raw(sheet, i, k)
            break_line(sheet, 0, titles)
    while k < n and buffer[k] != 62:
        k += 1
    return k + 1


@njit(cache=True, nogil=True)
def raw_end(sheet: Any, i: int, n: int, first: int, last: int, t: int, tables: Any) -> Any:
    """Where the end tag of raw text begins. Types that scripts name are hints."""
    buffer = sheet.buffer
    name = buffer[first:last]
    script = t == SCRIPT
    comment = double = False  # in `<!--` a `<script` hides the next `</script`
    k = i
    while k < n:
        c = buffer[k]
        if c == 60:
            if k + 1 < n and buffer[k + 1] == 47 and has(buffer, k + 2, n, name):
                if not double:
                    return k
                double = False
            elif script and k + 3 < n and buffer[k + 1] == 33:
                comment |= buffer[k + 2] == 45 and buffer[k + 3] == 45
            elif comment and has(buffer, k, n, OPEN_SCRIPT):
                double = True
        elif c == 45 and comment and has(buffer, k, n, END_COMMENT):
            comment = double = False
        elif c == 34 and script and has(buffer, k, n, TYPE_KEY):
            sheet.state[HINTS] |= script_hint(buffer, k + len(TYPE_KEY), n, tables)
        k += 1
    return n


@njit(cache=True, nogil=True)
def script_hint(buffer: Any, k: int, n: int, tables: Any) -> Any:
    """The hint of the value behind `"@type"`: a name, or the first of a list."""
    end = min(n, k + 32)
    while k < end and (buffer[k] <= 32 or buffer[k] == 58 or buffer[k] == 91):
        k += 1
    if k >= end or buffer[k] != 34:
        return np.int64(0)
    k += 1
    stop = min(n, k + 64)
    j = k
    while j < stop and buffer[j] != 34:
        j += 1
    return type_hint(buffer, k, j, tables)
