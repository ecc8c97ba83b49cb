"""The compiled parts of `context`: one kernel a family, each filling its own columns.

`out` is `[features of the family, blocks]`; `p` and `weight` are `[blocks]`; means of p are
weighted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.extractor.vocabulary import TAG_CODE

STEPS = (-3, -2, -1, 1, 2, 3)
WINDOWS = (2, 5, 12)
"""Blocks to either side of a window."""
CONTAINERS = 3
HALF, MOST = 0.5, 0.8
"""Shares of the expected main text."""
NONE = -1.0
"""In the place of a probability that is not there."""
NO_BLOCK = 999
H1, H6 = TAG_CODE["h1"], TAG_CODE["h6"]


@kernel
def sums_up(p: Any, weight: Any, node: Any, parent: Any) -> Any:
    """Of each element, the weight of its blocks and the weighted sum of p, `[elements, 2]`."""
    up = np.zeros((len(parent), 2))
    for b in range(len(p)):
        up[node[b], 0] += weight[b]
        up[node[b], 1] += weight[b] * p[b]
    for v in range(len(parent) - 1, 0, -1):
        up[parent[v], 0] += up[v, 0]
        up[parent[v], 1] += up[v, 1]
    return up


@kernel
def near(out: Any, p: Any, weight: Any) -> None:
    """The block, its neighbours, and windows around it."""
    n = len(p)
    run = np.zeros((n + 1, 2))
    for b in range(n):
        run[b + 1, 0] = run[b, 0] + weight[b]
        run[b + 1, 1] = run[b, 1] + weight[b] * p[b]
    for b in range(n):
        out[0, b] = p[b]
        k = 1
        for step in STEPS:
            out[k, b] = p[b + step] if 0 <= b + step < n else NONE
            k += 1
        for width in WINDOWS:
            low, high = max(0, b - width), min(n, b + width + 1)
            out[k, b] = (run[high, 1] - run[low, 1]) / (run[high, 0] - run[low, 0])
            k += 1


@kernel
def around(out: Any, p: Any, weight: Any, node: Any, parent: Any, up: Any, kin: Any) -> None:
    """The elements around, the look-alike blocks, the page and the place in its main text."""
    n = len(p)
    same = np.zeros((n, 2))
    first, last = n, -1
    for b in range(n):
        same[kin[b], 0] += weight[b]
        same[kin[b], 1] += weight[b] * p[b]
        if p[b] > HALF:
            first, last = min(first, b), b
    seen = 0.0
    for b in range(n):
        v = node[b]
        for k in range(CONTAINERS):
            if parent[v] > 0:
                v = parent[v]
            out[k, b] = up[v, 1] / up[v, 0]
        out[3, b] = same[kin[b], 1] / same[kin[b], 0]
        out[4, b] = up[0, 1] / up[0, 0]
        out[5, b] = up[0, 1]
        out[6, b] = seen / (up[0, 1] + 1e-9)
        out[7, b] = b - first
        out[8, b] = last - b
        seen += weight[b] * p[b]


@kernel
def beside(out: Any, node: Any, parent: Any, up: Any) -> None:
    """The nearest elements with text before and after the block's container, and after its."""
    n = len(parent)
    before, after, latest = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    for v in range(1, n):
        if up[v, 0] > 0:
            before[v] = latest[parent[v]]
            after[before[v]] = v
            latest[parent[v]] = v
    for b in range(len(node)):
        v = node[b]
        for level in range(2):
            if parent[v] > 0:
                v = parent[v]
            u, w = before[v], after[v]
            out[2 * level, b] = up[u, 1] / up[u, 0] if u else NONE
            out[2 * level + 1, b] = up[w, 1] / up[w, 0] if w else NONE


@kernel
def headed(out: Any, p: Any, weight: Any, tag: Any) -> None:
    """The blocks from one heading to the next."""
    n = len(p)
    start, before = 0, NONE
    while start < n:
        end = start + 1
        while end < n and not H1 <= tag[end] <= H6:
            end += 1
        total = weight[start:end].sum()
        mean = (weight[start:end] * p[start:end]).sum() / total
        out[0, start:end] = mean
        out[1, start:end] = p[start]
        out[2, start:end] = before
        out[3, start:end] = NONE
        if start:
            k = start - 1
            while k >= 0 and out[3, k] == NONE:
                out[3, k] = mean
                k -= 1
        start, before = end, mean


@kernel
def cut(out: Any, p: Any, weight: Any, kept: Any) -> None:
    """Where the first forest would cut, runs of kept blocks (words) and of others (minus words)."""
    n = len(p)
    lowest = 1.0
    for b in range(n):
        if kept[b]:
            lowest = min(lowest, p[b])
    start, longest = 0, 0.0
    while start < n:
        end = start
        while end < n and kept[end] == kept[start]:
            end += 1
        words = weight[start:end].sum()
        if kept[start]:
            longest = max(longest, words)
        out[2, start:end] = words if kept[start] else -words
        start = end
    latest = -NO_BLOCK
    for b in range(n):
        out[0, b] = lowest
        out[1, b] = p[b] - lowest
        out[3, b] = out[2, b] / (longest + 1.0)
        out[4, b] = min(b - latest, NO_BLOCK)
        if kept[b]:
            latest = b
    following = n + NO_BLOCK
    for b in range(n - 1, -1, -1):
        out[5, b] = min(following - b, NO_BLOCK)
        if kept[b]:
            following = b


@kernel
def main(out: Any, node: Any, parent: Any, depth: Any, up: Any) -> None:
    """Whether the block is in the deepest element with so much of the expected main text; the steps
    from that element up to what holds both, or (negative) down to the block."""
    inside = np.zeros(len(parent), np.bool_)
    for k in range(2):
        share = HALF if k == 0 else MOST
        deepest = 0
        for v in range(1, len(parent)):  # such elements hold each other: the last is the deepest
            if up[v, 1] >= share * up[0, 1]:
                deepest = v
        inside[:] = False
        inside[deepest] = True
        for v in range(deepest + 1, len(parent)):
            inside[v] = inside[parent[v]]
        for b in range(len(node)):
            u, v = node[b], deepest
            while u != v:
                if u > v:
                    u = parent[u]
                else:
                    v = parent[v]
            within = inside[node[b]]
            out[2 * k, b] = within
            out[2 * k + 1, b] = (
                depth[deepest] - depth[node[b]] if within else depth[deepest] - depth[u]
            )
            out[4, b] = up[deepest, 1] / (up[deepest, 0] + 1.0)
