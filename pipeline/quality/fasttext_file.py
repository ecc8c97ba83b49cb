"""Files of fastText's supervised models, read into what a linear scorer needs.

A text's hidden vector is the mean of its rows of the input matrix, and its scores are products of
that with the output matrix. So both can be multiplied once, when the model is loaded: what remains
of a row is one number a label beyond the first: 4 bytes in place of 64 for 16 dimensions. The
layout is that of fastText 0.9.2 (fasttext.cc, dictionary.cc, quantmatrix.cc), whole and quantised.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAGIC, VERSION = 793712314, 12
SUPERVISED, SOFTMAX = 3, 3
CENTROIDS = 256
ROWS = 100_000
"""Rows that are multiplied at once."""


@dataclass(frozen=True)
class LinearModel:
    """A softmax over sums of words and word n-grams."""

    labels: tuple[str, ...]
    """Without the prefix `__label__`."""
    words: NDArray[np.uint8]
    """Bytes of all words, one behind the other."""
    offsets: NDArray[np.int64]  # [n_words + 1]
    weights: NDArray[np.float32]
    """What a row adds to each label but the first, less what it adds to that [n_words + n-gram
    rows, n_labels - 1]: a softmax sees differences only."""
    slots: NDArray[np.int32]
    """Hash of an n-gram, modulo bucket -> row behind the words, -1 pruned; empty: all are there."""
    n_grams: int
    bucket: int


class _Reader:
    """Numbers and arrays of a file, one after the other."""

    def __init__(self, path: Path) -> None:
        self.data = np.memmap(path, np.uint8, "r")
        self.at = 0

    def take(self, form: str) -> Any:
        """Numbers of a `struct` form, little-endian."""
        size = struct.calcsize(f"<{form}")
        values = struct.unpack(f"<{form}", self.data[self.at : self.at + size].tobytes())
        self.at += size
        return values if len(values) > 1 else values[0]

    def array(self, kind: str, n: int) -> NDArray[Any]:
        """The next `n` numbers; a view of the file."""
        size = np.dtype(kind).itemsize * n
        found = self.data[self.at : self.at + size]
        self.at += size
        return np.frombuffer(found, kind)


def read_linear(path: Path) -> LinearModel | None:
    """The model, or None where it is no softmax over whole words (subwords, other losses).

    Files are trusted to be whole: the library has opened them before. A layout that is not the one
    described here is None too.
    """
    file = _Reader(path)
    if file.take("ii") != (MAGIC, VERSION):
        return None
    dim, _, _, _, _, n_grams, loss, model, bucket, _, longest, _ = file.take("12i")
    file.take("d")
    if (model, loss) != (SUPERVISED, SOFTMAX) or longest > 0 or (n_grams > 1 and bucket < 1):
        return None
    words, offsets, labels, slots = _dictionary(file, bucket)
    source = _matrix(file, quantised=bool(file.take("B")))
    output = _matrix(file, quantised=bool(file.take("B")))
    heads = np.asarray(output(0, len(labels)), np.float64)
    assert heads.shape == (len(labels), dim), (heads.shape, path)
    heads = heads[1:] - heads[:1]
    weights = np.empty((source.rows, len(heads)), np.float32)
    for start in range(0, source.rows, ROWS):
        stop = min(start + ROWS, source.rows)
        weights[start:stop] = np.asarray(source(start, stop), np.float64) @ heads.T
    return LinearModel(labels, words, offsets, weights, slots, n_grams, bucket)


def _dictionary(
    file: _Reader, bucket: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64], tuple[str, ...], NDArray[np.int32]]:
    size, n_words, _ = file.take("3i")
    _, pruned = file.take("2q")
    entries: list[bytes] = []
    window = file.data[file.at :].tobytes()
    at = 0
    for _ in range(size):
        end = window.index(b"\0", at)
        entries.append(window[at:end])
        at = end + 10  # the zero, a count of 8 bytes, a kind of 1
    file.at += at
    slots = np.zeros(0, np.int32)
    if pruned >= 0:
        slots = np.full(max(bucket, 1), -1, np.int32)
        pairs = file.array("<i4", 2 * pruned).reshape(-1, 2)
        slots[pairs[:, 0]] = pairs[:, 1]
    words = np.array(np.frombuffer(b"".join(entries[:n_words]), np.uint8))
    offsets = np.zeros(n_words + 1, np.int64)
    np.cumsum([len(word) for word in entries[:n_words]], out=offsets[1:])
    labels = tuple(e.decode("utf-8", "replace") for e in entries[n_words:])
    return words, offsets, tuple(label.removeprefix("__label__") for label in labels), slots


@dataclass(frozen=True)
class _Dense:
    values: NDArray[np.float32]

    @property
    def rows(self) -> int:
        return len(self.values)

    def __call__(self, start: int, stop: int) -> NDArray[np.float32]:
        return self.values[start:stop]


@dataclass(frozen=True)
class _Quantiser:
    """Codes of one byte for stretches of `width` dimensions, the last one of `last`."""

    dim: int
    stretches: int
    width: int
    last: int
    centroids: NDArray[np.float32]

    def __call__(self, codes: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The vectors [n, dim] of codes [n, stretches]."""
        found = np.empty((len(codes), self.dim), np.float32)
        for k in range(self.stretches):
            width = self.last if k == self.stretches - 1 else self.width
            begin = k * CENTROIDS * self.width
            table = self.centroids[begin : begin + CENTROIDS * width].reshape(CENTROIDS, width)
            found[:, k * self.width : k * self.width + width] = table[codes[:, k]]
        return found


@dataclass(frozen=True)
class _Quantised:
    codes: NDArray[np.uint8]
    quantiser: _Quantiser
    norms: NDArray[np.float32] | None

    @property
    def rows(self) -> int:
        return len(self.codes)

    def __call__(self, start: int, stop: int) -> NDArray[np.float32]:
        found = self.quantiser(self.codes[start:stop])
        return found if self.norms is None else found * self.norms[start:stop, None]


def _matrix(file: _Reader, *, quantised: bool) -> _Dense | _Quantised:
    if not quantised:
        rows, columns = file.take("2q")
        return _Dense(file.array("<f4", rows * columns).reshape(rows, columns))
    with_norms = bool(file.take("B"))
    rows, _ = file.take("2q")
    codes = file.array("u1", file.take("i")).reshape(rows, -1)
    quantiser = _quantiser(file)
    if not with_norms:
        return _Quantised(codes, quantiser, None)
    norm_codes = file.array("u1", rows).reshape(rows, 1)
    return _Quantised(codes, quantiser, _quantiser(file)(norm_codes)[:, 0])


def _quantiser(file: _Reader) -> _Quantiser:
    dim, stretches, width, last = file.take("4i")
    return _Quantiser(dim, stretches, width, last, file.array("<f4", dim * CENTROIDS))
