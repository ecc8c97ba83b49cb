"""Measured similarity: Jaccard of the shingle sets of two texts, within a bound of memory.

Pairs are measured in chunks whose shingle sets fit the budget together. Sets stay until room is
needed, so that the page that thousands of others are compared with is read once.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.compiled import kernel
from pipeline.dedup.shingles import shingle_sets
from pipeline.errors import ContractError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U64 = NDArray[np.uint64]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]
    F64 = NDArray[np.float64]

TextOf = Callable[[list[str]], pl.DataFrame]
"""Texts of documents: a list of doc_ids -> a frame `doc_id, text` in any order."""

SHINGLE_BYTES = 16
"""8 bytes a shingle in a set, and as much while sets are joined for the kernel."""
BATCH_SHINGLES = 4_000_000
"""Shingles of the texts asked for at one time: about 25 MB of English text."""


def jaccard(sets: U64, starts: I64, pairs: I32) -> F64:
    """Jaccard similarity of pairs `[n, 2]` of sets, `sets` ascending within `starts [m + 1]`.

    Two empty sets have similarity 0: nothing is known to be equal.
    """
    return _jaccard(sets, starts, pairs)


@kernel
def _jaccard(sets: U64, starts: I64, pairs: I32) -> F64:
    out = np.zeros(len(pairs), np.float64)
    for p in range(len(pairs)):
        i, i_end = starts[pairs[p, 0]], starts[pairs[p, 0] + 1]
        j, j_end = starts[pairs[p, 1]], starts[pairs[p, 1] + 1]
        union = (i_end - i) + (j_end - j)
        shared = 0
        while i < i_end and j < j_end:
            a, b = sets[i], sets[j]
            shared += a == b
            i += a <= b
            j += b <= a
        if union:
            out[p] = shared / (union - shared)
    return out


class Measure:
    """Similarities of pairs of ranks, with texts fetched as they are needed."""

    def __init__(
        self, ids: pl.Series, sizes: I64, text_of: TextOf, *, ngram: int, memory_bytes: float
    ) -> None:
        self.ids = ids  # doc_id by rank
        self.sizes = sizes  # shingles by rank, repeats counted: never less than the set has
        self.text_of = text_of
        self.ngram = ngram
        self.budget = max(int(memory_bytes // SHINGLE_BYTES), 1)
        self.sets: dict[int, U64] = {}
        self.held = 0
        self.texts_read = 0

    def __call__(self, pairs: I32) -> F64:
        """Similarities `[n]` of pairs `[n, 2]`."""
        # neighbours in this order share the kept page
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        out = np.empty(len(pairs), np.float64)
        cuts = _cut(pairs[order], self.sizes, self.budget)
        for first, last in pairwise(cuts.tolist()):
            rows = order[first:last]
            out[rows] = self._measure(pairs[rows])
        return out

    def _measure(self, pairs: I32) -> F64:
        ranks, local = np.unique(pairs, return_inverse=True)
        self._load(ranks)
        sets = [self.sets[rank] for rank in ranks.tolist()]
        starts = np.zeros(len(sets) + 1, np.int64)
        np.cumsum([len(s) for s in sets], out=starts[1:])
        return jaccard(np.concatenate(sets), starts, local.reshape(pairs.shape).astype(np.int32))

    def _load(self, ranks: I32) -> None:
        missing = [rank for rank in ranks.tolist() if rank not in self.sets]
        if self.held + int(self.sizes[missing].sum()) > self.budget:
            needed = set(ranks.tolist())
            self.sets = {rank: s for rank, s in self.sets.items() if rank in needed}
            self.held = sum(map(len, self.sets.values()))
        edges = np.cumsum(self.sizes[missing]) // BATCH_SHINGLES
        for batch in np.split(np.array(missing, np.int64), np.flatnonzero(np.diff(edges)) + 1):
            if len(batch):
                self._read(batch.tolist())

    def _read(self, ranks: list[int]) -> None:
        ids = self.ids.gather(ranks)
        found = self.text_of(ids.to_list()).select("doc_id", "text").unique("doc_id")
        texts = ids.to_frame("doc_id").join(found, on="doc_id", how="left", maintain_order="left")
        if found.height < len(ranks):
            lost = texts.join(found, on="doc_id", how="anti")["doc_id"][0]
            message = f"the text of document {lost} was not found"
            raise ContractError(message, hint="materialise its snapshot again")
        sets, starts = shingle_sets(texts["text"], self.ngram)
        for rank, first, last in zip(ranks, starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            self.sets[rank] = sets[first:last].copy()  # a view would hold the whole batch
        self.held += len(sets)
        self.texts_read += len(ranks)


@kernel
def _cut(pairs: I32, sizes: I64, budget: int) -> I64:
    """Where to cut the pairs so that the sets of a chunk fit the budget; one pair always does."""
    seen = np.full(len(sizes), -1, np.int64)
    cuts = np.empty(len(pairs) + 2, np.int64)
    cuts[0] = 0
    n = 1
    held = 0
    for p in range(len(pairs)):
        a = pairs[p, 0]
        b = pairs[p, 1]
        more = (seen[a] != n) * sizes[a] + (seen[b] != n) * sizes[b]
        if held + more > budget and p > cuts[n - 1]:
            cuts[n] = p
            n += 1
            held = 0
            more = sizes[a] + sizes[b]
        seen[a] = n
        seen[b] = n
        held += more
    cuts[n] = len(pairs)
    return cuts[: n + 1]
