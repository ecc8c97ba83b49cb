"""Compiled scans over the lines and paragraphs of texts, for the Gopher and FineWeb rules.

All work on the UTF-8 bytes of a batch; lengths are in characters, as the published rules count.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.word_kernels import OFFSET, PRIME, blank, codepoint, mix

NEWLINE, HASH, DOT, DASH = 10, 35, 46, 45

PARA_FRAC, PARA_CHAR_FRAC, LINE_FRAC, LINE_CHAR_FRAC = 0, 1, 2, 3
CHARACTERS = 4
HASHES, ELLIPSES, BULLET_LINES, ELLIPSIS_LINES = 0, 1, 2, 3
PUNCTUATED, SHORT, DUPLICATED, NEWLINES = 0, 1, 2, 3


@kernel
def hash_bytes(buffer: Any, begin: int, end: int) -> Any:
    """A 64-bit hash of a run of bytes."""
    h = OFFSET
    for i in range(begin, end):
        h = (h ^ np.uint64(buffer[i])) * PRIME
    return mix(h)


@kernel
def characters(buffer: Any, begin: int, end: int) -> int:
    """How many characters a run of UTF-8 bytes has."""
    n = 0
    for i in range(begin, end):
        n += 1 if buffer[i] & 0xC0 != 0x80 else 0
    return n


@kernel
def seen(keys: Any, stamps: Any, stamp: int, h: Any) -> bool:
    """Whether `h` was asked for before under this stamp; it is from now on."""
    mask = np.uint64(len(keys) - 1)
    slot = h & mask
    while stamps[slot] == stamp and keys[slot] != h:
        slot = (slot + np.uint64(1)) & mask
    if stamps[slot] == stamp:
        return True
    stamps[slot], keys[slot] = stamp, h
    return False


@kernel
def table_size(n: int) -> int:
    """A power of two with room for `n` keys at half load."""
    size = 16
    while size < 2 * n:
        size *= 2
    return size


@kernel
def most_lines(buffer: Any, offsets: Any) -> int:
    """The largest number of line ends in one document, plus one."""
    most = 0
    for d in range(len(offsets) - 1):
        n = 1
        for i in range(offsets[d], offsets[d + 1]):
            n += 1 if buffer[i] == NEWLINE else 0
        most = max(most, n)
    return most


@kernel
def strip(buffer: Any, begin: int, end: int) -> tuple[int, int]:
    """The run without the blanks at its ends, as `str.strip`."""
    while begin < end:
        step = blank(buffer, begin, end)
        if step == 0:
            break
        begin += step
    while end > begin:
        i = end - 1
        while i > begin and buffer[i] & 0xC0 == 0x80:
            i -= 1
        if blank(buffer, i, end) != end - i:
            break
        end = i
    return begin, end


@kernel
def duplicates(
    buffer: Any, begin: int, end: int, least: int, keys: Any, stamps: Any, stamp: int
) -> tuple[int, int, int]:
    """Runs between groups of at least `least` newlines: (runs, repeated runs, their characters)."""
    n = repeated = length = 0
    start = i = begin
    while True:
        stop = i
        while i < end and buffer[i] == NEWLINE:
            i += 1
        if i - stop >= least or i >= end:
            if i - stop < least:
                stop = end
            n += 1
            if seen(keys, stamps, stamp, hash_bytes(buffer, start, stop)):
                repeated += 1
                length += characters(buffer, start, stop)
            start = i
            if i >= end:
                if i - stop >= least:  # the text ends in a separator: an empty run follows
                    n += 1
                    if seen(keys, stamps, stamp, hash_bytes(buffer, end, end)):
                        repeated += 1
                return n, repeated, length
        i += 1


@kernel
def repeated_lines(buffer: Any, offsets: Any, out: Any) -> None:
    """Shares of repeated paragraphs and lines, by number and by characters, and the characters of
    the text [n, 5]; the shares are NaN where it is empty."""
    size = table_size(most_lines(buffer, offsets) + 2)
    keys, stamps = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    for d in range(len(offsets) - 1):
        begin, end = offsets[d], offsets[d + 1]
        total = characters(buffer, begin, end)
        if total == 0:
            out[d] = np.nan
            out[d, CHARACTERS] = 0
            continue
        out[d, CHARACTERS] = total
        low, high = strip(buffer, begin, end)
        n, repeated, length = duplicates(buffer, low, high, 2, keys, stamps, 2 * d + 1)
        out[d, PARA_FRAC], out[d, PARA_CHAR_FRAC] = repeated / n, length / total
        n, repeated, length = duplicates(buffer, begin, end, 1, keys, stamps, 2 * d + 2)
        out[d, LINE_FRAC], out[d, LINE_CHAR_FRAC] = repeated / n, length / total


@kernel
def line_end(buffer: Any, i: int, end: int) -> int:
    """The length in bytes of the line boundary at `i` as `str.splitlines` has it; 0 if none."""
    c = buffer[i]
    if 0x20 <= c < 0xC2:
        return 0
    if c < 0x20:
        if c == 13 and i + 1 < end and buffer[i + 1] == NEWLINE:
            return 2
        return 1 if 10 <= c <= 13 or 28 <= c <= 30 else 0
    if c == 0xC2:
        return 2 if i + 1 < end and buffer[i + 1] == 0x85 else 0
    if c == 0xE2 and i + 2 < end and buffer[i + 1] == 0x80:
        return 3 if buffer[i + 2] == 0xA8 or buffer[i + 2] == 0xA9 else 0
    return 0


@kernel
def three(buffer: Any, i: int, a: int, b: int, c: int) -> bool:
    """Whether the three bytes from `i` are these."""
    return buffer[i] == a and buffer[i + 1] == b and buffer[i + 2] == c


@kernel
def ends_in_ellipsis(buffer: Any, begin: int, end: int) -> bool:
    """Whether a run of bytes ends in "..." or "…"."""
    return end - begin >= 3 and (
        three(buffer, end - 3, DOT, DOT, DOT) or three(buffer, end - 3, 0xE2, 0x80, 0xA6)
    )


@kernel
def starts_with_bullet(buffer: Any, begin: int, end: int) -> bool:
    """Whether a run of bytes starts with "•" or "-"."""
    if begin >= end:
        return False
    return buffer[begin] == DASH or (end - begin >= 3 and three(buffer, begin, 0xE2, 0x80, 0xA2))


@kernel
def symbols(buffer: Any, offsets: Any, out: Any) -> None:
    """ "#" and ellipses, share of bullet lines and of lines that end in an ellipsis [n, 4]."""
    for d in range(len(offsets) - 1):
        begin, end = offsets[d], offsets[d + 1]
        hashes = ellipses = 0
        i = begin
        while i < end:
            c = buffer[i]
            if c == DOT:
                first = i
                while i < end and buffer[i] == DOT:
                    i += 1
                ellipses += (i - first) // 3
                continue
            hashes += 1 if c == HASH else 0
            if c == 0xE2 and three(buffer, i, 0xE2, 0x80, 0xA6):
                ellipses += 1
            i += 1
        n = bullets = trailing = 0
        i = start = begin
        while start < end:
            step = 0
            while i < end:
                if not 0x1E < buffer[i] < 0xC2:
                    step = line_end(buffer, i, end)
                    if step:
                        break
                i += 1
            low, high = strip(buffer, start, i)
            n += 1
            bullets += 1 if starts_with_bullet(buffer, low, high) else 0
            trailing += 1 if ends_in_ellipsis(buffer, low, high) else 0
            i += step
            start = i
        out[d, HASHES], out[d, ELLIPSES] = hashes, ellipses
        out[d, BULLET_LINES] = bullets / n if n else np.nan
        out[d, ELLIPSIS_LINES] = trailing / n if n else np.nan


@kernel
def last_codepoint(buffer: Any, begin: int, end: int) -> int:
    """The last character of a run of bytes that is not empty."""
    i = end - 1
    while i > begin and buffer[i] & 0xC0 == 0x80:
        i -= 1
    return codepoint(buffer, i)


@kernel
def line_shape(buffer: Any, offsets: Any, terminal: Any, short: int, out: Any) -> None:
    """FineWeb's line shares [n, 4]: punctuated, short, repeated characters; and newlines.

    `terminal`: sorted code points that end a sentence. The shares are NaN where every line is
    blank.
    """
    size = table_size(most_lines(buffer, offsets) + 2)
    keys, stamps = np.zeros(size, np.uint64), np.zeros(size, np.int64)
    for d in range(len(offsets) - 1):
        start, end = offsets[d], offsets[d + 1]
        n = punctuated = brief = repeated = newlines = total = 0
        while start <= end:
            i = start
            length = 0
            while i < end and buffer[i] != NEWLINE:
                length += 1 if buffer[i] & 0xC0 != 0x80 else 0
                i += 1
            newlines += 1 if i < end else 0
            total += length
            low, high = strip(buffer, start, i)
            if low < high:
                n += 1
                last = last_codepoint(buffer, start, i)
                at = np.searchsorted(terminal, last)
                punctuated += 1 if at < len(terminal) and terminal[at] == last else 0
                brief += 1 if length <= short else 0
                if seen(keys, stamps, d + 1, hash_bytes(buffer, start, i)):
                    repeated += length
            start = i + 1
        out[d, PUNCTUATED] = punctuated / n if n else np.nan
        out[d, SHORT] = brief / n if n else np.nan
        out[d, DUPLICATED] = repeated / total if n else np.nan
        out[d, NEWLINES] = newlines
