"""Who is kept: the greedy rule in the total order, computed in rounds.

Documents are ranks 0, 1, 2 ... in the total order (sequence, quality descending, doc_id); ranks
below `first_new` were kept by earlier snapshots. A document is removed if and only if

    its text key (or URL, where that is on) is that of a document kept before it, or
    its measured Jaccard similarity to a document kept before it reaches the threshold,

where the documents it is measured against are the first `cap` kept ones of each of its buckets.
Removed documents decide nothing, so there are no chains. The rule reads like a loop, and a loop it
is, in `tests/pipeline/test_dedup_greedy.py`; measuring needs texts, though, and those are better
fetched in bulk. So each round sweeps the documents in order and decides what is certain; where a
similarity is missing it is asked for, on the guess that the undecided will be kept. The window into
a bucket doubles from round to round: one round for ten thousand copies of one page, about
log2(cap) for a bucket of pages that merely look alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.compiled import kernel
from pipeline.dedup.bands import Buckets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    I8 = NDArray[np.int8]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]
    F64 = NDArray[np.float64]
    Bits = NDArray[np.bool_]

    Measure = Callable[[I32], F64]
    """Similarities of pairs of ranks, `[pairs, 2] int32` -> `[pairs]`."""

UNDECIDED, KEPT, SAME_TEXT, SAME_URL, NEAR = range(5)
"""States of a document. SAME_TEXT + k is the state of a duplicate in the k-th kind of group."""

UNKNOWN = -1.0


@dataclass(frozen=True)
class Outcome:
    """What became of each document, `state` and `leader` by rank."""

    state: I8
    leader: I32
    """For SAME_TEXT and SAME_URL: the kept document with the same key; else -1."""
    candidates: I32
    """For documents in state NEAR: `[n, 3]`, the document, a kept one it met, the first band."""
    similarity: F64
    """Of the candidates, `[n]`."""
    measured: int
    rounds: int
    cap_hits: int
    """Documents that met a bucket with more kept documents than the cap."""


def decide_greedily(
    buckets: Buckets, groups: I32, first_new: int, measure: Measure, *, threshold: float, cap: int
) -> Outcome:
    """Apply the rule to documents `first_new ...`.

    `groups [kinds, documents]`: number of the group of equal text keys (then of equal URLs) that a
    document is in, -1 for none; numbers are distinct over all kinds.
    """
    documents = groups.shape[1]
    state = np.zeros(documents, np.int8)
    state[:first_new] = KEPT
    leader = np.full(documents, -1, np.int32)
    loose = np.zeros(int(groups.max(initial=-1)) + 1, np.bool_)
    known = Known()
    window, rounds = 1, 0
    while True:
        rounds += 1
        needs = _sweep(
            state, leader, loose, groups, buckets.starts, buckets.of_starts, buckets.of,
            known.pairs, known.similarity, threshold, cap, window,
        )  # fmt: skip
        known.add(needs, measure)
        if not len(needs) and not (state == UNDECIDED).any():
            break
        window = min(2 * window, cap)
    candidates, cap_hits = _met(
        state, buckets.starts, buckets.of_starts, buckets.of, buckets.bands, cap
    )
    known.add(candidates[:, :2], measure)
    similarity = known.lookup(candidates[:, :2])
    return Outcome(state, leader, candidates, similarity, len(known.pairs), rounds, cap_hits)


class Known:
    """The similarities measured so far, sorted by pair."""

    def __init__(self) -> None:
        self.pairs: I64 = np.empty(0, np.int64)
        self.similarity: F64 = np.empty(0, np.float64)

    def add(self, pairs: I32, measure: Measure) -> None:
        """Measure the pairs `[n, 2]` that are not known yet."""
        keys = np.unique(pair_keys(pairs))
        keys = keys[~np.isin(keys, self.pairs)]
        if not len(keys):
            return
        new = np.stack([keys >> 32, keys & 0xFFFFFFFF], axis=1).astype(np.int32)
        joined = np.concatenate([self.pairs, keys])
        order = np.argsort(joined)
        self.similarity = np.concatenate([self.similarity, measure(new)])[order]
        self.pairs = joined[order]

    def lookup(self, pairs: I32) -> F64:
        """Similarities of known pairs `[n, 2]`."""
        return self.similarity[np.searchsorted(self.pairs, pair_keys(pairs))]


def pair_keys(pairs: I32) -> I64:
    """Both ranks of each pair in one number, `[n] int64`."""
    keys = pairs.astype(np.int64)
    return (keys[:, 0] << 32) | keys[:, 1]


@kernel
def _grown(rows: I32, used: int) -> I32:
    """The table, twice as long where all rows are used."""
    if used < len(rows):
        return rows
    more = np.empty((2 * used, rows.shape[1]), np.int32)
    more[:used] = rows
    return more


@kernel
def _similarity(pairs: I64, similarity: F64, a: int, b: int) -> float:
    key = (np.int64(a) << 32) | np.int64(b)
    low, high = 0, len(pairs)
    while low < high:
        middle = (low + high) // 2
        if pairs[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low < len(pairs) and pairs[low] == key:
        return similarity[low]
    return UNKNOWN


@kernel
def _sweep(
    state: I8, leader: I32, loose: Bits, groups: I32, starts: I64, of_starts: I64, of: I32,
    pairs: I64, similarity: F64, threshold: float, cap: int, window: int,
) -> I32:  # fmt: skip
    """One pass in order: decide what is certain, list the pairs that have to be measured.

    A document that stays undecided takes a place in its buckets as if it were kept. A hit on a kept
    document is certain, since places can only become free; everything else waits for the undecided.
    """
    documents = len(state)
    alive = np.empty(len(of), np.int32)
    places = np.zeros(len(starts) - 1, np.int64)
    heads = np.full(len(loose), -1, np.int32)
    asked = np.full(documents, -1, np.int32)
    needs = np.empty((1024, 2), np.int32)
    n_needs = 0
    for d in range(documents):
        if state[d] == UNDECIDED:
            waits, quiet = _join_group(d, state, leader, loose, groups, heads)
            if state[d] != UNDECIDED:
                continue
            hit = False
            open_pairs = False
            for e in range(of_starts[d], of_starts[d + 1]):
                bucket = of[e]
                full = places[bucket] > cap
                for i in range(min(places[bucket], cap)):
                    other = alive[starts[bucket] + i]
                    s = _similarity(pairs, similarity, d, other)
                    kept = state[other] == KEPT
                    if s == UNKNOWN:
                        open_pairs = True
                        if not quiet and i < window and asked[other] != d:
                            asked[other] = d
                            needs = _grown(needs, n_needs)
                            needs[n_needs, 0] = d
                            needs[n_needs, 1] = other
                            n_needs += 1
                    elif s >= threshold:
                        hit = hit or kept
                        open_pairs = open_pairs or not kept
                    elif full and not kept:
                        open_pairs = True  # its place may become free for one beyond the cap
            if hit and not waits:
                state[d] = NEAR
                for kind in range(len(groups)):
                    if groups[kind, d] >= 0:
                        loose[groups[kind, d]] = True
                continue
            if not (hit or waits or open_pairs):
                state[d] = KEPT
        elif state[d] != KEPT:
            continue
        for kind in range(len(groups)):
            group = groups[kind, d]
            if group >= 0 and heads[group] < 0:
                heads[group] = d
        for e in range(of_starts[d], of_starts[d + 1]):
            bucket = of[e]
            alive[starts[bucket] + places[bucket]] = d
            places[bucket] += 1
    return needs[:n_needs]


@kernel
def _join_group(
    d: int, state: I8, leader: I32, loose: Bits, groups: I32, heads: I32
) -> tuple[bool, bool]:
    """Remove d where a kept document before it has its key; (must it wait, may it stay unmeasured).

    A copy of an undecided page need not be measured, for that page will most likely be kept; once a
    page of the group was removed as near-duplicate, its copies are measured all at once.
    """
    waits = False
    quiet = False
    for kind in range(len(groups)):
        group = groups[kind, d]
        if group < 0 or heads[group] < 0:
            continue
        if state[heads[group]] == KEPT:
            if not waits:
                state[d] = SAME_TEXT + kind
                leader[d] = heads[group]
            return waits, quiet
        waits = True
        quiet = quiet or not loose[group]
    return waits, quiet


@kernel
def _met(
    state: I8, starts: I64, of_starts: I64, of: I32, bands: I32, cap: int
) -> tuple[I32, int]:  # fmt: skip
    """What each near-duplicate met, all states known; how many documents met a full bucket."""
    kept = np.empty(len(of), np.int32)
    places = np.zeros(len(starts) - 1, np.int64)
    seen = np.full(len(state), -1, np.int32)
    found = np.empty((1024, 3), np.int32)
    n_found = 0
    cap_hits = 0
    for d in range(len(state)):
        if state[d] != KEPT and state[d] != NEAR:
            continue
        full = False
        for e in range(of_starts[d], of_starts[d + 1]):
            bucket = of[e]
            full = full or places[bucket] > cap
            if state[d] == KEPT:
                kept[starts[bucket] + places[bucket]] = d
                places[bucket] += 1
                continue
            for i in range(min(places[bucket], cap)):
                other = kept[starts[bucket] + i]
                if seen[other] != d:
                    seen[other] = d
                    found = _grown(found, n_found)
                    found[n_found, 0] = d
                    found[n_found, 1] = other
                    found[n_found, 2] = bands[bucket]
                    n_found += 1
        cap_hits += full
    return found[:n_found], cap_hits
