"""Compiled scans over UTF-8 bytes and token arrays, for `pipeline.words`.

Texts of a batch lie in one byte buffer with document offsets, as Arrow keeps them. Nothing here
makes a Python string. The blanks are those of `str.isspace`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel

OFFSET, PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)  # FNV-1a
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2^64
INVERSE = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))

NO_GAP, GAP_TOKEN, GAP_LINE = 0, 1, 2
"""What stands before a chunk: one plain blank; blanks that make a token; a line end."""

SPACED, KANA, UNSPACED = 0, 1, 2
"""Whether a document's script puts blanks between words."""

HAS_WORD_CHARACTER, HAS_LETTER, ENDS_SENTENCE, IS_PUNCTUATION = 1, 2, 4, 8
"""Flags of a token."""

KNOWN, PUNCTUATION, LETTER, SENTENCE_END, CATEGORY_P = 1, 2, 4, 8, 16
"""Kinds of a character."""


@kernel
def mix(h: Any) -> Any:
    """The finaliser of MurmurHash3: 64 bits to 64 bits, one to one."""
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@kernel
def blank(buffer: Any, i: int, end: int) -> int:
    """The length in bytes of the blank at `i`, 0 where there is none."""
    c = buffer[i]
    if 32 < c < 0xC2:
        return 0
    if c <= 32:
        return 1 if c == 32 or 9 <= c <= 13 or 28 <= c <= 31 else 0
    if c == 0xC2:
        return 2 if i + 1 < end and (buffer[i + 1] == 0x85 or buffer[i + 1] == 0xA0) else 0
    if c > 0xE3 or c == 0xE0 or c < 0xE1 or i + 2 >= end:
        return 0
    d, e = buffer[i + 1], buffer[i + 2]
    if c == 0xE1:
        return 3 if d == 0x9A and e == 0x80 else 0
    if c == 0xE2:
        if d == 0x80:
            return 3 if e <= 0x8A or e == 0xA8 or e == 0xA9 or e == 0xAF else 0
        return 3 if d == 0x81 and e == 0x9F else 0
    return 3 if d == 0x80 and e == 0x80 else 0


@kernel
def codepoint(buffer: Any, i: int) -> Any:
    """The code point whose first byte is at `i`."""
    c = np.int64(buffer[i])
    if c < 0x80:
        return c
    if c < 0xE0:
        return (c & 0x1F) << 6 | np.int64(buffer[i + 1]) & 0x3F
    if c < 0xF0:
        middle = (np.int64(buffer[i + 1]) & 0x3F) << 6
        return (c & 0x0F) << 12 | middle | np.int64(buffer[i + 2]) & 0x3F
    high = (np.int64(buffer[i + 1]) & 0x3F) << 12 | (np.int64(buffer[i + 2]) & 0x3F) << 6
    return (c & 0x07) << 18 | high | np.int64(buffer[i + 3]) & 0x3F


@kernel
def unspaced(c: int) -> int:
    """KANA, UNSPACED (Han, Thai, Lao, Myanmar, Khmer) or SPACED for a code point."""
    if c < 0x0E00:
        return SPACED
    if 0x3040 <= c <= 0x30FF or 0x31F0 <= c <= 0x31FF:
        return KANA
    if 0x4E00 <= c <= 0x9FFF or 0x3400 <= c <= 0x4DBF or 0x20000 <= c <= 0x323AF:
        return UNSPACED
    if c <= 0x0EFF or 0x1000 <= c <= 0x109F or 0x1780 <= c <= 0x17FF or 0xF900 <= c <= 0xFAFF:
        return UNSPACED
    return SPACED


@kernel
def spacing(buffer: Any, offsets: Any, share: float, out: Any) -> None:
    """SPACED, KANA or UNSPACED per document: `share` of its characters decides, blanks aside."""
    for d in range(len(offsets) - 1):
        total = kana = other = 0
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            c = buffer[i]
            step = 1 if c < 0x80 else 2 if c < 0xE0 else 3 if c < 0xF0 else 4
            total += 1 if c > 32 else 0
            if step > 2:
                kind = unspaced(codepoint(buffer, i))
                kana += 1 if kind == KANA else 0
                other += 1 if kind == UNSPACED else 0
            i += step
        out[d] = SPACED
        if kana + other > share * total:
            # Japanese mixes kana into Han everywhere; a Chinese page may quote a few
            out[d] = KANA if kana > 0.1 * (kana + other) else UNSPACED


