"""Compiled: what the pass writes on, and how text gets there.

A block is the text between two tags that end a line. It grows at the end of `out`; when it ends,
its row is filled, or its bytes are given back where it holds nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.compiled import bare_kernel, kernel
from pipeline.extractor import places as at
from pipeline.extractor import vocabulary as voc
from pipeline.extractor.counts import TITLE_SLOTS, count_text

BR = voc.TAG_CODE["br"]


class Sheet(NamedTuple):
    """Input, outputs and state of one pass."""

    buffer: NDArray[np.uint8]
    lexicon: NDArray[np.uint64]
    out: NDArray[np.uint8]
    blocks: NDArray[np.int64]
    elements: NDArray[np.int64]
    """[n, N_ELEMENT], columns `places.E_*`."""
    state: NDArray[np.int64]
    """[N_STATE], places `places.*`."""
    titles: NDArray[np.uint64]


@kernel
def new_sheet(buffer: Any, lexicon: Any) -> Any:
    """Room for all that the bytes can hold: no more elements and blocks than `<`."""
    tags = 2
    for i in range(len(buffer)):
        tags += buffer[i] == 60
    sheet = Sheet(
        buffer,
        lexicon,
        np.empty(len(buffer) + 16, np.uint8),
        np.empty((tags, voc.N_COLUMNS), np.int64),
        np.empty((tags, at.N_ELEMENT), np.int64),
        np.zeros(at.N_STATE, np.int64),
        np.zeros(TITLE_SLOTS, np.uint64),
    )
    sheet.state[at.TITLE_START] = -1
    return sheet


@bare_kernel
def begin_block(sheet: Any, element: int) -> None:
    """Note where the block's text begins, unless it has begun."""
    if sheet.state[at.FIRST] == 0:
        sheet.state[at.FIRST] = element
        sheet.state[at.NODE] = sheet.elements[element, at.E_LINE]


@bare_kernel
def put(sheet: Any, c: int) -> None:
    """One byte, after the blank that may be due."""
    s = sheet.state
    if s[at.SPACE] and s[at.OUT] > s[at.START]:
        sheet.out[s[at.OUT]] = 32
        s[at.OUT] += 1
    s[at.SPACE] = 0
    sheet.out[s[at.OUT]] = c
    s[at.OUT] += 1


@bare_kernel
def unescape(buffer: Any, k: int, end: int) -> Any:
    """(byte, length) at `k`: the serialiser writes five entities and no other."""
    c = buffer[k]
    if c == 38 and k + 3 < end:
        d = buffer[k + 1]
        if d == 108:
            return np.uint8(60), 4
        if d == 103:
            return np.uint8(62), 4
        if d == 97:
            return c, 5
        if d == 113:
            return np.uint8(34), 6
        if d == 110:
            return np.uint8(32), 6
    return c, 1


@bare_kernel
def invisible(buffer: Any, k: int, end: int) -> Any:
    """The length of a soft hyphen or byte order mark at `k`, else 0."""
    if buffer[k] == 0xC2:
        return 2 if k + 1 < end and buffer[k + 1] == 0xAD else 0
    if buffer[k] == 0xEF and k + 2 < end and buffer[k + 1] == 0xBB and buffer[k + 2] == 0xBF:
        return 3
    return 0


@bare_kernel
def write_text(sheet: Any, i: int, end: int) -> None:
    """Text between two tags: entities read, runs of blanks one blank but in preformatted text."""
    s, out, buffer = sheet.state, sheet.out, sheet.buffer
    before = o = s[at.OUT]
    start, pre, space = s[at.START], s[at.PRE] > 0, s[at.SPACE] != 0
    while i < end:
        c = buffer[i]
        if c >= 0xC2:
            length = invisible(buffer, i, end)
            if length:
                i += length
                continue
        c, length = unescape(buffer, i, end)
        i += length
        if c <= 32:
            if not pre:
                space = True
                continue
            c = c if c == 9 or c == 10 else np.uint8(32)
        elif s[at.FIRST] == 0:
            begin_block(sheet, s[at.TOP])
        if space:
            if o > start:
                out[o] = 32
                o += 1
            space = False
        out[o] = c
        o += 1
    s[at.OUT], s[at.SPACE] = o, space
    if s[at.LINK]:
        s[at.LINK_BYTES] += o - before
    if s[at.BOLD]:
        s[at.BOLD_BYTES] += o - before


@bare_kernel
def write_raw(sheet: Any, i: int, end: int) -> None:
    """Text as it stands: of `xmp` and `plaintext`."""
    for k in range(i, end):
        sheet.out[sheet.state[at.OUT]] = sheet.buffer[k]
        sheet.state[at.OUT] += 1


