"""Compiled scans over UTF-8 bytes: normalising texts, and what fastText's linear models add up.

Texts lie in one byte buffer with row offsets, as Arrow keeps them. Hashes and the arithmetic of
word pairs are fastText's own (dictionary.cc of 0.9.2: FNV-1a over signed bytes, pairs in 64 bits
from signed 32-bit hashes), so that models of the library can be read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.word_kernels import codepoint

BLANK, ODD = 0, -1
SPACE, UNDERSCORE, GREATER = 0x20, 0x5F, 0x3E
BASIS, PRIME = 2166136261, 16777619
PAIR = np.uint64(116049371)
LABEL = np.frombuffer(b"__label_", np.uint8)
END = np.frombuffer(b"</s", np.uint8)
EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def squash(buffer: Any, offsets: Any, lower: Any, out: Any, bounds: Any, odd: Any) -> None:
    """Lower-case [n] texts and squash their blanks into `out`, offsets into `bounds` [n + 1].

    Rows that hold something else to be done are marked in `odd`; what is written of them is void.
    """
    to = 0
    for row in range(len(offsets) - 1):
        i, end, begin = offsets[row], offsets[row + 1], to
        waiting = False
        while i < end:
            c = buffer[i]
            if c < 0x80:
                small = np.int64(lower[c])
                i += 1
            else:
                point = codepoint(buffer, i)
                small = np.int64(lower[point]) if point < len(lower) else point
                i += 2 if c < 0xE0 else 3 if c < 0xF0 else 4
            if small == BLANK:
                waiting = True
                continue
            if small == ODD:
                odd[row] = True
                break
            if waiting:
                if to > begin:
                    out[to] = SPACE
                    to += 1
                waiting = False
            if small < 0x80:
                out[to] = small
                to += 1
            else:
                to = _write(out, to, small)
                continue
            if small == UNDERSCORE:
                odd[row] |= _follows(out, begin, to - 1, LABEL)
            elif small == GREATER:
                odd[row] |= _follows(out, begin, to - 1, END)
        bounds[row + 1] = to


@kernel
def _write(out: Any, to: int, point: int) -> int:
    """Write a code point beyond ASCII as UTF-8; where the next one goes."""
    if point < 0x800:
        out[to] = 0xC0 | point >> 6
        out[to + 1] = 0x80 | point & 0x3F
        return to + 2
    if point < 0x10000:
        out[to] = 0xE0 | point >> 12
        out[to + 1] = 0x80 | point >> 6 & 0x3F
        out[to + 2] = 0x80 | point & 0x3F
        return to + 3
    out[to] = 0xF0 | point >> 18
    out[to + 1] = 0x80 | point >> 12 & 0x3F
    out[to + 2] = 0x80 | point >> 6 & 0x3F
    out[to + 3] = 0x80 | point & 0x3F
    return to + 4


@kernel
def _follows(out: Any, begin: int, to: int, mark: Any) -> bool:
    """Whether the bytes before `to` are `mark`."""
    start = to - len(mark)
    if start < begin:
        return False
    k = 0
    while k < len(mark) and out[start + k] == mark[k]:
        k += 1
    return k == len(mark)


@kernel
def step(h: Any, byte: Any) -> Any:
    """One byte more in fastText's hash, which takes bytes as signed numbers."""
    c = np.uint32(byte)
    if c >= np.uint32(0x80):
        c |= np.uint32(0xFFFFFF00)
    return np.uint32((h ^ c) * np.uint32(PRIME))


@kernel
def fnv(buffer: Any, start: int, end: int) -> Any:
    """fastText's hash of bytes: FNV-1a."""
    h = np.uint32(BASIS)
    for i in range(start, end):
        h = step(h, buffer[i])
    return h


@kernel
def hash_words(buffer: Any, offsets: Any, table: Any) -> None:
    """Put words into the open `table` (uint64 [a power of two], EMPTY): hash above, number below.

    Both in one number, so that most words that are not there cost one look.
    """
    mask = np.uint64(len(table) - 1)
    for word in range(len(offsets) - 1):
        h = np.uint64(fnv(buffer, offsets[word], offsets[word + 1]))
        slot = h & mask
        while table[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = h << np.uint64(32) | np.uint64(word)


@kernel
def find(buffer: Any, start: int, end: int, h: Any, words: Any, offsets: Any, table: Any) -> Any:
    """The number of the word at `start`, -1 where the model has not got it."""
    mask = np.uint64(len(table) - 1)
    slot = np.uint64(h) & mask
    while table[slot] != EMPTY:
        if table[slot] >> np.uint64(32) == np.uint64(h):
            word = np.int64(table[slot] & np.uint64(0xFFFFFFFF))
            begin = offsets[word]
            if offsets[word + 1] - begin == end - start:
                k = 0
                while k < end - start and words[begin + k] == buffer[start + k]:
                    k += 1
                if k == end - start:
                    return word
        slot = (slot + np.uint64(1)) & mask
    return -1


@kernel
def add_up(
    buffer: Any, offsets: Any, words: Any, word_offsets: Any, table: Any, weights: Any, slots: Any,
    bucket: int, n_grams: int, end_of_line: int, end_hash: Any, logits: Any,
) -> None:  # fmt: skip
    """The mean over words and word n-grams of `weights` [n_rows, n_columns], for [n] texts.

    Texts are normalised: words have single blanks between them. fastText ends every line with a
    mark, which may be a word of the model and takes part in n-grams. `slots` leads from a hash of
    an n-gram to its row, -1 where it was pruned; empty where none was. The means go behind column 0
    of `logits` [n, 1 + n_columns]; NaN for a text with no row.
    """
    n_words, n_columns = len(word_offsets) - 1, weights.shape[1]
    total = np.zeros(n_columns, np.float64)
    before = np.zeros(max(n_grams - 1, 1), np.uint64)
    for row in range(len(offsets) - 1):
        total[:] = 0
        n, live = 0, 0
        i, end = offsets[row], offsets[row + 1]
        ended = False
        while not ended:
            if i < end:
                start = i
                h = np.uint32(BASIS)
                while i < end and buffer[i] != SPACE:
                    h = step(h, buffer[i])
                    i += 1
                word = find(buffer, start, i, h, words, word_offsets, table)
                i += 1
            else:
                h, word, ended = np.uint32(end_hash), end_of_line, True
            if word >= 0:
                n += 1
                for k in range(n_columns):
                    total[k] += weights[word, k]
            signed = np.uint64(np.int64(np.int32(h)))
            for g in range(live):
                before[g] = before[g] * PAIR + signed
                slot = np.int64(before[g] % np.uint64(bucket))
                if len(slots):
                    slot = np.int64(slots[slot])
                if slot >= 0:
                    n += 1
                    for k in range(n_columns):
                        total[k] += weights[n_words + slot, k]
            live = _remember(before, live, n_grams - 1, signed)
        for k in range(n_columns):
            logits[row, k + 1] = total[k] / n if n else np.nan


@kernel
def _remember(before: Any, live: int, most: int, signed: Any) -> int:
    """Begin an n-gram with the word just read, in place of the longest; how many are begun."""
    if most == 0:
        return 0
    if live == most:
        for g in range(live - 1):
            before[g] = before[g + 1]
        live -= 1
    before[live] = signed
    return live + 1