@kernel
def cut(
    buffer: Any, offsets: Any, modes: Any, hashes: Any, runs: Any, gaps: Any, run_offsets: Any,
    tails: Any,
) -> int:  # fmt: skip
    """Cut documents into runs without blanks; returns how many there are.

    Writes `hashes` (never 0), `runs` (begin, end, mode of the document), `gaps` (what stands before
    each), `run_offsets` and `tails` (the gap after the last run of each document).
    """
    n = 0
    for d in range(len(offsets) - 1):
        i, end = offsets[d], offsets[d + 1]
        # as a byte of its own: added to OFFSET, `-` of one mode would be `.` of another
        seed = (OFFSET ^ np.uint64(modes[d])) * PRIME
        while True:
            begin = i
            line = -1
            while i < end:
                step = blank(buffer, i, end)
                if step == 0:
                    break
                if line < 0 and buffer[i] == 10:
                    line = i
                i += step
            stop = line if line >= 0 else i
            single = stop == begin or (stop == begin + 1 and buffer[begin] == 32)
            gap = NO_GAP if single else GAP_TOKEN
            if line >= 0:
                gap |= GAP_LINE
            if i >= end:
                tails[d] = gap
                break
            begin = i
            h = seed
            while i < end:
                c = buffer[i]
                if (c <= 32 or c >= 0xC2) and blank(buffer, i, end):
                    break
                h = (h ^ np.uint64(c)) * PRIME
                i += 1
            hashes[n] = mix(h) | np.uint64(1)
            runs[n, 0], runs[n, 1], runs[n, 2] = begin, i, modes[d]
            gaps[n] = gap
            n += 1
        run_offsets[d + 1] = n
    return n


@kernel
def look_up(
    hashes: Any, start: int, table: Any, known: int, limit: int, ids: Any, new: Any
) -> tuple[int, int]:
    """The number of each run from `start` on, in an open-addressing table of (hash, number).

    A run that the table does not have gets the next number after `known`, and its position is
    appended to `new`. Stops before the table would hold more than `limit`; returns the position
    reached and how many runs are known then.
    """
    mask = np.uint64(len(table) - 1)
    first = known
    for i in range(start, len(hashes)):
        h = hashes[i]
        slot = (h >> np.uint64(7)) & mask
        while table[slot, 0] != 0 and table[slot, 0] != h:
            slot = (slot + np.uint64(1)) & mask
        if table[slot, 0] == 0:
            if known >= limit:
                return i, known
            table[slot, 0], table[slot, 1] = h, known
            new[known - first] = i
            known += 1
        ids[i] = table[slot, 1]
    return len(hashes), known


@kernel
def rehash(old: Any, table: Any) -> None:
    """Move the entries of a table to a larger one."""
    mask = np.uint64(len(table) - 1)
    for k in range(len(old)):
        if old[k, 0] != 0:
            slot = (old[k, 0] >> np.uint64(7)) & mask
            while table[slot, 0] != 0:
                slot = (slot + np.uint64(1)) & mask
            table[slot, 0], table[slot, 1] = old[k, 0], old[k, 1]


