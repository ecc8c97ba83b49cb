"""Rows: which tokens of a shard make one training sample of a context length. NumPy only.

What a row is, exactly (training relies on it):

- A row holds at most `context` tokens: one or more *segments* one behind the other, then padding.
- A segment is a run of tokens of ONE document. A document that fits into the context is one
  segment, never cut. A longer one becomes full segments of `context` tokens, each alone in its row,
  and the remainder, which is packed. No row holds two segments of one document. Every token of the
  shard is in exactly one row.
- Positions start at 0 in every segment; attention stays within equal `doc_index`.
- The target of a token is the next token of its document, also where that one stands in another
  row (the last token of a full segment). The last token of a document, its `<|endoftext|>`, has no
  target, nor has padding: there `loss_mask` is false. So a document of n tokens has n - 1 targets,
  whatever the context.
- Rows come with the longest segments first; they must be shuffled, which is the loader's job.

Packing is best-fit decreasing (arXiv:2404.10830): no cut documents and about 0.01 % padding, where
concatenate-and-chunk cuts 28 % of the documents that would fit into 2,048 tokens. That is there
too, for comparison (`packing: concatenate`): row r is tokens r * context and on of the shard, its
segments are what lies there of each document, and only the last row of a shard has padding.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from training.shards import (
    Ints,
    Shard,
    ShardError,
    Tokens,
    offsets_of,
    publish,
    read_index,
    shard_path,
    strip_ending,
)

ROW, DOCUMENT, START, LENGTH = range(4)
"""Columns of a rows array [segments, 4]: row number, document in the shard, first token in the
shard, number of tokens."""


def rows_path(prefix: str | Path, context: int) -> Path:
    """Where the rows of a shard for `context` are kept."""
    return shard_path(prefix, f"rows-{context}.npy")


def build_rows(lengths: Tokens, context: int) -> Ints:
    """Pack documents of these `lengths` [documents] into rows of `context` tokens.

    Returns [segments, 4] (columns ROW, DOCUMENT, START, LENGTH), sorted by row, then document.
    START counts from the first token of the shard. Deterministic; about 1 µs a segment.
    """
    if context < 1:
        message = f"a context of {context} tokens"
        raise ShardError(message)
    lengths = np.asarray(lengths, dtype=np.int64)
    offsets = offsets_of(lengths)[:-1]
    full, rest = lengths // context, lengths % context
    documents = np.repeat(np.arange(len(lengths)), full)
    piece = np.arange(len(documents)) - np.repeat(offsets_of(full)[:-1], full)
    whole = np.column_stack(
        [
            np.arange(len(documents)),
            documents,
            offsets[documents] + piece * context,
            np.full(len(documents), context),
        ]
    )
    packed = np.flatnonzero(rest)
    # decreasing; a stable sort makes ties fall by document
    packed = packed[np.argsort(-rest[packed], kind="stable")]
    rows = best_fit(rest[packed].tolist(), context) + len(documents)
    starts = offsets[packed] + full[packed] * context
    tail = np.column_stack([rows, packed, starts, rest[packed]])
    out = np.concatenate([whole, tail]).astype(np.int64)
    return np.ascontiguousarray(out[np.lexsort((out[:, DOCUMENT], out[:, ROW]))])


def best_fit(decreasing: list[int], capacity: int) -> Ints:
    """Row number of each piece: the row with the least room that takes it, else a new one.

    `free` lists the distinct amounts of room that open rows have, sorted; `open_rows[room]` is a
    stack of these rows. At most `capacity` amounts exist, so a step costs a binary search.
    """
    open_rows: list[list[int]] = [[] for _ in range(capacity + 1)]
    free: list[int] = []
    out = np.empty(len(decreasing), dtype=np.int64)
    n_rows = 0
    for number, length in enumerate(decreasing):
        place = bisect.bisect_left(free, length)
        if place < len(free):
            room = free[place]
            row = open_rows[room].pop()
            if not open_rows[room]:
                del free[place]
        else:
            room, row, n_rows = capacity, n_rows, n_rows + 1
        out[number] = row
        if left := room - length:
            if not open_rows[left]:
                bisect.insort(free, left)
            open_rows[left].append(row)
    return out


def write_rows(prefix: str | Path, context: int) -> Path:
    """The rows file of a shard for `context`, made now if it is not there yet."""
    prefix = strip_ending(prefix)
    path = rows_path(prefix, context)
    if not path.exists():
        rows = build_rows(read_index(shard_path(prefix, "idx"))[0], context)
        publish(path, lambda out: np.save(out, rows))
    return path


@dataclass(frozen=True)
class Rows:
    """The rows of one shard for one context length."""

    segments: Ints
    """[n_segments, 4]: ROW, DOCUMENT, START, LENGTH; sorted by row."""
    context: int

    @classmethod
    def open(cls, prefix: str | Path, context: int) -> Rows:
        """Map `<prefix>.rows-<context>.npy`; ShardError where it is absent or damaged."""
        path = rows_path(strip_ending(prefix), context)
        try:
            segments = np.load(path, mmap_mode="r", allow_pickle=False)
        except (FileNotFoundError, ValueError) as error:
            message = f"{path} is absent or damaged"
            raise ShardError(message) from error
        # a plain view: slicing a memmap costs 10 times as much
        return cls(np.asarray(segments), context)

    @cached_property
    def bounds(self) -> Ints:
        """[n_rows + 1]: row r is `segments[bounds[r]:bounds[r + 1]]`."""
        return offsets_of(np.bincount(self.segments[:, ROW]))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def n_tokens(self) -> int:
        """Tokens in all rows, padding not counted: those of the shard."""
        return int(self.segments[:, LENGTH].sum())

    def of(self, row: int) -> Ints:
        """[segments of the row, 4]."""
        bounds = self.bounds
        if not 0 <= row < len(bounds) - 1:
            message = f"no row {row}; there are {len(self)} of context {self.context}"
            raise ShardError(message)
        return self.segments[bounds[row] : bounds[row + 1]]


@dataclass(frozen=True)
class Chunks:
    """The rows of one shard by plain concatenation; computed, never stored."""

    offsets: Ints
    """[documents + 1]: where each document starts."""
    context: int

    def __len__(self) -> int:
        return -(-int(self.offsets[-1]) // self.context)

    @property
    def n_tokens(self) -> int:
        """Tokens in all rows: those of the shard."""
        return int(self.offsets[-1])

    def of(self, row: int) -> Ints:
        """[segments of the row, 4], as `Rows.of`."""
        if not 0 <= row < len(self):
            message = f"no row {row}; there are {len(self)} of context {self.context}"
            raise ShardError(message)
        begin = row * self.context
        end = min(begin + self.context, self.n_tokens)
        first = int(np.searchsorted(self.offsets, begin, side="right")) - 1
        last = int(np.searchsorted(self.offsets, end, side="left"))
        starts = np.maximum(self.offsets[first:last], begin)
        stops = np.minimum(self.offsets[first + 1 : last + 1], end)
        documents = np.arange(first, last)
        return np.stack([np.full_like(documents, row), documents, starts, stops - starts], axis=1)


Packed = Rows | Chunks


def rows_of(shard: Shard, context: int, packing: str) -> Packed:
    """The rows of a shard: `best_fit` from their file, else packed now, or `concatenate`."""
    if packing == "concatenate":
        return Chunks(shard.offsets, context)
    if rows_path(shard.prefix, context).exists():
        return Rows.open(shard.prefix, context)
    return Rows(build_rows(shard.lengths, context), context)
