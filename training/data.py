"""Sources of shards, and the loader of one rank: sample indices in, a batch out.

`training.samples.order` says where each sample comes from, so the state of the loader is one
integer, the next sample; any number of ranks sees the same global batches; and a step leads back to
its documents.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.rows import DOCUMENT, LENGTH, START, Packed, rows_of
from training.samples.order import Order
from training.samples.reading import Ids, Place, Row, read_row, read_rows
from training.shards import Shard

HELD_OUT = "held_out"
BEST_FIT = "best_fit"


@dataclass(frozen=True)
class Source:
    """Shards that are sampled together, all for one context length."""

    name: str
    shards: list[Shard]
    rows: list[Packed]

    @cached_property
    def bounds(self) -> list[int]:
        """[shards + 1]: row n of the source is row n - bounds[s] of shard s."""
        return [0, *accumulate(len(rows) for rows in self.rows)]

    @property
    def n_rows(self) -> int:
        """Samples in one pass over the source."""
        return self.bounds[-1]

    @property
    def n_tokens(self) -> int:
        """Tokens in one pass over the source, padding not counted."""
        return sum(shard.n_tokens for shard in self.shards)

    def place(self, row: int) -> tuple[int, int]:
        """(shard, row in the shard) of a row of the source."""
        shard = bisect_right(self.bounds, row) - 1
        return shard, row - self.bounds[shard]

    def read(self, row: int) -> Row:
        """The tokens of a row, as int64."""
        shard, inside = self.place(row)
        found = read_row(self.shards[shard], self.rows[shard], inside)
        return Row._make(a if a.dtype == np.bool_ else a.astype(np.int64) for a in found)


def open_source(
    name: str,
    prefixes: Sequence[Path],
    context: int,
    packing: str = BEST_FIT,
    *,
    tokens: bool = True,
) -> Source:
    """Open shards for reading, with their rows; without `tokens` only to know what is where."""
    ordered = sorted(prefixes, key=lambda p: p.name)
    shards = [Shard.open(prefix, tokens=tokens) for prefix in ordered]
    return Source(name, shards, [rows_of(shard, context, packing) for shard in shards])


@dataclass(frozen=True)
class Batch:
    """Sequences of one rank; every array is [sequences, context], int32 or bool."""

    tokens: Ids
    positions: Ids
    documents: Ids
    mask: NDArray[np.bool_]
    targets: Ids
    checksum: int
    """Sum of the CRC-32 of (sample index, tokens): equal sums over ranks, equal global batches."""

    @classmethod
    def of(cls, rows: Row, indices: Sequence[int]) -> Batch:
        """Rows as a batch; `indices` are their sample indices."""
        return cls(*rows, checksum=checksum_of(rows.tokens, indices))


def checksum_of(tokens: Ids, indices: Sequence[int]) -> int:
    """See `Batch.checksum`; 1 ns a token. Sums of 2**20 of them are still exact in a float64."""
    return sum(
        zlib.crc32(row, index & 0xFFFFFFFF) for row, index in zip(tokens, indices, strict=True)
    )


@dataclass(frozen=True)
class Segment:
    """A run of tokens of one document in a sample."""

    sequence: int
    """Sample index."""
    source: str
    epoch: int
    shard: str
    document: int
    first_token: int
    """In the shard."""
    n_tokens: int
    """In the sample."""


class Loader:
    """Global batches of a run, of which a rank reads its share; no state but what speeds it up."""

    def __init__(self, sources: Sequence[Source], order: Order) -> None:
        self.sources, self.order = list(sources), order

    def batch(self, indices: Sequence[int], rank: int = 0, world: int = 1) -> Batch:
        """The share of `rank` in the global batch of these sample indices."""
        share = len(indices) // world
        own = indices[rank * share : (rank + 1) * share]
        return Batch.of(read_rows(self._places(own)), own)

    def _places(self, indices: Sequence[int]) -> list[Place]:
        sources, _, rows = self.order.many(indices)
        out = []
        for number, row in zip(sources.tolist(), rows.tolist(), strict=True):
            source = self.sources[number]
            shard, inside = source.place(row)
            out.append((source.shards[shard], source.rows[shard], inside))
        return out

    def segments(self, indices: Sequence[int]) -> list[Segment]:
        """What these samples are made of, in their order."""
        epochs = self.order.many(indices)[1].tolist()
        sources = self.order.many(indices)[0].tolist()
        out = []
        for index, number, epoch, place in zip(
            indices, sources, epochs, self._places(indices), strict=True
        ):
            name = self.sources[number].name
            for segment in place[1].of(place[2]).tolist():
                document, first, length = segment[DOCUMENT], segment[START], segment[LENGTH]
                out.append(Segment(index, name, epoch, place[0].name, document, first, length))
        return out

    def documents(self, indices: Sequence[int]) -> list[tuple[str, int]]:
        """(shard name, document in the shard) of the segments of these samples."""
        return [(segment.shard, segment.document) for segment in self.segments(indices)]

    def epochs(self, samples: int) -> dict[str, float]:
        """Passes over each source after this many samples."""
        taken = self.order.taken(samples)
        return {
            name: round(int(n) / rows, 4)
            for name, n, rows in zip(self.order.names, taken, self.order.n_rows, strict=True)
            if rows
        }