def table_of(hashes: Any, values: Any) -> Any:
    """An open-addressing table of (hash, value) for distinct hashes that are not 0."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    rows, table = np.stack([hashes, values], axis=1), np.zeros((size, 2), np.uint64)
    rehash(rows, table)
    return table


@kernel
def find(table: Any, h: Any) -> Any:
    """The number of a hash in a table of (hash, number), -1 where it has none."""
    mask = np.uint64(len(table) - 1)
    slot = (h >> np.uint64(7)) & mask
    while table[slot, 0] != 0:
        if table[slot, 0] == h:
            return np.int64(table[slot, 1])
        slot = (slot + np.uint64(1)) & mask
    return -1


@kernel
def expand(ids: Any, chunk_offsets: Any, starts: Any, chunk_tokens: Any) -> Any:
    """The token numbers of each document, chunk by chunk: (tokens, document offsets)."""
    total = 0
    for c in ids:
        total += starts[c + 1] - starts[c]
    tokens = np.empty(total, np.int32)
    offsets = np.zeros(len(chunk_offsets), np.int64)
    n = 0
    for d in range(len(chunk_offsets) - 1):
        for c in range(chunk_offsets[d], chunk_offsets[d + 1]):
            for k in range(starts[ids[c]], starts[ids[c] + 1]):
                tokens[n] = chunk_tokens[k]
                n += 1
        offsets[d + 1] = n
    return tokens, offsets


@kernel
def hash_spans(buffer: Any, spans: Any, out: Any) -> None:
    """A 64-bit hash of each run of bytes [n, 2] begin and end; never 0."""
    for t in range(len(spans)):
        h = OFFSET
        for i in range(spans[t, 0], spans[t, 1]):
            h = (h ^ np.uint64(buffer[i])) * PRIME
        out[t] = mix(h) | np.uint64(1)


@kernel
def describe(buffer: Any, spans: Any, lengths: Any, sums: Any, powers: Any, inverses: Any) -> None:
    """Length in characters and polynomial hash of each token.

    `sums` = sum of mix(byte) * M^position, `powers` = M^bytes, `inverses` = M^-bytes, modulo 2^64:
    what the hash of a concatenation is made of.
    """
    for t in range(len(spans)):
        total, power, inverse = np.uint64(0), np.uint64(1), np.uint64(1)
        characters = 0
        for i in range(spans[t, 0], spans[t, 1]):
            total += mix(np.uint64(buffer[i]) + np.uint64(1)) * power
            power *= MULTIPLIER
            inverse *= INVERSE
            characters += 1 if buffer[i] & 0xC0 != 0x80 else 0
        sums[t], powers[t], inverses[t], lengths[t] = total, power, inverse, characters


@kernel
def unknown_characters(buffer: Any, spans: Any, kinds: Any, out: Any) -> int:
    """Code points of the tokens that have no kind yet, each once; how many. They get KNOWN."""
    n = 0
    for t in range(len(spans)):
        i = spans[t, 0]
        while i < spans[t, 1] and n < len(out):
            c = codepoint(buffer, i)
            if kinds[c] == 0:
                kinds[c] = KNOWN
                out[n] = c
                n += 1
            i += 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4
    return n


@kernel
def flag_tokens(buffer: Any, spans: Any, kinds: Any, flags: Any) -> None:
    """What is known of each token from the kinds of its characters."""
    for t in range(len(spans)):
        i, n, any_of, all_of = spans[t, 0], 0, 0, 255
        while i < spans[t, 1]:
            c = codepoint(buffer, i)
            any_of |= kinds[c]
            all_of &= kinds[c]
            n += 1
            i += 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4
        flag = 0 if all_of & PUNCTUATION else HAS_WORD_CHARACTER
        flag |= HAS_LETTER if any_of & LETTER else 0
        flag |= ENDS_SENTENCE if n == 1 and all_of & SENTENCE_END else 0
        flags[t] = flag | (IS_PUNCTUATION if all_of & CATEGORY_P else 0)


@kernel
def sentence_breaks(
    ids: Any, gaps: Any, chunk_offsets: Any, tails: Any, starts: Any, chunk_tokens: Any,
    flags: Any, out: Any,
) -> None:  # fmt: skip
    """Sentence starts inside the lines of each document, by the rule of spaCy's sentencizer.

    A sentence starts at the first token that is no punctuation after one that ends a sentence. Each
    line is a text of its own; its first sentence is not counted. Blanks can be a token.
    """
    for d in range(len(chunk_offsets) - 1):
        count, ended = 0, False
        for c in range(chunk_offsets[d], chunk_offsets[d + 1]):
            if gaps[c] & GAP_TOKEN and ended:
                count += 1
                ended = False
            if gaps[c] & GAP_LINE:
                ended = False
            for k in range(starts[ids[c]], starts[ids[c] + 1]):
                flag = flags[chunk_tokens[k]]
                if flag & ENDS_SENTENCE:
                    ended = True
                elif ended and not flag & IS_PUNCTUATION:
                    count += 1
                    ended = False
        if tails[d] & GAP_TOKEN and ended:
            count += 1
        out[d] = count
