"""Compiled: one pass over the regular HTML5 that lexbor writes -> text, blocks and elements.

The pass is linear: each byte is read a bounded number of times, an end tag looks at most
`CLOSE_LEVELS` elements up. What lexbor writes is closed and quoted; the few places where that does
not hold (raw text inside SVG, `plaintext`, content of void names in foreign elements) cost text,
never more. Elements that are skipped with all they hold, and raw text, are no elements here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import bare_kernel, kernel
from pipeline.extractor import places as at
from pipeline.extractor import vocabulary as voc
from pipeline.extractor.attributes import ASIDE, RENDERED, has, read_attributes
from pipeline.extractor.counts import PRIME, SEED, find, title_words
from pipeline.extractor.formulas import (
    MATH,
    annotation,
    math_operator,
    skip_element,
    write_alternative,
)
from pipeline.extractor.raised import close_raised
from pipeline.extractor.raw_text import raw_text
from pipeline.extractor.sheet import (
    BR,
    break_line,
    end_block,
    is_anchor_sign,
    is_numbers,
    new_sheet,
    write_text,
)

CLOSE_LEVELS = 64
WBR, A, B, STRONG, PRE, LISTING, TITLE, HEAD, SUP, SUB, BUTTON, ANNOTATION, ANNOTATION_XML, TD = (
    voc.TAG_CODE[name]
    for name in (
        "wbr", "a", "b", "strong", "pre", "listing", "title", "head", "sup", "sub", "button",
        "annotation", "annotation-xml", "td",
    )
)  # fmt: skip
TAG_SALT, TAG_MASK = np.uint64(voc.TAG_SALT), (1 << voc.KIND_SHIFT) - 1
END_COMMENT = np.frombuffer(b"-->", np.uint8).copy()


@kernel
def scan(buffer: Any, lexicon: Any) -> Any:
    """(text, blocks, element rows, hints, start and end of the title's bytes).

    `buffer` is uint8, a page as lexbor writes it; `lexicon` is `vocabulary.LEXICON`. Title -1 where
    there is none.
    """
    sheet = new_sheet(buffer, lexicon)
    read_page(sheet)
    s = sheet.state
    return (
        sheet.out[: s[at.OUT]].copy(),
        sheet.blocks[: s[at.BLOCKS]].copy(),
        sheet.elements[: s[at.ELEMENTS]].copy(),
        s[at.HINTS],
        s[at.TITLE_START],
        s[at.TITLE_END],
    )


@bare_kernel
def read_page(sheet: Any) -> None:
    """Read all bytes: text, comments, end tags, start tags."""
    s, buffer = sheet.state, sheet.buffer
    n = len(buffer)
    add_element(sheet, 0, SEED, SEED, 0, voc.NO_NUMBER, voc.BLOCK)
    i = 0
    while i < n:
        if buffer[i] != 60:
            j = i
            while j < n and buffer[j] != 60:
                j += 1
            if s[at.SKIP] == 0:
                write_text(sheet, i, j)
            i = j
        elif i + 1 < n and (buffer[i + 1] == 33 or buffer[i + 1] == 63):
            i = after_comment(buffer, i, n)
        elif i + 1 < n and buffer[i + 1] == 47:
            i = end_tag(sheet, i + 2, n)
        else:
            i = start_tag(sheet, i + 1, n)
    end_block(sheet)


@bare_kernel
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


@bare_kernel
def tag_name(buffer: Any, j: int, n: int) -> Any:
    """(behind the name at `j`, its hash)."""
    h = SEED
    while j < n and buffer[j] != 62 and buffer[j] != 32:
        h = (h ^ np.uint64(buffer[j])) * PRIME
        j += 1
    return j, h


@bare_kernel
def add_element(sheet: Any, t: int, name: Any, sig: Any, own: Any, number: Any, kind: int) -> None:
    """Make an element the innermost open one."""
    s = sheet.state
    v, parent = s[at.ELEMENTS], s[at.TOP]
    row = sheet.elements[v]
    row[at.E_PARENT], row[at.E_TAG], row[at.E_BITS] = parent, t, own
    row[at.E_SIG], row[at.E_NAME], row[at.E_NUMBER] = np.int64(sig), np.int64(name), number
    row[at.E_LINE] = v if kind == voc.BLOCK else sheet.elements[parent, at.E_LINE]
    row[at.E_AT], row[at.E_CHILDREN] = s[at.OUT], 0
    s[at.TOP] = v
    s[at.ELEMENTS] = v + 1


@bare_kernel
def start_tag(sheet: Any, j: int, n: int) -> Any:
    """Read the start tag whose name is at `j`; where to go on."""
    s, buffer = sheet.state, sheet.buffer
    first = j
    j, name = tag_name(buffer, j, n)
    code = find(sheet.lexicon, name ^ TAG_SALT)
    t, kind = code & TAG_MASK, code >> voc.KIND_SHIFT
    i, own, sig, number, flags, hints, alt_start, alt_end = read_attributes(
        buffer, j, n, t, name, sheet.lexicon
    )
    s[at.HINTS] |= hints
    if kind == voc.RAW:
        return raw_text(sheet, i, n, first, j, t, flags)
    if t == TITLE and s[at.TITLE_START] < 0 and (s[at.SKIP] == 0 or s[at.SKIP] == HEAD):
        note_title(sheet, i, n)
    if s[at.SKIP]:
        s[at.SKIP_DEPTH] += t == s[at.SKIP]
        return i
    if kind == voc.SKIPPED:
        s[at.SKIP], s[at.SKIP_DEPTH], s[at.SKIP_POPS] = t, 1, 0
        s[at.SPACE] |= s[at.OUT] > s[at.START]
        return i
    if s[at.MATH] and kind == voc.BLOCK:
        kind = voc.INLINE
    if kind == voc.BLOCK or t == BR:
        break_line(sheet, t)
    if kind == voc.VOID:
        void_tag(sheet, t)
        return i
    parent = s[at.TOP]
    s[at.SPACE] |= t == BUTTON
    if t == TD and s[at.CODE_ROW] and parent == s[at.CODE_ROW]:
        own |= voc.PREFORMATTED
    if s[at.MATH]:
        math_operator(sheet, parent)
    add_element(sheet, t, name, sig, own, number, kind)
    return opened(sheet, t, own, flags, alt_start, alt_end, i, n)


@bare_kernel
def note_title(sheet: Any, i: int, n: int) -> None:
    """Keep where the title's text stands, and its words."""
    j = i
    while j < n and sheet.buffer[j] != 60:
        j += 1
    sheet.state[at.TITLE_START], sheet.state[at.TITLE_END] = i, j
    title_words(sheet.buffer, i, j, sheet.titles)


@bare_kernel
def void_tag(sheet: Any, t: int) -> None:
    """An element without content: a gap in the line, but for `<wbr>`."""
    s = sheet.state
    if t in (BR, WBR):
        return
    s[at.IMAGES] += 1
    if s[at.OUT] > s[at.START] and s[at.PRE] == 0:
        s[at.SPACE] = 1


@bare_kernel
def opened(
    sheet: Any, t: int, own: Any, flags: int, alt_start: int, alt_end: int, i: int, n: int
) -> Any:
    """What the element just opened begins; where to go on."""
    s = sheet.state
    v = s[at.TOP]
    s[at.PRE] += t in (PRE, LISTING) or own & voc.PREFORMATTED != 0
    if own & voc.GUTTER:
        s[at.GUTTERS] += 1
        if s[at.GUTTERS] == 1:
            s[at.GUTTER_NODE] = v
    if t == A:
        s[at.LINK] += 1
        s[at.LINKS] += 1
    elif t in (B, STRONG):
        s[at.BOLD] += 1
    elif t in (SUP, SUB):
        s[at.RAISED_LINKS] = s[at.LINKS]
    elif t == MATH and s[at.MATH] == 0:
        s[at.MATH], s[at.MATH_SPACE] = v, s[at.SPACE]
        s[at.ALT_START], s[at.ALT_END] = alt_start, alt_end
    elif s[at.MATH] and (t in (ANNOTATION, ANNOTATION_XML)):
        return annotation(sheet, t, flags, i, n)
    parent, drawn = sheet.elements[v, at.E_PARENT], False
    if flags & ASIDE and s[at.START] < s[at.DRAWN_AT] == s[at.OUT]:
        drawn = parent in (s[at.DRAWN], sheet.elements[s[at.DRAWN], at.E_PARENT])
    if drawn or (flags & RENDERED and s[at.MATH] == 0):
        skip_element(sheet, t)
    return i


@bare_kernel
def end_tag(sheet: Any, j: int, n: int) -> Any:
    """Read the end tag whose name is at `j`; where to go on."""
    s, buffer = sheet.state, sheet.buffer
    j, name = tag_name(buffer, j, n)
    while j < n and buffer[j] != 62:
        j += 1
    code = find(sheet.lexicon, name ^ TAG_SALT)
    t, kind = code & TAG_MASK, code >> voc.KIND_SHIFT
    key = np.int64(name)
    if s[at.SKIP]:
        if t != s[at.SKIP]:
            return j + 1
        s[at.SKIP_DEPTH] -= 1
        if s[at.SKIP_DEPTH]:
            return j + 1
        s[at.SKIP] = 0
        if s[at.SKIP_POPS] == 0:
            return j + 1
        key = sheet.elements[s[at.TOP], at.E_NAME]
    if kind == voc.BLOCK and s[at.MATH] == 0:
        break_line(sheet, t)
    close_named(sheet, key)
    return j + 1


@bare_kernel
def close_named(sheet: Any, key: Any) -> None:
    """Close the innermost element of that name and those in it; nothing where none is near."""
    s, elements = sheet.state, sheet.elements
    v, levels = s[at.TOP], 0
    while v > 0 and elements[v, at.E_NAME] != key and levels < CLOSE_LEVELS:
        v = elements[v, at.E_PARENT]
        levels += 1
    if v > 0 and elements[v, at.E_NAME] == key:
        parent = elements[v, at.E_PARENT]
        while s[at.TOP] != parent:
            close_element(sheet)


@bare_kernel
def close_element(sheet: Any) -> None:
    """Take the innermost element off, and what it began."""
    s = sheet.state
    v = s[at.TOP]
    t, own = sheet.elements[v, at.E_TAG], sheet.elements[v, at.E_BITS]
    s[at.TOP] = sheet.elements[v, at.E_PARENT]
    s[at.PRE] -= t in (PRE, LISTING) or own & voc.PREFORMATTED != 0
    if own & voc.GUTTER:
        close_gutter(sheet, v, own)
    if t == A:
        s[at.LINK] -= 1
        begin = max(sheet.elements[v, at.E_AT], s[at.START])
        if is_anchor_sign(sheet.out, begin, s[at.OUT]):
            s[at.OUT] = begin
    elif t in (B, STRONG):
        s[at.BOLD] -= 1
    elif t == BUTTON:
        s[at.SPACE] = 1
    elif t in (SUP, SUB) and s[at.START] <= sheet.elements[v, at.E_AT] <= s[at.OUT]:
        close_raised(sheet, sheet.elements[v, at.E_AT], t == SUP)
    elif v == s[at.MATH]:
        if s[at.DRAWN] != s[at.TOP] or s[at.OUT] == sheet.elements[v, at.E_AT]:
            write_alternative(sheet)
        s[at.MATH] = 0


@bare_kernel
def close_gutter(sheet: Any, v: int, own: Any) -> None:
    """Take back the line number that stands in the line, and note a row of code."""
    s = sheet.state
    s[at.GUTTERS] -= 1
    if own & voc.LINE and own & voc.NUMBERS and sheet.elements[v, at.E_TAG] == TD:
        s[at.CODE_ROW] = s[at.TOP]
    begin = max(sheet.elements[v, at.E_AT], s[at.START])
    if is_numbers(sheet.out, begin, s[at.OUT]):
        s[at.OUT] = begin
