"""Compiled: where each kept block stands: in which list item, table cell and listing.

Passes over the elements, whose parents come first, and over the blocks. Cells are values where
their row has several and all of them are short; else the table only arranges the page.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.compiled import bare_kernel, kernel
from pipeline.extractor import vocabulary as voc

CELL_BYTES = 300
"""A row with a cell of more text is a part of the page, not a record."""
ITEM_BYTES = 500
"""A list item with more text below other elements is a part of the page: a post, a card."""

UL, OL, LI, TD, TH, TR, PRE, LISTING = (
    voc.TAG_CODE[name] for name in ("ul", "ol", "li", "td", "th", "tr", "pre", "listing")
)


class Layout(NamedTuple):
    """By element, 0 for none."""

    item: NDArray[np.int32]
    """The nearest list item inside the nearest cell."""
    cell: NDArray[np.int32]
    listing: NDArray[np.int32]
    """The outermost preformatted element."""
    number: NDArray[np.int32]
    """Of an item of an ordered list, else NO_NUMBER."""
    column: NDArray[np.int32]
    """Of a cell: how many cells that are kept, or empty, stand before it in its row."""
    size: NDArray[np.int64]
    """Kept bytes of an item (without items in it) or cell; of a row, its widest cell's."""
    cells: NDArray[np.int32]
    """Of a row: its cells with kept text."""
    marked: NDArray[np.int32]
    """Of an item: its level, 1 and up, once its marker is written."""


@kernel
def new_layout(blocks: Any, parent: Any, tag: Any, bits: Any, number: Any, kept: Any) -> Any:
    """The layout of the kept blocks of a page (`Page`'s arrays)."""
    n = len(parent)
    layout = Layout(
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
        np.full(n, voc.NO_NUMBER, np.int32),
        np.zeros(n, np.int32),
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.int32),
    )
    place_elements(layout, parent, tag, bits)
    number_items(layout, parent, tag, bits, number, np.zeros(n, np.int32))
    filled = np.zeros(n, np.bool_)
    measure(layout, blocks, parent, kept, filled)
    place_columns(layout, parent, tag, filled, np.zeros(n, np.int32))
    return layout


@bare_kernel
def place_elements(layout: Any, parent: Any, tag: Any, bits: Any) -> None:
    """Fill `item`, `cell` and `listing` from the parents'."""
    for v in range(1, len(parent)):
        p, t = parent[v], tag[v]
        layout.item[v], layout.cell[v] = layout.item[p], layout.cell[p]
        layout.listing[v] = layout.listing[p]
        if t == LI:
            layout.item[v] = v
        elif t in (TD, TH):
            layout.cell[v], layout.item[v] = v, 0
        if layout.listing[p] == 0 and (t in (PRE, LISTING) or bits[v] & voc.PREFORMATTED):
            layout.listing[v] = v


@bare_kernel
def number_items(
    layout: Any, parent: Any, tag: Any, bits: Any, number: Any, following: Any
) -> None:
    """Number the items of ordered lists by `start`, `value` and `reversed`."""
    for v in range(1, len(parent)):
        following[parent[v]] += tag[v] == LI
    for v in range(1, len(parent)):
        p = parent[v]
        if tag[v] == OL:
            if number[v] != voc.NO_NUMBER:
                following[v] = number[v]
            elif not bits[v] & voc.REVERSED:
                following[v] = 1
        elif tag[v] == LI and tag[p] == OL:
            if number[v] != voc.NO_NUMBER:
                following[p] = number[v]
            layout.number[v] = following[p]
            following[p] += -1 if bits[p] & voc.REVERSED else 1


@bare_kernel
def measure(layout: Any, blocks: Any, parent: Any, kept: Any, filled: Any) -> None:
    """Add up the kept bytes of items and cells; note the cells that hold any text."""
    for b in range(len(blocks)):
        node = blocks[b, voc.B_NODE]
        cell = layout.cell[node]
        filled[cell] = True
        if not kept[b]:
            continue
        size = blocks[b, voc.B_END] - blocks[b, voc.B_START]
        layout.size[layout.item[node]] += size
        if cell:
            row = parent[cell]
            layout.cells[row] += layout.size[cell] == 0
            layout.size[cell] += size + (CELL_BYTES if layout.listing[node] else 0)
            layout.size[row] = max(layout.size[row], layout.size[cell])


@bare_kernel
def place_columns(layout: Any, parent: Any, tag: Any, filled: Any, following: Any) -> None:
    """Fill `column`."""
    for v in range(1, len(parent)):
        if tag[v] in (TD, TH):
            p = parent[v]
            layout.column[v] = following[p]
            following[p] += layout.size[v] > 0 or not filled[v]


@bare_kernel
def is_value(layout: Any, parent: Any, cell: int) -> Any:
    """Whether the cell is one of several in a row of short ones."""
    row = parent[cell]
    return cell > 0 and layout.cells[row] > 1 and layout.size[row] <= CELL_BYTES
