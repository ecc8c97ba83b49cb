"""What the second forest sees: the first one's answers around the block.

A block alone may be unsure; the paragraphs before and after it, the others in its containers and
those in look-alike places (all replies of a thread, all prices of a list) seldom are. One pass of
stacking (Wolpert 1992; for web pages Web2Text, arXiv:1801.02607, smooths with a Markov model).
The first forest's answers in training come from folds that have not seen the page's host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from pipeline.extractor.vocabulary import B_NODE, B_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.extractor.page import Page
    from pipeline.extractor.tallies import Tally

REACH = 3
WINDOWS = (2, 5, 12)
"""Blocks to either side of a window."""
CONTAINERS = 3
MAX_WORDS = 200.0
"""A block weighs as many words as it has, up to this, plus one."""
NAMES = (
    "p",
    *(f"p{step:+d}" for step in (*range(-REACH, 0), *range(1, REACH + 1))),
    *(f"p_window{width}" for width in WINDOWS),
    *(f"p_up{k}" for k in range(1, CONTAINERS + 1)),
    "p_kin",
    "p_page",
    "p_page_words",
    "p_before",
    "since_first",
    "until_last",
)


def context_features(p: NDArray[np.float32], page: Page, counts: Tally) -> NDArray[np.float32]:
    """`[features, blocks]`, in the order of `NAMES`, from the probabilities of a page's blocks."""
    columns = np.zeros((len(NAMES), len(p)), np.float32)
    weight = np.minimum(page.blocks[:, B_WORDS], MAX_WORDS) + 1.0
    n_kin = int(counts.kin.max(initial=-1)) + 1
    _context(columns, p, weight, page.blocks[:, B_NODE], page.parent, counts.kin, n_kin)
    return columns


@njit(cache=True, nogil=True)
def _context(out: Any, p: Any, weight: Any, node: Any, parent: Any, kin: Any, n_kin: Any) -> Any:
    n = len(p)
    up = np.zeros((len(parent), 2))
    same = np.zeros((n_kin, 2))
    run = np.zeros((n + 1, 2))
    first, last = n, -1
    for b in range(n):
        w, wp = weight[b], weight[b] * p[b]
        up[node[b], 0] += w
        up[node[b], 1] += wp
        same[kin[b], 0] += w
        same[kin[b], 1] += wp
        run[b + 1, 0] = run[b, 0] + w
        run[b + 1, 1] = run[b, 1] + wp
        if p[b] > 0.5:
            first, last = min(first, b), b
    for v in range(len(parent) - 1, 0, -1):
        up[parent[v], 0] += up[v, 0]
        up[parent[v], 1] += up[v, 1]
    for b in range(n):
        out[0, b] = p[b]
        k = 1
        for step in range(-REACH, REACH + 1):
            if step:
                out[k, b] = p[b + step] if 0 <= b + step < n else -1.0
                k += 1
        for width in WINDOWS:
            low, high = max(0, b - width), min(n, b + width + 1)
            out[k, b] = (run[high, 1] - run[low, 1]) / (run[high, 0] - run[low, 0])
            k += 1
        v = node[b]
        for _ in range(CONTAINERS):
            if parent[v] > 0:
                v = parent[v]
            out[k, b] = up[v, 1] / up[v, 0]
            k += 1
        out[k, b] = same[kin[b], 1] / same[kin[b], 0]
        out[k + 1, b] = run[n, 1] / run[n, 0]
        out[k + 2, b] = run[n, 1]
        out[k + 3, b] = run[b, 1] / (run[n, 1] + 1e-9)
        out[k + 4, b] = b - first
        out[k + 5, b] = last - b
