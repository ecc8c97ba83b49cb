"""Compiled: what a choice of blocks tears apart is put together: tables, and listings in a text.

Forests judge blocks one by one, and short ones are hard: the first column of a table that is main
text, a command between two paragraphs. On pages of hosts not seen, 151 of 195 cells added here are
main text, and 16 of 16 listings; on 693 pages of manuals, 55 had lost a listing and 44 some cells.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import bare_kernel, kernel
from pipeline.extractor import vocabulary as voc
from pipeline.extractor.layout import LISTING, PRE, TD, is_value, new_layout

KEPT_SHARE = 0.6
"""A table is taken whole where so much of its words is kept: 0.5 and 0.7 are as good."""
TABLE = voc.TAG_CODE["table"]


@kernel
def complete(blocks: Any, parent: Any, tag: Any, bits: Any, number: Any, p: Any, kept: Any) -> Any:
    """`kept` [n_blocks], and what belongs to it: the other cells of tables that are kept for the
    most part, and listings next to a kept block. A block of probability 0 stays out."""
    layout = new_layout(blocks, parent, tag, bits, number, np.ones(len(blocks), np.bool_))
    whole, n = kept.copy(), len(parent)
    table, words = np.zeros(n, np.int32), np.zeros((n, 2), np.int64)
    complete_tables(blocks, parent, tag, layout, p, kept, whole, table, words)
    complete_listings(blocks, tag, layout, p, kept, whole)
    return whole


@bare_kernel
def complete_tables(
    blocks: Any,
    parent: Any,
    tag: Any,
    layout: Any,
    p: Any,
    kept: Any,
    whole: Any,
    table: Any,
    words: Any,
) -> None:
    """Keep the cells of a table's rows of values where most of their words are kept.

    `table` is scratch by element, the table around it; `words` [n_elements, 2], all and kept ones.
    """
    for v in range(1, len(parent)):
        table[v] = v if tag[v] == TABLE else table[parent[v]]
    for b in range(len(blocks)):
        cell = layout.cell[blocks[b, voc.B_NODE]]
        if is_value(layout, parent, cell):
            weight = 2 * blocks[b, voc.B_WORDS] + 1
            words[table[cell], 0] += weight
            words[table[cell], 1] += weight if kept[b] else 0
    for b in range(len(blocks)):
        cell = layout.cell[blocks[b, voc.B_NODE]]
        if p[b] > 0 and is_value(layout, parent, cell):
            t = table[cell]
            whole[b] |= t > 0 and words[t, 1] >= KEPT_SHARE * words[t, 0]


@bare_kernel
def complete_listings(blocks: Any, tag: Any, layout: Any, p: Any, kept: Any, whole: Any) -> None:
    """Keep a run of blocks in listings that follows a kept block, or is followed by one."""
    n = len(blocks)
    b = 0
    while b < n:
        first = b
        while b < n and tag[layout.listing[blocks[b, voc.B_NODE]]] in (PRE, LISTING, TD):
            b += 1
        if b == first:
            b += 1
        elif (first > 0 and kept[first - 1]) or (b < n and kept[b]):
            for k in range(first, b):
                whole[k] |= p[k] > 0
