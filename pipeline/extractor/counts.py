"""Compiled: hashes, open tables and the counts of a block's text."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import bare_kernel
from pipeline.extractor import vocabulary as voc

PRIME, SEED = np.uint64(voc.FNV_PRIME), np.uint64(voc.FNV_SEED)
TITLE_SLOTS, TITLE_WORDS = 512, 200
"""Slots of the table of title words, and how many words go in at most."""


@bare_kernel
def find(lexicon: Any, h: Any) -> Any:
    """The value of a salted hash in the lexicon, 0 where it has none."""
    mask = np.uint64(len(lexicon) - 1)
    slot = h & mask
    while lexicon[slot, 0] != 0:
        if lexicon[slot, 0] == h:
            return np.int64(lexicon[slot, 1])
        slot = (slot + np.uint64(1)) & mask
    return np.int64(0)


@bare_kernel
def hashed(buffer: Any, start: int, end: int) -> Any:
    """FNV-1a of a range of bytes."""
    h = SEED
    for i in range(start, end):
        h = (h ^ np.uint64(buffer[i])) * PRIME
    return h


@bare_kernel
def title_words(buffer: Any, start: int, end: int, keys: Any) -> None:
    """Put the words of two letters and more, lower case, into a set of hashes."""
    mask = np.uint64(TITLE_SLOTS - 1)
    h, length, n = SEED, 0, 0
    for i in range(start, end + 1):
        c = buffer[i] if i < end else np.uint8(32)
        if 65 <= c <= 90:
            c = np.uint8(c + 32)
        if c >= 0x80 or 97 <= c <= 122 or 48 <= c <= 57:
            length += 1
            h = (h ^ np.uint64(c)) * PRIME
        elif length:
            if length > 1 and n < TITLE_WORDS:
                slot = h & mask
                while keys[slot] != 0 and keys[slot] != h:
                    slot = (slot + np.uint64(1)) & mask
                keys[slot] = h
                n += 1
            h, length = SEED, 0


@bare_kernel
def in_title(keys: Any, h: Any) -> Any:
    """Whether a hash is in the set of title words."""
    mask = np.uint64(TITLE_SLOTS - 1)
    slot = h & mask
    while keys[slot] != 0 and keys[slot] != h:
        slot = (slot + np.uint64(1)) & mask
    return keys[slot] == h


@bare_kernel
def count_text(out: Any, start: int, end: int, row: Any, title_keys: Any) -> None:
    """Fill the columns of a row that count its text. Two ideographs or kana count as a word."""
    words = sentences = commas = digits = capitals = cjk = chars = 0
    short = titled = np.int64(0)
    h, word, length = SEED, SEED, 0
    for i in range(start, end + 1):
        c = out[i] if i < end else np.uint8(32)
        if c == 32 or c == 10 or c == 9:
            if length:
                words += 1
                short += np.int64(length <= 3)
                titled += in_title(title_keys, word)
            length, word = 0, SEED
            continue
        h = (h ^ np.uint64(c)) * PRIME
        chars += 1 if c < 0x80 or c >= 0xC0 else 0
        if 48 <= c <= 57:
            digits += 1
        elif 65 <= c <= 90:
            capitals += 1
            c = np.uint8(c + 32)
        elif c == 44:
            commas += 1
            continue
        elif c == 46 or c == 33 or c == 63:
            after = out[i + 1] if i + 1 < end else np.uint8(32)
            sentences += after == 32 or after == 10 or after == 34
            continue
        elif 0xE3 <= c <= 0xE9 and i + 2 < end:
            cjk += 1
            if c == 0xE3 and out[i + 1] == 0x80:
                sentences += out[i + 2] == 0x82
                commas += out[i + 2] == 0x81
        if c >= 0x80 or 97 <= c <= 122 or 48 <= c <= 57:
            length += 1
            word = (word ^ np.uint64(c)) * PRIME
    row[voc.B_WORDS] = words + cjk // 2
    row[voc.B_SENT], row[voc.B_COMMA] = sentences, commas
    row[voc.B_DIGIT], row[voc.B_UPPER], row[voc.B_SHORT] = digits, capitals, short
    row[voc.B_CJK], row[voc.B_CHARS], row[voc.B_TITLE] = cjk, chars, titled
    row[voc.B_HASH] = np.int64(h >> np.uint64(1))
