"""Kept blocks -> text. Paragraphs stand apart; lines, list items and table rows do not.

Items carry `- ` or their number, indented below their list's item; cells of a row are joined by
tabs, which no rule on words or symbols punishes and which still split into columns. Listings keep
their lines. Headings are plain lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.compiled import bare_kernel, kernel
from pipeline.extractor import vocabulary as voc
from pipeline.extractor.layout import CELL_BYTES, ITEM_BYTES, LI, is_value, new_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.extractor.page import Page

DT, DD = voc.TAG_CODE["dt"], voc.TAG_CODE["dd"]
BLOCK_ROOM = 64
"""Bytes that a block can get in front: line ends, tabs, indentation, a number."""
MOST_TABS, MOST_LEVELS = 16, 8
JOINED, LINE, PARAGRAPH, CELL = 0, 1, 2, 3
"""What stands before a block: a blank, a line end, an empty line, tabs."""


def page_text(page: Page, kept: NDArray[np.bool_]) -> str:
    """The text of the blocks that `kept` [n_blocks] marks."""
    if not kept.any():
        return ""
    out = assemble(
        page.text, page.blocks, page.parent, page.tag, page.bits, page.number, np.asarray(kept)
    )
    return out.tobytes().decode("utf-8", "replace")


@kernel
def assemble(
    text: Any, blocks: Any, parent: Any, tag: Any, bits: Any, number: Any, kept: Any
) -> Any:
    """The bytes of `page_text`."""
    layout = new_layout(blocks, parent, tag, bits, number, kept)
    room = 0
    for b in range(len(blocks)):
        if kept[b]:
            room += blocks[b, voc.B_END] - blocks[b, voc.B_START] + BLOCK_ROOM
    out = np.empty(room, np.uint8)
    return out[: write_blocks(out, text, blocks, parent, tag, kept, layout)]


@bare_kernel
def write_blocks(
    out: Any, text: Any, blocks: Any, parent: Any, tag: Any, kept: Any, layout: Any
) -> Any:
    """Write all kept blocks; the length."""
    o, last = 0, -1
    for b in range(len(blocks)):
        if not kept[b]:
            continue
        node = blocks[b, voc.B_NODE]
        cell = layout.cell[node]
        gap = PARAGRAPH
        if last >= 0:
            gap = gap_between(blocks[last], blocks[b], parent, tag, layout)
            o = write_gap(out, o, gap)
        if gap in (PARAGRAPH, LINE) and is_value(layout, parent, cell):
            o = write_tabs(out, o, layout.column[cell])
        elif gap == CELL:
            before = layout.cell[blocks[last, voc.B_NODE]]
            o = write_tabs(out, o, max(1, layout.column[cell] - layout.column[before]))
        if gap in (PARAGRAPH, LINE):
            o = write_marker(out, o, text, blocks[b], parent, layout)
        for i in range(blocks[b, voc.B_START], blocks[b, voc.B_END]):
            out[o] = text[i]
            o += 1
        last = b
    return o


@bare_kernel
def gap_between(a: Any, b: Any, parent: Any, tag: Any, layout: Any) -> Any:
    """What stands between two kept blocks that follow each other."""
    u, v = a[voc.B_NODE], b[voc.B_NODE]
    if layout.listing[u] and layout.listing[u] == layout.listing[v]:
        return LINE
    left, right = layout.cell[u], layout.cell[v]
    if left and right and (left != right or is_value(layout, parent, left)):
        return gap_in_table(a, b, parent, left, right, layout)
    if u == v and b[voc.B_BR]:
        return LINE if b[voc.B_BR] == 1 else PARAGRAPH
    if tag[u] in (DT, DD) and tag[v] in (DT, DD):
        return LINE
    i, j = layout.item[u], layout.item[v]
    if i == j or not related(layout, parent, i, j):
        return PARAGRAPH
    if layout.size[i] <= ITEM_BYTES and layout.size[j] <= ITEM_BYTES:
        return LINE
    return LINE if tag[u] == LI and tag[v] == LI else PARAGRAPH


@bare_kernel
def related(layout: Any, parent: Any, i: int, j: int) -> Any:
    """Whether two items are of one list, or one list is in an item of the other."""
    for _ in range(MOST_LEVELS):
        k = j
        for _ in range(MOST_LEVELS):
            if i == 0 or k == 0:
                break
            if i == k or parent[i] == parent[k]:
                return True
            k = layout.item[parent[k]]
        i = layout.item[parent[i]]
    return False


@bare_kernel
def gap_in_table(a: Any, b: Any, parent: Any, left: int, right: int, layout: Any) -> Any:
    """The gap between blocks of two cells, or of one that is a value."""
    if left == right:
        return JOINED
    values = is_value(layout, parent, left) and is_value(layout, parent, right)
    if parent[left] == parent[right]:
        return CELL if values else PARAGRAPH
    short = layout.size[left] <= CELL_BYTES and layout.size[right] <= CELL_BYTES
    listed = layout.listing[a[voc.B_NODE]] and layout.listing[b[voc.B_NODE]]
    return LINE if short or listed else PARAGRAPH


@bare_kernel
def write_gap(out: Any, o: int, gap: int) -> Any:
    """A blank, one or two line ends; cells write their own tabs."""
    if gap == JOINED:
        out[o] = 32
        return o + 1
    if gap == CELL:
        return o
    out[o] = 10
    if gap == PARAGRAPH:
        out[o + 1] = 10
    return o + gap


@bare_kernel
def write_tabs(out: Any, o: int, n: int) -> Any:
    """So many tabs, within reason."""
    for _ in range(min(n, MOST_TABS)):
        out[o] = 9
        o += 1
    return o


@bare_kernel
def write_marker(out: Any, o: int, text: Any, row: Any, parent: Any, layout: Any) -> Any:
    """The marker of the item that begins with this block, behind its indentation."""
    node = row[voc.B_NODE]
    item = layout.item[node]
    if item == 0 or layout.marked[item] or layout.listing[node]:
        return o
    if is_value(layout, parent, layout.cell[node]):
        return o
    if node != item and layout.size[item] > ITEM_BYTES:
        return o
    outer = layout.item[parent[item]]
    level = (layout.marked[outer] if outer else 0) + 1
    layout.marked[item] = level
    number = layout.number[item]
    if has_marker(text, row[voc.B_START], row[voc.B_END], number != voc.NO_NUMBER):
        return o
    for _ in range(2 * (min(level, MOST_LEVELS) - 1)):
        out[o] = 32
        o += 1
    if number == voc.NO_NUMBER:
        out[o] = 45
        o += 1
    else:
        o = write_number(out, o, number)
        out[o] = 46
        o += 1
    out[o] = 32
    return o + 1


@bare_kernel
def has_marker(text: Any, start: int, end: int, numbered: bool) -> Any:
    """Whether an item's text brings its own dash, star, bullet or number."""
    c = text[start]
    following = text[start + 1] if start + 1 < end else np.uint8(0)
    if numbered:
        k = start
        while k < end and 48 <= text[k] <= 57:
            k += 1
        return k > start and k < end and (text[k] == 46 or text[k] == 41)
    if c in (45, 42):
        return following == 32
    if c == 0xE2 and start + 2 < end:  # bullet U+2022, en dash U+2013
        return following == 0x80 and (text[start + 2] == 0xA2 or text[start + 2] == 0x93)
    return c == 0xC2 and following == 0xB7  # middle dot


@bare_kernel
def write_number(out: Any, o: int, number: int) -> Any:
    """The number in decimal digits."""
    value = np.int64(number)
    if value < 0:
        out[o] = 45
        o += 1
        value = -value
    power = np.int64(1)
    while power * 10 <= value:
        power *= 10
    while power:
        out[o] = 48 + value // power % 10
        o += 1
        power //= 10
    return o
