"""The compiled parts of `features`: one kernel a family, each filling its own columns.

`out` is `[features of the family, blocks]`; rows, parents and the like are those of `page.Page`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.extractor.tallies import BLOCKS, CHARS, FIRST, LINKS, PROSE, SENTENCES
from pipeline.extractor.vocabulary import (
    B_BOLD,
    B_BR,
    B_CHARS,
    B_CJK,
    B_COMMA,
    B_DIGIT,
    B_END,
    B_FIRST,
    B_IMG,
    B_LINK,
    B_LINKS,
    B_NODE,
    B_SENT,
    B_SHORT,
    B_START,
    B_TAG,
    B_TITLE,
    B_UPPER,
    B_WORDS,
    GROUPS,
    HIDDEN,
    TAG_CODE,
)

N_GROUPS = len(GROUPS)
H1, H6 = TAG_CODE["h1"], TAG_CODE["h6"]
LEVELS = 5
"""Elements around a block that are described, its own included."""
REACH = 3
"""Blocks before and after that are described."""
FAR, STEPS = 24.0, 20
"""Distance to an ancestor that is not there; distances that are told apart."""
WHOLE_PAGE = 0.85
"""An element with this share of the text is the page, not a section of it."""
NO_H1 = -999


@kernel
def own(out: Any, text: Any, rows: Any, copies: Any) -> Any:
    """The text of the block itself."""
    for b in range(len(rows)):
        row = rows[b]
        size = float(row[B_END] - row[B_START])
        words, chars = float(row[B_WORDS]), float(max(1, row[B_CHARS]))
        per_word = 1.0 / (words + 1.0)
        out[0, b] = words
        out[1, b] = size
        out[2, b] = min(1.0, row[B_LINK] / size)
        out[3, b] = row[B_LINKS]
        out[4, b] = row[B_SENT]
        out[5, b] = row[B_COMMA] * per_word
        out[6, b] = row[B_DIGIT] / chars
        out[7, b] = row[B_UPPER] / chars
        out[8, b] = row[B_SHORT] * per_word
        out[9, b] = chars * per_word
        out[10, b] = row[B_CJK] / chars
        out[11, b] = row[B_BR]
        out[12, b] = row[B_IMG]
        out[13, b] = min(1.0, row[B_BOLD] / size)
        out[14, b] = _ending(text[row[B_END] - 1])
        out[15, b] = _beginning(text[row[B_START]])
        out[16, b] = row[B_TITLE] * per_word
        out[17, b] = row[B_TITLE]
        out[18, b] = copies[b]


@kernel
def _ending(byte: Any) -> Any:
    """Kind of last character: . 3, ! or ? 2, : or a quote 1, beyond ASCII 4."""
    if byte == 46:
        return 3.0
    if byte == 33 or byte == 63:
        return 2.0
    if byte == 58 or byte == 34:
        return 1.0
    return 4.0 if byte >= 0x80 else 0.0


@kernel
def _beginning(byte: Any) -> Any:
    """Kind of first character: lower case 0, capital 1, digit 2, beyond ASCII 3, other 4."""
    if 97 <= byte <= 122:
        return 0.0
    if 65 <= byte <= 90:
        return 1.0
    if 48 <= byte <= 57:
        return 2.0
    return 3.0 if byte >= 0x80 else 4.0


@kernel
def place(out: Any, rows: Any, depth: Any, prose: Any, body: Any) -> Any:
    """Where the block stands, under which heading, after how much prose."""
    n = len(rows)
    total, first_h1 = 0.0, -1
    for b in range(n):
        total += rows[b, B_END] - rows[b, B_START]
        if rows[b, B_TAG] == H1 and first_h1 < 0:
            first_h1 = b
    seen, heading, since, words_since = 0.0, 0, 0, 0
    prose_before, body_before = 0, 0
    for b in range(n):
        row = rows[b]
        words = row[B_WORDS]
        if H1 <= row[B_TAG] <= H6:
            heading, since, words_since = row[B_TAG] - H1 + 1, 0, 0
        out[0, b] = b / n
        out[1, b] = seen / total
        out[2, b] = b
        out[3, b] = depth[row[B_NODE]]
        out[4, b] = heading
        out[5, b] = since
        out[6, b] = words_since
        out[7, b] = b - first_h1 if first_h1 >= 0 else NO_H1
        out[8, b] = prose_before
        out[9, b] = body_before
        seen += row[B_END] - row[B_START]
        since += 1
        words_since += words
        prose_before += words * prose[b]
        body_before += words * body[b]


@kernel
def ancestors(
    says: Any, inside: Any, rows: Any, parent: Any, tag: Any, bits: Any, tag_bits: Any
) -> Any:
    """Steps up to the nearest ancestor of each kind; the bytes of the page under each word group.

    The last row of `inside` says whether the block is hidden.
    """
    n_tags = len(inside) - 1
    says[:] = FAR
    inside[:n_tags] = FAR
    mass = np.zeros(N_GROUPS)
    every_group = (np.int64(1) << N_GROUPS) - 1
    for b in range(len(rows)):
        size = rows[b, B_END] - rows[b, B_START]
        group_left, tag_left = every_group, (np.int64(1) << n_tags) - 1
        v, step = rows[b, B_FIRST], 0
        hidden = False
        while v > 0:
            distance = min(step, STEPS)
            hidden = hidden or bits[v] & HIDDEN != 0
            new = bits[v] & group_left
            group_left &= ~new
            k = 0
            while new:
                if new & 1:
                    says[k, b] = distance
                    mass[k] += size
                new >>= 1
                k += 1
            new = tag_bits[tag[v]] & tag_left
            tag_left &= ~new
            k = 0
            while new:
                if new & 1:
                    inside[k, b] = distance
                new >>= 1
                k += 1
            v = parent[v]
            step += 1
        inside[n_tags, b] = hidden
    return mass


@kernel
def inherited(bits: Any, parent: Any) -> Any:
    """The bits of each element and of all that hold it, `[elements]`."""
    out = bits.copy()
    for v in range(1, len(out)):
        out[v] |= out[parent[v]]
    return out


@kernel
def around(out: Any, section: Any, rows: Any, parent: Any, sums: Any) -> Any:
    """The elements around the block, and the largest of them that is not nearly the page."""
    total = sums[0, CHARS]
    for b in range(len(rows)):
        v = rows[b, B_NODE]
        for level in range(LEVELS):
            k = 5 * level
            out[k, b] = sums[v, CHARS]
            out[k + 1, b] = sums[v, LINKS] / (sums[v, CHARS] + 1)
            out[k + 2, b] = sums[v, BLOCKS]
            out[k + 3, b] = sums[v, PROSE]
            out[k + 4, b] = sums[v, CHARS] / total
            if parent[v] > 0:
                v = parent[v]
        v = rows[b, B_NODE]
        while parent[v] > 0 and sums[parent[v], CHARS] < WHOLE_PAGE * total:
            v = parent[v]
        section[0, b] = sums[v, CHARS] / total
        section[1, b] = sums[v, LINKS] / (sums[v, CHARS] + 1)
        section[2, b] = sums[v, PROSE]
        section[3, b] = b - sums[v, FIRST]
        section[4, b] = sums[v, BLOCKS]
        section[5, b] = sums[v, SENTENCES] / (sums[v, BLOCKS] + 1)


@kernel
def alike(out: Any, rows: Any, parent: Any, siblings: Any, same: Any) -> Any:
    """How often the elements around the block come again: beside them (4), in the page (3)."""
    for b in range(len(rows)):
        v = rows[b, B_NODE]
        for level in range(4):
            out[level, b] = siblings[v] if v else 0
            if level < 3:
                out[4 + level, b] = same[v] if v else 0
            if parent[v] > 0:
                v = parent[v]


@kernel
def kin(out: Any, rows: Any, group: Any, links: Any) -> Any:
    """Blocks in look-alike places: how many, their mean words, their mean share of links."""
    n = len(rows)
    count, words, linked = np.zeros(n), np.zeros(n), np.zeros(n)
    for b in range(n):
        count[group[b]] += 1
        words[group[b]] += rows[b, B_WORDS]
        linked[group[b]] += links[b]
    for b in range(n):
        g = group[b]
        out[0, b] = count[g]
        out[1, b] = words[g] / count[g]
        out[2, b] = linked[g] / count[g]


@kernel
def dense(
    out: Any, rows: Any, parent: Any, depth: Any, densest: Any, on_path: Any, share: Any
) -> Any:
    """Steps from the block up to the path of the densest element, and from there down to it."""
    for b in range(len(rows)):
        v = rows[b, B_NODE]
        while not on_path[v]:
            v = parent[v]
        out[0, b] = depth[rows[b, B_NODE]] - depth[v]
        out[1, b] = depth[densest] - depth[v]
        out[2, b] = share


@kernel
def near(out: Any, rows: Any, parent: Any, depth: Any, signature: Any) -> Any:
    """The neighbours in reading order, and the steps up to what holds both."""
    n = len(rows)
    k = 0
    for step in range(-REACH, REACH + 1):
        if step == 0:
            continue
        for b in range(n):
            q = b + step
            if not 0 <= q < n:
                out[k, b] = out[k + 1, b] = -1
                continue
            row = rows[q]
            u, v = rows[b, B_NODE], row[B_NODE]
            out[k, b] = row[B_WORDS]
            out[k + 1, b] = min(1.0, row[B_LINK] / (row[B_END] - row[B_START]))
            out[k + 2, b] = row[B_SENT]
            if H1 <= row[B_TAG] <= H6:
                out[k + 3, b] = 2
            elif signature[u] == signature[v]:
                out[k + 3, b] = 1
            while u != v:  # the larger number lies deeper, or beside
                if u > v:
                    u = parent[u]
                else:
                    v = parent[v]
            out[k + 4, b] = depth[rows[b, B_NODE]] - depth[u]
        k += 5
