"""Compiled: what the pass writes on, and how text gets there.

A block is the text between two tags that end a line. It grows at the end of `out`; when it ends,
its row is filled, or its bytes are given back where it holds nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from pipeline.extractor.counts import count_text
from pipeline.extractor.vocabulary import (
    B_BOLD, B_BR, B_END, B_FIRST, B_IMG, B_LINK, B_LINKS, B_NODE, B_START, B_TAG, N_COLUMNS,
)  # fmt: skip

(
    OUT, BLOCKS, ELEMENTS, TOP, START, FIRST, NODE, SPACE, LINK, LINK_BYTES, LINKS, IMAGES, BOLD,
    BOLD_BYTES, BREAKS, PRE, SKIP, SKIP_DEPTH, SKIP_POPS, MATH, MATH_SPACE, ALT_START, ALT_END,
    DRAWN, GUTTERS, GUTTER_NODE, CODE_ROW, RAISED, RAISED_LINKS, HINTS, TITLE_START, TITLE_END,
) = range(32)  # fmt: skip
"""Places in `Sheet.state`: lengths of the outputs and the innermost open element; of the block
under way its start, element of the first character, nearest block-level element, whether a blank
is due, what is inside links and bold; open `pre`; the tag that is skipped, how often it is open,
and whether it was entered as an element; the open formula; where the drawing of a formula with
source may stand; open line numbers; a row of code; start of a raised or lowered text; hints;
title."""
N_STATE = 32


class Sheet(NamedTuple):
    """Input, outputs and state of one pass."""

    buffer: NDArray[np.uint8]
    out: NDArray[np.uint8]
    blocks: NDArray[np.int64]
    parent: NDArray[np.int32]
    tag: NDArray[np.int16]
    bits: NDArray[np.int64]
    sig: NDArray[np.uint64]
    number: NDArray[np.int32]
    name: NDArray[np.uint64]
    line: NDArray[np.int32]
    """Of an element the nearest block-level one, itself included."""
    at: NDArray[np.int64]
    """Where in `out` an element begins."""
    children: NDArray[np.int32]
    state: NDArray[np.int64]


@njit(cache=True, nogil=True)
def new_sheet(buffer: Any) -> Any:
    """Room for all that the bytes can hold: no more elements and blocks than `<`."""
    tags = 2
    for i in range(len(buffer)):
        tags += buffer[i] == 60
    sheet = Sheet(
        buffer,
        np.empty(len(buffer) + 16, np.uint8),
        np.empty((tags, N_COLUMNS), np.int64),
        np.empty(tags, np.int32),
        np.empty(tags, np.int16),
        np.empty(tags, np.int64),
        np.empty(tags, np.uint64),
        np.empty(tags, np.int32),
        np.empty(tags, np.uint64),
        np.empty(tags, np.int32),
        np.empty(tags, np.int64),
        np.empty(tags, np.int32),
        np.zeros(N_STATE, np.int64),
    )
    sheet.state[RAISED] = sheet.state[TITLE_START] = -1
    return sheet


@njit(cache=True, nogil=True)
def begin_block(sheet: Any, element: int) -> None:
    """Note where the block's text begins, unless it has begun."""
    if sheet.state[FIRST] == 0:
        sheet.state[FIRST] = element
        sheet.state[NODE] = sheet.line[element]


@njit(cache=True, nogil=True)
def put(sheet: Any, c: int) -> None:
    """One byte, after the blank that may be due."""
    s = sheet.state
    if s[SPACE] and s[OUT] > s[START]:
        sheet.out[s[OUT]] = 32
        s[OUT] += 1
    s[SPACE] = 0
    sheet.out[s[OUT]] = c
    s[OUT] += 1


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def invisible(buffer: Any, k: int, end: int) -> Any:
    """The length of a soft hyphen or byte order mark at `k`, else 0."""
    if buffer[k] == 0xC2:
        return 2 if k + 1 < end and buffer[k + 1] == 0xAD else 0
    if buffer[k] == 0xEF and k + 2 < end and buffer[k + 1] == 0xBB and buffer[k + 2] == 0xBF:
        return 3
    return 0


