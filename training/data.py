"""The order of training samples, as a pure function, and the loader of one rank.

Sample g of a run is found by arithmetic alone: a fixed cycle of sources, made of the plan's
weights, says which source it comes from and how many of it came before; a keyed permutation
(Feistel network with cycle walking) of the rows of that source says which row. So the state of the
loader is one integer, the next sample; any number of ranks sees the same global batches; and a step
leads back to its documents. Nothing is shuffled in memory.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.rows import DOCUMENT, Row, Rows, build_rows, read_row, rows_path
from training.shards import Ints, Shard

LONGEST_CYCLE = 65_536
"""Samples after which the order of sources repeats; weights are kept to 1 in this many."""
ROUNDS = 4
HELD_OUT = "held_out"


@dataclass(frozen=True)
class Source:
    """Shards that are sampled together, all for one context length."""

    name: str
    shards: list[Shard]
    rows: list[Rows]

    @cached_property
    def bounds(self) -> Ints:
        """[shards + 1]: row n of the source is row n - bounds[s] of shard s."""
        return np.concatenate([[0], np.cumsum([len(rows) for rows in self.rows])]).astype(np.int64)

    @property
    def n_rows(self) -> int:
        """Samples in one pass over the source."""
        return int(self.bounds[-1])

    def place(self, row: int) -> tuple[int, int]:
        """(shard, row in the shard) of a row of the source."""
        shard = int(np.searchsorted(self.bounds, row, side="right")) - 1
        return shard, row - int(self.bounds[shard])

    def read(self, row: int) -> Row:
        """The tokens of a row."""
        shard, inside = self.place(row)
        return read_row(self.shards[shard], self.rows[shard], inside)


def open_source(name: str, prefixes: Sequence[Path], context: int) -> Source:
    """Open shards for reading; rows come from their file, else they are packed now, in memory."""
    shards = [Shard.open(prefix) for prefix in sorted(prefixes, key=lambda p: p.name)]
    rows = []
    for shard in shards:
        if rows_path(shard.prefix, context).exists():
            rows.append(Rows.open(shard.prefix, context))
        else:
            rows.append(Rows(build_rows(shard.lengths, context), context))
    return Source(name, shards, rows)


@dataclass(frozen=True)
class Phase:
    """A stretch of samples with one cycle of sources."""

    start: int
    """Its first sample."""
    cycle: NDArray[np.int32]
    """[length of the cycle]: number of the source."""
    counts: Ints
    """[sources]: how often each stands in the cycle."""
    before: Ints
    """[length of the cycle]: how often the source of this place stands before it in the cycle."""
    base: Ints
    """[sources]: samples of each that earlier phases took."""


class Sample(NamedTuple):
    """Where sample g of a run comes from."""

    source: int
    epoch: int
    row: int


class Order:
    """Sample index to (source, epoch, row), for a set of sources, weights by phase, and a seed."""

    def __init__(
        self,
        names: Sequence[str],
        n_rows: Sequence[int],
        phases: Sequence[tuple[int, Sequence[float]]],
        seed: int,
    ) -> None:
        """`phases`: (samples from the start at which it ends, weight of each source), in order.

        The last phase goes on for ever. Raises TrainingError where a source with a weight is empty.
        """
        self.names, self.n_rows, self.seed = list(names), list(n_rows), seed
        self.phases: list[Phase] = []
        start, base = 0, np.zeros(len(names), np.int64)
        for end, weights in phases:
            for name, rows, weight in zip(names, n_rows, weights, strict=True):
                if weight > 0 and not rows:
                    message = f"source {name} has weight {weight:g} and no training row"
                    raise TrainingError(message, hint="set its weight to 0, or add shards")
            cycle, counts, before = interleave(weights)
            self.phases.append(Phase(start, cycle, counts, before, base))
            start, base = end, base + self._taken(self.phases[-1], end - start)

    @staticmethod
    def _taken(phase: Phase, n: int) -> Ints:
        whole, rest = divmod(n, len(phase.cycle))
        part = np.bincount(phase.cycle[:rest], minlength=len(phase.counts))
        return whole * phase.counts + part

    def taken(self, n: int) -> Ints:
        """[sources]: samples of each among the first n."""
        phase = next(p for p in reversed(self.phases) if p.start <= n)
        return phase.base + self._taken(phase, n - phase.start)

    def __getitem__(self, index: int) -> Sample:
        phase = next(p for p in reversed(self.phases) if p.start <= index)
        whole, place = divmod(index - phase.start, len(phase.cycle))
        source = int(phase.cycle[place])
        n = int(phase.base[source] + whole * phase.counts[source] + phase.before[place])
        epoch, nth = divmod(n, self.n_rows[source])
        key = round_keys(self.seed, self.names[source], epoch)
        return Sample(source, epoch, permute(nth, self.n_rows[source], key))

    def samples_in_one_pass(self, at_most: int) -> int:
        """Samples until some source would start its second pass; `at_most` where none does."""
        low, high = 0, at_most
        while low < high:  # `taken` grows with n
            middle = (low + high + 1) // 2
            low, high = (middle, high) if (self.taken(middle) <= self.n_rows).all() else (
                low, middle - 1,
            )  # fmt: skip
        return low


def interleave(weights: Sequence[float]) -> tuple[NDArray[np.int32], Ints, Ints]:
    """A cycle of sources in which every stretch from the start follows the weights.

    Returns (cycle, counts, before), see `Phase`. Weights are any scale; counts are theirs to one
    sample in a cycle, and a source with a weight has one at least.
    """
    share = np.asarray(weights, dtype=np.float64) / float(np.sum(weights))
    used = np.flatnonzero(share)
    length = 1 if len(used) == 1 else LONGEST_CYCLE
    counts = np.floor(share * length).astype(np.int64)
    counts[used] = np.maximum(counts[used], 1)
    missing = length - int(counts.sum())
    order = np.argsort(-(share * length - counts), kind="stable")
    counts[order[: max(missing, 0)]] += 1
    counts[int(np.argmax(counts))] += min(missing, 0)
    cycle = np.zeros(length, np.int32)
    cycle[:] = used[_turns(counts[used].tolist())]
    before = np.zeros(length, np.int64)
    for source in used:
        before[cycle == source] = np.arange(counts[source])
    return cycle, counts, before


def _turns(counts: list[int]) -> list[int]:
    """Who is next, so that nobody is ever a whole turn ahead or behind.

    Tijdeman's rule (The chairman assignment problem, 1980): of those who are due, the one whose
    deadline is first.
    """
    total, spread = sum(counts), 1 / max(2 * len(counts) - 2, 1)
    steps = [total / count for count in counts]
    had = [0] * len(counts)
    turns = []
    for turn in range(1, total + 1):
        due = [
            i for i, count in enumerate(counts) if count * turn / total - had[i] >= spread - 1e-9
        ]
        chosen = min(due, key=lambda i: ((had[i] + 1 - spread) * steps[i], i))
        had[chosen] += 1
        turns.append(chosen)
    return turns


@lru_cache(maxsize=4096)
def round_keys(seed: int, name: str, epoch: int) -> tuple[int, ...]:
    """Four 64-bit keys of the permutation of one source in one epoch."""
    text = json.dumps([seed, name, epoch]).encode()
    digest = hashlib.sha256(text).digest()
    return tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(ROUNDS))


def permute(index: int, n: int, keys: Sequence[int]) -> int:
    """Where `index` goes in a permutation of range(n): Feistel rounds, repeated until inside."""
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for key in keys:
            left, right = right, left ^ (mix(right ^ key) & mask)
        index = left << half | right
        if index < n:
            return index


def mix(value: int) -> int:
    """The finaliser of splitmix64: 64 bits to 64 well-mixed bits."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)


