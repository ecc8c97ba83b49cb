"""Tokens, positions, documents, loss mask and targets of rows, a whole batch at a time.

The only loop is one slice copy a segment (0.3 µs); all else is arithmetic on the lengths of the
segments, with what is left of a row after them as a segment of padding. Arrays are int32: half the
memory traffic, and ids and positions never need more.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.rows import DOCUMENT, LENGTH, Packed
from training.shards import Ints, Shard, Tokens

Ids = NDArray[np.int32]
Place = tuple[Shard, Packed, int]
"""A shard, its rows, and the number of one of them."""


class Row(NamedTuple):
    """Training samples; every array is [rows, context], or [context] for a single one."""

    tokens: Tokens
    """Token ids; 0 in the padding."""
    positions: Tokens
    """Counted from 0 in every segment; also in the padding, which is a segment of its own here."""
    doc_index: Tokens
    """The document of the shard; -1 in the padding. Attention stays within equal values."""
    loss_mask: NDArray[np.bool_]
    """True where the target counts."""
    targets: Tokens
    """The next token of the document; 0 where `loss_mask` is false."""


def read_rows(places: Sequence[Place]) -> Row:
    """The samples at `places`, all of one context length; see the top of `training.rows`."""
    context = places[0][1].context
    pieces = [packed.of(row) for _, packed, row in places]
    counts = np.array([len(piece) for piece in pieces])
    segments = np.concatenate(pieces)
    begins, lengths, documents, real = _laid_out(segments, counts, context)
    n = len(places) * context
    tokens, after = np.zeros(n, np.int32), np.zeros(len(segments), np.int32)
    goes_on = _copy(places, segments, counts, begins[real], tokens, after)
    doc_index = np.repeat(documents, lengths)
    positions = _count(n) - np.repeat(begins, lengths)
    ends = (begins + lengths)[real] - 1
    targets = np.empty(n, np.int32)
    targets[:-1] = tokens[1:]
    padding_ends = np.cumsum(np.full(len(places), context)) - 1
    targets[padding_ends] = 0
    targets[ends] = after
    mask = doc_index >= 0
    mask[ends] = goes_on
    shape = (len(places), context)
    flat = (tokens, positions, doc_index, mask, targets)
    return Row._make(array.reshape(shape) for array in flat)


def read_row(shard: Shard, packed: Packed, row: int) -> Row:
    """One sample; arrays are [context]."""
    return Row._make(array[0] for array in read_rows([(shard, packed, row)]))


def _laid_out(segments: Ints, counts: Ints, context: int) -> tuple[Ids, Ints, Ids, Ints]:
    """(begin, length, document) of segments and paddings in the batch, and which are segments.

    Each row's padding, of 0 tokens or more, stands behind its segments.
    """
    n_rows = len(counts)
    row = np.repeat(np.arange(n_rows), counts)
    real = np.arange(len(segments)) + row
    lengths = np.zeros(len(segments) + n_rows, np.int64)
    documents = np.full(len(lengths), -1, np.int32)
    lengths[real], documents[real] = segments[:, LENGTH], segments[:, DOCUMENT]
    last = np.cumsum(counts + 1) - 1
    used = np.add.reduceat(segments[:, LENGTH], np.cumsum(counts) - counts)
    lengths[last] = context - used
    begins = (np.cumsum(lengths) - lengths).astype(np.int32)
    return begins, lengths, documents, real


def _copy(
    places: Sequence[Place],
    segments: Ints,
    counts: Ints,
    begins: Ids,
    tokens: Ids,
    after: Ids,
) -> list[bool]:
    """Fill in the tokens, and the token after each segment where its document goes on there."""
    goes_on = []
    rows = iter(zip(begins.tolist(), segments[:, DOCUMENT:].tolist(), strict=True))
    number = 0
    for (shard, _, _), count in zip(places, counts.tolist(), strict=True):
        data, offsets = shard.tokens, shard.offsets
        for _ in range(count):
            at, (document, start, length) = next(rows)
            stop = start + length
            tokens[at : at + length] = data[start:stop]
            more = stop < offsets[document + 1]
            if more:
                after[number] = data[stop]
            goes_on.append(bool(more))
            number += 1
    return goes_on


@lru_cache(maxsize=8)
def _count(n: int) -> Ids:
    """0, 1, 2, ..."""
    return np.arange(n, dtype=np.int32)
