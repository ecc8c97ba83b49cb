"""Compiled scans over token numbers, for the Gopher rules.

The hash of an n-gram comes from prefix sums: with S[i] the sum of a value of each token times a
running power of an odd number, and its inverse power, (S[i + n] - S[i]) * inverse[i] depends on the
n tokens only. One multiplication an n-gram, whatever n is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.filters.line_kernels import seen, table_size
from pipeline.word_kernels import HAS_LETTER, HAS_WORD_CHARACTER, INVERSE, MULTIPLIER, mix

WORDS, WORD_CHARACTERS, TOKENS, WITH_LETTER, STOP_WORDS = 0, 1, 2, 3, 4


@kernel
def count_words(tokens: Any, offsets: Any, lengths: Any, flags: Any, stop: Any, out: Any) -> None:
    """Words that are not only punctuation, their characters, tokens, tokens with a letter, and
    distinct stop words [n, 5]."""
    met = np.full(max(stop.max() + 1, 1) if len(stop) else 1, -1)  # the last document with each
    for d in range(len(offsets) - 1):
        words = length = letters = distinct = 0
        for i in range(offsets[d], offsets[d + 1]):
            t = tokens[i]
            if flags[t] & HAS_WORD_CHARACTER:
                words += 1
                length += lengths[t]
            letters += 1 if flags[t] & HAS_LETTER else 0
            if stop[t] >= 0 and met[stop[t]] != d:
                distinct += 1
                met[stop[t]] = d
        out[d, WORDS], out[d, WORD_CHARACTERS] = words, length
        out[d, TOKENS] = offsets[d + 1] - offsets[d]
        out[d, WITH_LETTER], out[d, STOP_WORDS] = letters, distinct


@kernel
def top_characters(
    sums: Any, inverses: Any, ends: Any, n: int, keys: Any, stamps: Any, stamp: int,
    counts: Any, firsts: Any,
) -> int:  # fmt: skip
    """Characters (with the blanks between words) of all occurrences of the most common n-gram.

    Of equally common ones the first seen counts. `ends`: running sum of word lengths.
    """
    mask = np.uint64(len(keys) - 1)
    best, first = 0, -1
    for i in range(len(sums) - n):
        h = mix((sums[i + n] - sums[i]) * inverses[i])
        slot = h & mask
        while stamps[slot] == stamp and keys[slot] != h:
            slot = (slot + np.uint64(1)) & mask
        if stamps[slot] != stamp:
            stamps[slot], keys[slot] = stamp, h
            counts[slot], firsts[slot] = 1, i
        else:
            counts[slot] += 1
        if counts[slot] > best or (counts[slot] == best and firsts[slot] < first):
            best, first = counts[slot], firsts[slot]
    return best * (ends[first + n] - ends[first] + n - 1) if best else 0


@kernel
def duplicate_characters(
    sums: Any, inverses: Any, ends: Any, n: int, keys: Any, stamps: Any, stamp: int
) -> int:
    """Characters of n-grams that occurred before; after one the search goes on behind it.

    Two n-grams are the same if their words joined without blanks are the same text.
    """
    i = length = 0
    while i < len(sums) - n:
        if seen(keys, stamps, stamp, mix((sums[i + n] - sums[i]) * inverses[i])):
            length += ends[i + n] - ends[i]
            i += n
        else:
            i += 1
    return length


@kernel
def repeated_ngrams(
    tokens: Any, offsets: Any, lengths: Any, token_sums: Any, token_powers: Any,
    token_inverses: Any, characters: Any, top_sizes: Any, duplicate_sizes: Any, out: Any,
) -> None:  # fmt: skip
    """Share of characters in the top n-gram and in duplicated n-grams of each size [n, sizes].

    NaN for a top n-gram of a text that is shorter than n words, 0 for duplicates.
    """
    most = 0
    for d in range(len(offsets) - 1):
        most = max(most, offsets[d + 1] - offsets[d])
    size = table_size(most + 1)
    keys, stamps = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    counts, firsts = np.zeros(size, np.int32), np.zeros(size, np.int64)
    ends = np.zeros(most + 1, np.int64)
    # of words as units, and of their bytes in a row
    units, unit_inverses = np.zeros(most + 1, np.uint64), np.ones(most + 1, np.uint64)
    joined, joined_inverses = np.zeros(most + 1, np.uint64), np.ones(most + 1, np.uint64)
    stamp = 0
    for d in range(len(offsets) - 1):
        begin = offsets[d]
        m = offsets[d + 1] - begin
        room = table_size(m)
        unit, power = np.uint64(1), np.uint64(1)
        for i in range(m):
            t = tokens[begin + i]
            ends[i + 1] = ends[i] + lengths[t]
            units[i + 1] = units[i] + mix(token_sums[t] ^ np.uint64(lengths[t])) * unit
            unit *= MULTIPLIER
            unit_inverses[i + 1] = unit_inverses[i] * INVERSE
            joined[i + 1] = joined[i] + token_sums[t] * power
            power *= token_powers[t]
            joined_inverses[i + 1] = joined_inverses[i] * token_inverses[t]
        for k in range(len(top_sizes)):
            stamp += 1
            length = top_characters(
                units[: m + 1], unit_inverses, ends, top_sizes[k], keys[:room], stamps[:room],
                stamp, counts, firsts,
            )  # fmt: skip
            out[d, k] = length / characters[d] if m >= top_sizes[k] else np.nan
        for k in range(len(duplicate_sizes)):
            stamp += 1
            length = duplicate_characters(
                joined[: m + 1], joined_inverses, ends, duplicate_sizes[k], keys[:room],
                stamps[:room], stamp,
            )  # fmt: skip
            out[d, len(top_sizes) + k] = length / characters[d] if characters[d] else np.nan
