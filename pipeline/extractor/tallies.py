"""What an element holds in all, and which elements or blocks look alike: counted once a page.

Elements are numbered in document order, so a parent has a smaller number than its children: one
pass backwards sums everything up the tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.extractor.vocabulary import (
    B_END,
    B_FIRST,
    B_LINK,
    B_NODE,
    B_SENT,
    B_START,
    B_WORDS,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.extractor.page import Page

PROSE_WORDS, PROSE_LINKS = 10, 0.3
"""A block of so many words, and with a smaller share of its bytes in links, is prose."""
CHARS, LINKS, BLOCKS, PROSE, SENTENCES, FIRST = range(6)
"""Columns of `Tally.sums`."""
PRIME = np.uint64(0x9E3779B97F4A7C15)
OWN_SHARE, PARENT_SHARE, GRANDPARENT_SHARE = 0.3, 1.0, 0.5
"""How a paragraph's words speak for the elements around it, as readability scores them."""


@dataclass(frozen=True)
class Tally:
    """Counts over the elements of a page, `[elements]` each, and the page's densest element."""

    depth: NDArray[np.int32]
    sums: NDArray[np.float64]
    """`[elements, 6]`: bytes, bytes in links, blocks, words of prose, sentences, first block."""
    siblings: NDArray[np.int32]
    """Elements with the same parent and the same signature (tag, classes without digits)."""
    alike: NDArray[np.int32]
    """Elements with the same signature anywhere."""
    densest: int
    on_path: NDArray[np.bool_]
    """Whether the element holds the densest one, or is it."""
    prose: NDArray[np.bool_]
    """`[blocks]`"""
    kin: NDArray[np.int32]
    """`[blocks]`: the group of blocks whose element, parent and grandparent look the same."""


def tally(page: Page) -> Tally:
    """Count a page."""
    rows, parent, signature = page.blocks, page.parent, page.sig
    size = rows[:, B_END] - rows[:, B_START]
    prose = (rows[:, B_WORDS] >= PROSE_WORDS) & (rows[:, B_LINK] < PROSE_LINKS * size)
    depth, sums, score = up_the_tree(rows, parent, prose)
    siblings, alike = (
        of_size(equal(keys))
        for keys in ((signature ^ parent.astype(np.uint64)) * PRIME, signature * PRIME)
    )
    densest, on_path = find_densest(parent, sums, score)
    kin, _ = equal(kin_keys(rows, parent, signature))
    return Tally(depth, sums, siblings, alike, int(densest), on_path, prose, kin)


def of_size(groups: tuple[NDArray[np.int32], NDArray[np.int32]]) -> NDArray[np.int32]:
    """For each key the number of keys equal to it, from `equal`."""
    group, size = groups
    return size[group]


def kin_keys(
    rows: NDArray[np.int64], parent: NDArray[np.int32], signature: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """`[blocks]`: equal for blocks in look-alike places, such as all replies of a thread."""
    node = rows[:, B_NODE]
    key = signature[rows[:, B_FIRST]] * PRIME ^ signature[node]
    key = key * PRIME ^ signature[parent[node]]
    return (key * PRIME ^ signature[parent[parent[node]]]) * PRIME


@kernel
def equal(keys: Any) -> Any:
    """The group of each key, numbered by first appearance, and the size of each group."""
    slots = 2
    while slots < 2 * len(keys):
        slots *= 2
    mask = np.uint64(slots - 1)
    owner = np.full(slots, -1, np.int32)
    first = np.empty(len(keys), np.int64)
    group = np.empty(len(keys), np.int32)
    size = np.zeros(len(keys), np.int32)
    n = 0
    for i in range(len(keys)):
        slot = (keys[i] ^ (keys[i] >> np.uint64(29))) & mask
        while owner[slot] >= 0 and keys[first[owner[slot]]] != keys[i]:
            slot = (slot + np.uint64(1)) & mask
        if owner[slot] < 0:
            owner[slot] = n
            first[n] = i
            n += 1
        group[i] = owner[slot]
        size[group[i]] += 1
    return group, size[:n]


@kernel
def up_the_tree(rows: Any, parent: Any, prose: Any) -> Any:
    """Depth, sums and readability-like score of each element."""
    n = len(parent)
    depth = np.zeros(n, np.int32)
    sums = np.zeros((n, 6))
    sums[:, FIRST] = len(rows)
    score = np.zeros(n)
    for v in range(1, n):
        depth[v] = depth[parent[v]] + 1
    for b in range(len(rows)):
        row = rows[b]
        v = row[B_NODE]
        sums[v, CHARS] += row[B_END] - row[B_START]
        sums[v, LINKS] += row[B_LINK]
        sums[v, BLOCKS] += 1
        sums[v, SENTENCES] += row[B_SENT]
        sums[v, FIRST] = min(sums[v, FIRST], b)
        if prose[b]:
            sums[v, PROSE] += row[B_WORDS]
            score[v] += OWN_SHARE * row[B_WORDS]
            score[parent[v]] += PARENT_SHARE * row[B_WORDS]
            score[parent[parent[v]]] += GRANDPARENT_SHARE * row[B_WORDS]
    for v in range(n - 1, 0, -1):
        above = parent[v]
        for k in range(FIRST):
            sums[above, k] += sums[v, k]
        sums[above, FIRST] = min(sums[above, FIRST], sums[v, FIRST])
    return depth, sums, score


@kernel
def find_densest(parent: Any, sums: Any, score: Any) -> Any:
    """The element with the most prose directly under it that is not in links, and its ancestors."""
    best, densest = -1.0, 0
    for v in range(1, len(parent)):
        if sums[v, CHARS] > 0:
            value = score[v] * (1 - sums[v, LINKS] / sums[v, CHARS])
            if value > best:
                best, densest = value, v
    on_path = np.zeros(len(parent), np.bool_)
    v = densest
    while v > 0:
        on_path[v] = True
        v = parent[v]
    on_path[0] = True
    return densest, on_path
