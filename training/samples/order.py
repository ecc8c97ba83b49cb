"""The order of training samples, as a pure function: sample g to (source, epoch, row).

The interleave of the phase that g is in says which source, and how many of it came before; a keyed
permutation (Feistel network with cycle walking) of the rows of that source in that epoch says which
row. Nothing is shuffled in memory, and the state of a run is one integer. Blocks of samples are
worked out together in NumPy: about 0.3 µs a sample where one by one it is 10.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.errors import TrainingError
from training.samples.interleave import Interleave
from training.shards import Ints

ROUNDS = 4
BLOCK = 4096
"""Samples worked out together."""
BLOCKS_KEPT = 8
Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Phase:
    """A stretch of samples with one interleave of sources."""

    start: int
    """Its first sample."""
    interleave: Interleave
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
        self._blocks: dict[int, tuple[Ints, Ints, Ints]] = {}
        start, base = 0, np.zeros(len(names), np.int64)
        for number, (end, weights) in enumerate(phases):
            self._check(weights)
            phase = Phase(start, Interleave(weights), base)
            if end > start or number == len(phases) - 1:
                self.phases.append(phase)
                start, base = end, base + phase.interleave.counts(max(end - start, 0))

    def _check(self, weights: Sequence[float]) -> None:
        for name, rows, weight in zip(self.names, self.n_rows, weights, strict=True):
            if weight > 0 and not rows:
                message = f"source {name} has weight {weight:g} and no training row"
                raise TrainingError(message, hint="set its weight to 0, or add shards")

    def _phase(self, sample: int) -> Phase:
        return next(p for p in reversed(self.phases) if p.start <= sample)

    def taken(self, n: int) -> Ints:
        """[sources]: samples of each among the first n."""
        phase = self._phase(n)
        return phase.base + phase.interleave.counts(n - phase.start)

    def __getitem__(self, index: int) -> Sample:
        source, epoch, row = self.many([index])
        return Sample(int(source[0]), int(epoch[0]), int(row[0]))

    def many(self, indices: Sequence[int]) -> tuple[Ints, Ints, Ints]:
        """(source, epoch, row) of many samples, each [samples]."""
        wanted = np.asarray(indices, np.int64)
        if len(wanted) and wanted.min() // BLOCK == (number := int(wanted.max()) // BLOCK):
            source, epoch, row = self._block(number)
            inside = wanted - number * BLOCK
            return source[inside], epoch[inside], row[inside]
        out = tuple(np.empty(len(wanted), np.int64) for _ in range(3))
        numbers = wanted // BLOCK
        for number in dict.fromkeys(numbers.tolist()):
            here = numbers == number
            for field, block in zip(out, self._block(number), strict=True):
                field[here] = block[wanted[here] - number * BLOCK]
        return out[0], out[1], out[2]

    def _block(self, number: int) -> tuple[Ints, Ints, Ints]:
        """(source, epoch, row) of a whole block; the last few are kept."""
        kept = self._blocks.get(number)
        if kept is None:
            begin = number * BLOCK
            kept = self._work_out(np.arange(begin, begin + BLOCK))
            while len(self._blocks) >= BLOCKS_KEPT:
                self._blocks.pop(next(iter(self._blocks)), None)
            self._blocks[number] = kept
        return kept

    def _work_out(self, indices: Ints) -> tuple[Ints, Ints, Ints]:
        source, nth = np.empty_like(indices), np.empty_like(indices)
        starts = np.array([phase.start for phase in self.phases])
        within = np.searchsorted(starts, indices, side="right") - 1
        for number in np.unique(within).tolist():
            phase, here = self.phases[number], within == number
            of, before = phase.interleave.at(indices[here] - phase.start)
            source[here], nth[here] = of, phase.base[of] + before
        epoch, nth = np.divmod(nth, np.array(self.n_rows)[source])
        row = np.empty_like(indices)
        for of, pass_ in np.unique(np.stack([source, epoch], 1), axis=0).tolist():
            here = (source == of) & (epoch == pass_)
            keys = round_keys(self.seed, self.names[of], pass_)
            row[here] = permute_many(nth[here], self.n_rows[of], keys)
        return source, epoch, row

    def samples_in_one_pass(self, at_most: int) -> int:
        """Samples until some source would start its second pass; `at_most` where none does."""
        low, high = 0, at_most
        while low < high:  # `taken` grows with n
            middle = (low + high + 1) // 2
            low, high = (middle, high) if (self.taken(middle) <= self.n_rows).all() else (
                low, middle - 1,
            )  # fmt: skip
        return low


@lru_cache(maxsize=4096)
def round_keys(seed: int, name: str, epoch: int) -> tuple[int, ...]:
    """Four 64-bit keys of the permutation of one source in one epoch."""
    text = json.dumps([seed, name, epoch]).encode()
    digest = hashlib.sha256(text).digest()
    return tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(ROUNDS))


def permute(index: int, n: int, keys: Sequence[int]) -> int:
    """Where `index` goes in a permutation of range(n)."""
    return int(permute_many(np.array([index]), n, keys)[0])


def permute_many(indices: Ints, n: int, keys: Sequence[int]) -> Ints:
    """Where `indices` go in a permutation of range(n): Feistel rounds, repeated until inside."""
    half = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    out = indices.astype(np.uint64)
    outside = np.arange(len(out))
    while len(outside):
        value = out[outside]
        left, right = value >> half, value & mask
        for key in keys:
            left, right = right, left ^ (mix(right ^ np.uint64(key)) & mask)
        value = left << half | right
        out[outside] = value
        outside = outside[value >= n]
    return out.astype(np.int64)


def mix(value: Words) -> Words:
    """The finaliser of splitmix64: 64 bits to 64 well-mixed bits."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