@dataclass(frozen=True)
class Batch:
    """Sequences of one rank; every array is [sequences, context]."""

    tokens: Ints
    positions: Ints
    documents: Ints
    mask: NDArray[np.bool_]
    targets: Ints
    checksum: int
    """Sum of the CRC-32 of (sample index, tokens): equal sums over ranks, equal global batches."""

    @classmethod
    def of(cls, rows: Sequence[Row], indices: Sequence[int]) -> Batch:
        """Stack rows; `indices` are their sample indices."""
        stacked = [np.stack(field) for field in zip(*rows, strict=True)]
        tokens, positions, documents, mask, targets = stacked
        crc = sum(
            zlib.crc32(row.tokens.tobytes(), index & 0xFFFFFFFF)
            for row, index in zip(rows, indices, strict=True)
        )
        return cls(tokens, positions, documents, mask, targets, crc)


class Loader:
    """Global batches of a run, of which a rank reads its share; no state at all."""

    def __init__(self, sources: Sequence[Source], order: Order) -> None:
        self.sources, self.order = list(sources), order

    def batch(self, indices: Sequence[int], rank: int = 0, world: int = 1) -> Batch:
        """The share of `rank` in the global batch of these sample indices."""
        share = len(indices) // world
        own = indices[rank * share : (rank + 1) * share]
        places = [self.order[index] for index in own]
        return Batch.of([self.sources[p.source].read(p.row) for p in places], own)

    def documents(self, indices: Sequence[int]) -> list[tuple[str, int]]:
        """(shard name, document in the shard) of the segments of these samples."""
        out = []
        for index in indices:
            place = self.order[index]
            source = self.sources[place.source]
            shard, row = source.place(place.row)
            out += [
                (source.shards[shard].name, int(document))
                for document in source.rows[shard].of(row)[:, DOCUMENT]
            ]
        return out

    def epochs(self, samples: int) -> dict[str, float]:
        """Passes over each source after this many samples."""
        taken = self.order.taken(samples)
        return {
            name: round(int(n) / rows, 4)
            for name, n, rows in zip(self.order.names, taken, self.order.n_rows, strict=True)
            if rows
        }