@bare_kernel
def write_tex(sheet: Any, i: int, end: int, escaped: bool, display: bool) -> None:
    """The source of a formula between `$`, or `$$` where it is set apart, on one line."""
    s, buffer = sheet.state, sheet.buffer
    while i < end and buffer[i] <= 32:
        i += 1
    while end > i and buffer[end - 1] <= 32:
        end -= 1
    if i == end:
        return
    begin_block(sheet, sheet.elements[s[at.TOP], at.E_LINE])
    put(sheet, 36)
    if display:
        put(sheet, 36)
    while i < end:
        c, length = unescape(buffer, i, end) if escaped else (buffer[i], 1)
        i += length
        if c <= 32:
            s[at.SPACE] = 1
        else:
            put(sheet, c)
    put(sheet, 36)
    if display:
        put(sheet, 36)


@bare_kernel
def is_numbers(out: Any, start: int, end: int) -> Any:
    """Whether the bytes are digits and blanks, at least one digit."""
    digits = 0
    for i in range(start, end):
        c = out[i]
        if 48 <= c <= 57:
            digits += 1
        elif c != 32 and c != 10 and c != 9:
            return False
    return digits > 0


@bare_kernel
def is_anchor_sign(out: Any, start: int, end: int) -> Any:
    """Whether a link's text is the sign by which a heading links to itself: `#`, U+00B6, a glyph
    of an icon font (private use, U+E000 to U+F8FF)."""
    while start < end and out[start] == 32:
        start += 1
    if end - start == 1:
        return out[start] == 35
    if end - start == 2:
        return out[start] == 0xC2 and out[start + 1] == 0xB6
    if end - start != 3:
        return False
    return out[start] == 0xEE or (out[start] == 0xEF and out[start + 1] <= 0xA3)


@bare_kernel
def counts_up(out: Any, start: int, end: int) -> Any:
    """Whether the lines are two or more numbers, each one more than the last."""
    last, value, lines = np.int64(-1), np.int64(-1), 0
    for i in range(start, end + 1):
        c = out[i] if i < end else np.uint8(10)
        if 48 <= c <= 57:
            value = max(value, np.int64(0)) * 10 + np.int64(c) - 48
            if value > 9_999_999:
                return False
        elif c == 10:
            if value >= 0:
                if lines and value != last + 1:
                    return False
                last, value = value, np.int64(-1)
                lines += 1
        elif c != 32 and c != 9:
            return False
    return lines >= 2


@bare_kernel
def end_block(sheet: Any) -> None:
    """Fill the row of the block under way, or give its bytes back."""
    s, out = sheet.state, sheet.out
    start, end = s[at.START], s[at.OUT]
    while end > start and out[end - 1] <= 32:
        end -= 1
    first_line = start
    while start < end and out[start] <= 32:
        if out[start] == 10:
            first_line = start + 1
        start += 1
    start = first_line if s[at.PRE] else start
    listed = s[at.GUTTERS] > 0 and is_numbers(out, start, end)
    if listed:
        s[at.CODE_ROW] = sheet.elements[s[at.GUTTER_NODE], at.E_PARENT]
    if end == start or s[at.FIRST] == 0 or listed or (s[at.PRE] and counts_up(out, start, end)):
        s[at.OUT] = s[at.START]
    else:
        row = sheet.blocks[s[at.BLOCKS]]
        count_text(out, start, end, row, sheet.titles)
        row[voc.B_START], row[voc.B_END] = start, end
        row[voc.B_NODE], row[voc.B_FIRST] = s[at.NODE], s[at.FIRST]
        row[voc.B_TAG] = sheet.elements[s[at.NODE], at.E_TAG]
        row[voc.B_LINK], row[voc.B_LINKS] = s[at.LINK_BYTES], s[at.LINKS]
        row[voc.B_BR], row[voc.B_IMG], row[voc.B_BOLD] = (
            s[at.BREAKS],
            s[at.IMAGES],
            s[at.BOLD_BYTES],
        )
        s[at.BLOCKS] += 1
        s[at.BREAKS] = s[at.IMAGES] = 0
        s[at.OUT] = s[at.START] = end
    s[at.FIRST] = s[at.LINK_BYTES] = s[at.LINKS] = s[at.BOLD_BYTES] = s[at.SPACE] = 0


@bare_kernel
def break_line(sheet: Any, t: int) -> None:
    """End the block at a block-level tag or `<br>`; inside preformatted text `<br>` is a line."""
    s = sheet.state
    if t == BR and s[at.PRE]:
        sheet.out[s[at.OUT]] = 10
        s[at.OUT] += 1
        return
    breaks = s[at.BREAKS]
    blocks = s[at.BLOCKS]
    end_block(sheet)
    if t != BR:
        s[at.BREAKS] = 0
    else:
        s[at.BREAKS] = 1 if s[at.BLOCKS] > blocks else min(breaks + 1, 9)
