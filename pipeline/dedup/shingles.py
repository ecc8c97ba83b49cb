"""Words and shingles of texts, from their UTF-8 bytes; no Python string is made.

A word is a run of characters of the Unicode categories L, M, N and `_`, lower-cased. In scripts
written without spaces (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar) each character is a
word. A shingle is n words in a row; a text with fewer words has none. Words and shingles are 64-bit
hashes (FNV-1a with the finaliser of MurmurHash3), equal on every machine and in every version.

Python sets of shingle strings cap any MinHash at about 6,000 documents a second; this does ten
times that (see LOG.md).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.compiled import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U8 = NDArray[np.uint8]
    U64 = NDArray[np.uint64]
    I64 = NDArray[np.int64]

OUTSIDE, IN_WORD, WORD_ITSELF = 0, 1, 2
SPACELESS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
CODE_POINTS = 0x110000
ASSIGNED = ((0x80, 0xD800), (0xF900, 0x34000), (0xE0000, 0xE0200))
"""Where letters, marks and numbers beyond ASCII are; surrogates and private use are left out."""


@cache
def word_classes() -> U8:
    """The class of every code point, `[0x110000] uint8`: 0 no word, 1 in a word, 2 a word itself.

    Categories and scripts are those of the regex engine in Polars; about 0.1 s, once a process.
    """
    points = [p for low, high in ASSIGNED for p in range(low, high)]
    chars = pl.DataFrame({"point": points, "char": list(map(chr, points))})
    words = chars.filter(pl.col("char").str.contains(r"[\p{L}\p{M}\p{N}]"))
    scripts = "".join(rf"\p{{{name}}}" for name in SPACELESS)
    alone = words.filter(pl.col("char").str.contains(f"[{scripts}]"))
    table = np.zeros(CODE_POINTS, np.uint8)
    for first, last in ("09", "AZ", "az", "__"):
        table[ord(first) : ord(last) + 1] = IN_WORD
    table[words["point"].to_numpy()] = IN_WORD
    table[alone["point"].to_numpy()] = WORD_ITSELF
    return table


def utf8(texts: pl.Series) -> tuple[U8, I64]:
    """The bytes of a string column and the offsets of its rows, `[n + 1]`; null is empty."""
    array = texts.fill_null("").to_arrow()
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    array = array.cast(pa.large_string())
    _, offsets, data = array.buffers()
    starts = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(data or b"", np.uint8), starts


def word_hashes(texts: pl.Series) -> tuple[U64, I64]:
    """Hashes of the words of each text, `[words] uint64`, and the offsets of texts, `[n + 1]`."""
    data, starts = utf8(texts.str.to_lowercase())
    classes = word_classes()
    offsets = np.zeros(len(texts) + 1, np.int64)
    # a word takes two bytes, with what divides it from the next; one in a spaceless script three
    words = np.empty((int(starts[-1] - starts[0]) + len(texts)) // 2 + 1, np.uint64)
    _hash_words(data, starts, classes, words, offsets)
    return words[: offsets[-1]], offsets


def shingle_hashes(words: U64, offsets: I64, n: int) -> tuple[U64, I64]:
    """Hashes of every n words in a row, in order and with repeats, and the offsets of texts."""
    counts = np.maximum(np.diff(offsets) - n + 1, 0)
    starts = np.zeros(len(offsets), np.int64)
    np.cumsum(counts, out=starts[1:])
    hashes = np.empty(int(starts[-1]), np.uint64)
    _hash_shingles(words, offsets, n, hashes, starts)
    return hashes, starts


def shingle_sets(texts: pl.Series, n: int) -> tuple[U64, I64]:
    """The distinct shingles of each text, ascending, and the offsets of texts `[n + 1]`."""
    hashes, starts = shingle_hashes(*word_hashes(texts), n)
    sizes = np.zeros(len(starts), np.int64)
    _sort_unique(hashes, starts, sizes)
    np.cumsum(sizes, out=sizes)
    packed = np.empty(int(sizes[-1]), np.uint64)
    _pack(hashes, starts, packed, sizes)
    return packed, sizes


FNV_BASIS = np.uint64(0xCBF29CE484222325)
FNV_PRIME = np.uint64(0x100000001B3)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
SHIFT_33 = np.uint64(33)
SHIFT_32 = np.uint64(32)


@kernel
def mix(h: np.uint64) -> np.uint64:
    """MurmurHash3's 64-bit finaliser: every bit of the input moves every bit of the output."""
    h ^= h >> SHIFT_33
    h *= MIX_1
    h ^= h >> SHIFT_33
    h *= MIX_2
    return h ^ (h >> SHIFT_33)


@kernel
def code_point(data: U8, i: int) -> tuple[int, int]:
    """The code point beyond ASCII that starts at byte i of valid UTF-8, and its length in bytes."""
    lead = int(data[i])
    if lead < 0xE0:
        return ((lead & 0x1F) << 6) | (data[i + 1] & 0x3F), 2
    if lead < 0xF0:
        return ((lead & 0x0F) << 12) | ((data[i + 1] & 0x3F) << 6) | (data[i + 2] & 0x3F), 3
    high = ((lead & 0x07) << 18) | ((data[i + 1] & 0x3F) << 12)
    return high | ((data[i + 2] & 0x3F) << 6) | (data[i + 3] & 0x3F), 4


@kernel
def _hash_words(data: U8, starts: I64, classes: U8, words: U64, offsets: I64) -> None:
    n = 0
    for d in range(len(starts) - 1):
        inside = False
        h = FNV_BASIS
        i = starts[d]
        while i < starts[d + 1]:
            size = 1
            point = int(data[i])
            if point >= 0x80:
                point, size = code_point(data, i)
            kind = classes[point]
            if kind != IN_WORD and inside:
                words[n] = mix(h)
                n += 1
                inside = False
            if kind != OUTSIDE:
                if not inside:
                    h = FNV_BASIS
                for k in range(i, i + size):
                    h = (h ^ np.uint64(data[k])) * FNV_PRIME
                if kind == IN_WORD:
                    inside = True
                else:
                    words[n] = mix(h)
                    n += 1
            i += size
        if inside:
            words[n] = mix(h)
            n += 1
        offsets[d + 1] = n


@kernel
def _hash_shingles(words: U64, offsets: I64, n: int, hashes: U64, starts: I64) -> None:
    for d in range(len(offsets) - 1):
        first = offsets[d]
        for i in range(starts[d + 1] - starts[d]):
            h = np.uint64(0)
            for k in range(n):
                h = (h ^ words[first + i + k]) * GOLDEN
                h ^= h >> SHIFT_32
            hashes[starts[d] + i] = mix(h)


@kernel
def _sort_unique(hashes: U64, starts: I64, sizes: I64) -> None:
    """Sort each text's hashes in place, distinct ones in front; their number is sizes[d + 1]."""
    for d in range(len(starts) - 1):
        first, last = starts[d], starts[d + 1]
        hashes[first:last].sort()
        n = first
        for i in range(first, last):
            if i == first or hashes[i] != hashes[n - 1]:
                hashes[n] = hashes[i]
                n += 1
        sizes[d + 1] = n - first


@kernel
def _pack(hashes: U64, starts: I64, packed: U64, offsets: I64) -> None:
    for d in range(len(starts) - 1):
        for i in range(offsets[d + 1] - offsets[d]):
            packed[offsets[d] + i] = hashes[starts[d] + i]
