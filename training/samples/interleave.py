"""Sources by weight, one sample after the other: which is sample t from, and how many came before.

A binary tree over the sources splits the samples: of the first n samples of a node its left child
has round(n * left / node), so every count is arithmetic, in whole numbers, and repeats with a cycle
of 2**31 samples. Each split is off by half a sample at most, of which a child inherits its share:
source x is off by 1/2 (x/x + x/parent + x/grandparent + ...), the root left out. The tree keeps
that sum small: nodes are joined from the lightest on, as in Huffman's tree, but two of which one
weighs less than half the other are not; the lighter ones of those are joined by themselves, and
with the rest at the root. Then weights on a path grow at least as 1, 1.5, 2.5, 4, 6.5, ... or as 1,
1, 3, 7, 15, ..., and every prefix is within 1.37 samples of the weights, however many sources.

Peers draw sources at random, which is off by about sqrt(t), or hold a list of the whole run.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.shards import Ints

TOTAL = 2**31
"""The weights are whole numbers that sum to this; 2 x weight x remainder still fits 64 bits."""


@dataclass(frozen=True)
class Node:
    """Sources that are split together."""

    weight: int
    source: int = -1
    """For a leaf."""
    left: Node | None = None
    right: Node | None = None

    def lefts(self, n: Ints) -> Ints:
        """How many of the first n samples of the node go left; also for a plain integer."""
        assert self.left is not None
        whole, rest = n // self.weight, n % self.weight
        return self.left.weight * whole + (2 * self.left.weight * rest + self.weight) // (
            2 * self.weight
        )


class Interleave:
    """A fixed cycle of sources in which every prefix follows the weights."""

    def __init__(self, weights: Sequence[float]) -> None:
        """`weights` [sources], in any scale, one above 0; a source with 0 never comes."""
        self.n_sources = len(weights)
        self.shares = whole_shares(weights)
        self.root = tree_of([Node(w, s) for s, w in enumerate(self.shares) if w])

    def counts(self, n: int) -> Ints:
        """[sources]: samples of each among the first n."""
        out = np.zeros(self.n_sources, np.int64)
        stack: list[tuple[Node, int]] = [(self.root, n)]
        while stack:
            node, count = stack.pop()
            if node.left is None or node.right is None:
                out[node.source] = count
            else:
                left = int(node.lefts(count))  # type: ignore[arg-type]  # whole numbers as arrays
                stack += [(node.left, left), (node.right, count - left)]
        return out

    def at(self, samples: Ints) -> tuple[Ints, Ints]:
        """(source, how many of it came before) of samples of the cycle; both as `samples`."""
        sources, before = np.empty_like(samples), np.empty_like(samples)
        stack = [(self.root, np.arange(len(samples)), samples)]
        while stack:
            node, which, n = stack.pop()
            if node.left is None or node.right is None:
                sources[which], before[which] = node.source, n
            elif len(which):
                left = node.lefts(n)
                goes = node.lefts(n + 1) > left
                stack += [
                    (node.left, which[goes], left[goes]),
                    (node.right, which[~goes], (n - left)[~goes]),
                ]
        return sources, before


def whole_shares(weights: Sequence[float]) -> list[int]:
    """Weights as whole numbers that sum to TOTAL, each off by less than one, or 1 if that is 0."""
    share = np.asarray(weights, np.float64) / float(np.sum(weights)) * TOTAL
    out = np.floor(share).astype(np.int64)
    short = TOTAL - int(out.sum())
    out[np.argsort(out - share, kind="stable")[:short]] += 1
    out[(out == 0) & (share > 0)] = 1
    out[int(np.argmax(out))] += TOTAL - int(out.sum())
    return [int(weight) for weight in out]


def tree_of(leaves: Sequence[Node]) -> Node:
    """The tree over these; see the top of this file."""
    aside: list[Node] = []
    root = _joined(leaves, aside)
    return join(_joined(aside, None), root) if aside else root


def _joined(nodes: Sequence[Node], aside: list[Node] | None) -> Node:
    """Join the lightest two until one is left; with `aside`, ones far apart go there instead."""
    heap = [(node.weight, number, node) for number, node in enumerate(nodes)]
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        light = heapq.heappop(heap)[2]
        if aside is not None and 2 * light.weight < heap[0][0]:
            aside.append(light)
            continue
        node = join(light, heapq.heappop(heap)[2])
        heapq.heappush(heap, (node.weight, number, node))
        number += 1
    return heap[0][2]


def join(left: Node, right: Node) -> Node:
    """A node over two."""
    return Node(left.weight + right.weight, left=left, right=right)