@njit(cache=True, nogil=True)
def write_text(sheet: Any, i: int, end: int) -> None:
    """Text between two tags: entities read, runs of blanks one blank but in preformatted text."""
    s, out, buffer = sheet.state, sheet.out, sheet.buffer
    before = o = s[OUT]
    start, pre, space = s[START], s[PRE] > 0, s[SPACE] != 0
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
        elif s[FIRST] == 0:
            begin_block(sheet, s[TOP])
        if space:
            if o > start:
                out[o] = 32
                o += 1
            space = False
        out[o] = c
        o += 1
    s[OUT], s[SPACE] = o, space
    if s[LINK]:
        s[LINK_BYTES] += o - before
    if s[BOLD]:
        s[BOLD_BYTES] += o - before


@njit(cache=True, nogil=True)
def write_raw(sheet: Any, i: int, end: int) -> None:
    """Text as it stands: of `xmp` and `plaintext`."""
    for k in range(i, end):
        sheet.out[sheet.state[OUT]] = sheet.buffer[k]
        sheet.state[OUT] += 1


@njit(cache=True, nogil=True)
def write_tex(sheet: Any, i: int, end: int, escaped: bool, display: bool) -> None:
    """The source of a formula between `$`, or `$$` where it is set apart, on one line."""
    s, buffer = sheet.state, sheet.buffer
    while i < end and buffer[i] <= 32:
        i += 1
    while end > i and buffer[end - 1] <= 32:
        end -= 1
    if i == end:
        return
    begin_block(sheet, sheet.line[s[TOP]])
    put(sheet, 36)
    if display:
        put(sheet, 36)
    while i < end:
        c, length = unescape(buffer, i, end) if escaped else (buffer[i], 1)
        i += length
        if c <= 32:
            s[SPACE] = 1
        else:
            put(sheet, c)
    put(sheet, 36)
    if display:
        put(sheet, 36)


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def counts_up(out: Any, start: int, end: int) -> Any:
    """Whether the lines are two or more numbers, each one more than the last."""
    last, value, lines = -1, -1, 0
    for i in range(start, end + 1):
        c = out[i] if i < end else np.uint8(10)
        if 48 <= c <= 57:
            value = max(value, 0) * 10 + np.int64(c) - 48
            if value > 9_999_999:
                return False
        elif c == 10:
            if value >= 0:
                if lines and value != last + 1:
                    return False
                last, value = value, -1
                lines += 1
        elif c != 32 and c != 9:
            return False
    return lines >= 2


@njit(cache=True, nogil=True)
def end_block(sheet: Any, title_keys: Any) -> None:
    """Fill the row of the block under way, or give its bytes back."""
    s, out = sheet.state, sheet.out
    start, end = s[START], s[OUT]
    while end > start and out[end - 1] <= 32:
        end -= 1
    first_line = start
    while start < end and out[start] <= 32:
        if out[start] == 10:
            first_line = start + 1
        start += 1
    start = first_line if s[PRE] else start
    listed = s[GUTTERS] > 0 and is_numbers(out, start, end)
    if listed:
        s[CODE_ROW] = sheet.parent[s[GUTTER_NODE]]
    if end == start or s[FIRST] == 0 or listed or (s[PRE] and counts_up(out, start, end)):
        s[OUT] = s[START]
    else:
        row = sheet.blocks[s[BLOCKS]]
        count_text(out, start, end, row, title_keys)
        row[B_START], row[B_END] = start, end
        row[B_NODE], row[B_FIRST], row[B_TAG] = s[NODE], s[FIRST], sheet.tag[s[NODE]]
        row[B_LINK], row[B_LINKS] = s[LINK_BYTES], s[LINKS]
        row[B_BR], row[B_IMG], row[B_BOLD] = s[BREAKS], s[IMAGES], s[BOLD_BYTES]
        s[BLOCKS] += 1
        s[BREAKS] = s[IMAGES] = 0
        s[OUT] = s[START] = end
    s[FIRST] = s[LINK_BYTES] = s[LINKS] = s[BOLD_BYTES] = s[SPACE] = 0
    s[RAISED] = -1
