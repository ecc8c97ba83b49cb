"""The compiled line editor of the C4 rules, which keeps track of where each byte came from.

One pass over the bytes of a batch writes the edited texts and, per document, the segments (out, in,
length) that say which bytes of the edited text are which bytes of the incoming one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.filters.edit_kernels import add
from pipeline.filters.line_kernels import DOT, NEWLINE, line_end, strip, three
from pipeline.word_kernels import SPACED, blank, codepoint, unspaced

CURLY = 1 << 62
"""Bit of what a line contains; the lower ones are phrases."""

KEPT, REMOVED, LOREM_LINES, CURLY_LINES, CURLY_FIRST = 0, 1, 2, 3, 4
"""Columns of the counts of a document."""

OPEN, CLOSE, BRACE = 91, 93, 123


@kernel
def matches(buffer: Any, i: int, end: int, text: Any) -> bool:
    """Whether `text` stands at `i`, letters of ASCII in either case."""
    if i + len(text) > end:
        return False
    for k in range(len(text)):
        c = buffer[i + k]
        if 65 <= c <= 90:
            c += 32
        if c != text[k]:
            return False
    return True


@kernel
def contents(buffer: Any, begin: int, end: int, phrases: Any, bounds: Any, starts: Any) -> int:
    """Bit k for the phrase k that a run of bytes contains, and CURLY for "{".

    `starts` [2, 256]: the phrases that have a byte at their first and at their second place, and
    CURLY for "{" at the first.
    """
    found = 0
    for i in range(begin, end):
        may = starts[0, buffer[i]]
        if may == 0:
            continue
        found |= may & CURLY
        may &= starts[1, buffer[i + 1]] if i + 1 < end else 0
        k = 0
        while may:
            if may & 1 and matches(buffer, i, end, phrases[bounds[k] : bounds[k + 1]]):
                found |= 1 << k
            may >>= 1
            k += 1
    return found


@kernel
def count_line_words(
    buffer: Any, begin: int, end: int, limit: int, spaced: bool
) -> tuple[int, bool]:
    """Words between blanks and whether one is longer than `limit` characters.

    In a document of a script without blanks each character of such a script is a word.
    """
    words = length = most = 0
    i = begin
    while i < end:
        c = buffer[i]
        if 32 < c < 0x80:
            words += 1 if length == 0 else 0
            length += 1
            i += 1
            continue
        step = blank(buffer, i, end)
        if step:
            most = max(most, length)
            length = 0
            i += step
            continue
        step = 1 if c < 0x80 else 2 if c < 0xE0 else 3 if c < 0xF0 else 4
        if not spaced and step > 2 and unspaced(codepoint(buffer, i)) != SPACED:
            words += 1
            most = max(most, length)
            length = 0
        else:
            words += 1 if length == 0 else 0
            length += 1
        i += step
    return words, max(most, length) > limit


@kernel
def citation(buffer: Any, i: int, end: int, marks: Any, bounds: Any, zeros: Any) -> int:
    """The length in bytes of "[12]", "[]" or one of `marks` at `i`; 0 if there is none.

    `zeros`: sorted code points of the digits zero of all scripts.
    """
    if buffer[i] != OPEN:
        return 0
    k = i + 1
    while k < end and buffer[k] != CLOSE:
        c = codepoint(buffer, k)
        zero = np.searchsorted(zeros, c, side="right") - 1
        if zero < 0 or c - zeros[zero] > 9:
            break
        k += 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4
    if k < end and buffer[k] == CLOSE:
        return k + 1 - i
    for m in range(len(bounds) - 1):
        mark = marks[bounds[m] : bounds[m + 1]]
        if i + len(mark) <= end:
            same = True
            for j in range(len(mark)):
                same &= buffer[i + j] == mark[j]
            if same:
                return len(mark)
    return 0


@kernel
def copy_line(
    buffer: Any, begin: int, end: int, cut: bool, marks: Any, bounds: Any, zeros: Any,
    out: Any, at: int, origin: int, base: int, segments: Any, n: int, first: int,
) -> tuple[int, int]:  # fmt: skip
    """Copy a line to `out` from `at` on, without citations if `cut`: (new `at`, new `n`).

    Segments are relative to the document: `origin` in `out`, `base` in `buffer`.
    """
    i = begin
    while i < end:
        skip = citation(buffer, i, end, marks, bounds, zeros) if cut else 0
        if skip:
            i += skip
            continue
        run = i
        i += 1
        while i < end and not (cut and buffer[i] == OPEN):
            i += 1
        out[at : at + i - run] = buffer[run:i]
        n = add(segments, n, first, at - origin, run - base, i - run)
        at += i - run
    return at, n


@kernel
def closed(out: Any, begin: int, end: int, ends: Any) -> bool:
    """Whether a line ends in one of `ends`, and not in "..."."""
    if begin >= end:
        return False
    found = False
    for c in ends:
        found |= out[end - 1] == c
    return found and not (end - begin >= 3 and three(out, end - 3, DOT, DOT, DOT))


@kernel
def edit_lines(
    buffer: Any, offsets: Any, spacing: Any, phrases: Any, phrase_bounds: Any, starts: Any,
    lorem: int, javascript: int, policy: int, marks: Any, mark_bounds: Any, zeros: Any, ends: Any,
    cut: bool, terminal: bool, min_words: int, longest: int, out: Any, out_offsets: Any,
    segments: Any, segment_offsets: Any, counts: Any,
) -> None:  # fmt: skip
    """Keep the lines that pass, without blanks at their ends and without citations.

    `javascript`, `policy`: bits of phrases for which a line is removed. Lines with `lorem` or "{"
    are counted and kept: they condemn the page, not the line. `counts` [n, 5]: kept and removed
    lines, lines with either, and whether a "{" comes first.
    """
    at = n = 0
    for d in range(len(offsets) - 1):
        base, end = offsets[d], offsets[d + 1]
        origin, first = at, n
        counts[d] = 0
        start = i = base
        while start < end:
            step = 0
            while i < end:
                if not 0x1E < buffer[i] < 0xC2:
                    step = line_end(buffer, i, end)
                    if step:
                        break
                i += 1
            low, high = strip(buffer, start, i)
            mark, mark_n = at, n
            if counts[d, KEPT]:
                out[at] = NEWLINE
                if start > base and buffer[start - 1] == NEWLINE:
                    n = add(segments, n, first, at - origin, start - 1 - base, 1)
                at += 1
            begin = at
            words, long = count_line_words(buffer, low, high, longest, spacing[d] == SPACED)
            keep = words >= min_words and not long
            if keep:
                at, n = copy_line(
                    buffer, low, high, cut, marks, mark_bounds, zeros, out, at, origin, base,
                    segments, n, first,
                )  # fmt: skip
                found = contents(out, begin, at, phrases, phrase_bounds, starts)
                keep = not terminal or closed(out, begin, at, ends)
                if keep and found & lorem:
                    counts[d, LOREM_LINES] += 1
                keep = keep and not found & javascript
                if keep and found & CURLY:
                    counts[d, CURLY_LINES] += 1
                    if counts[d, LOREM_LINES] == 0:
                        counts[d, CURLY_FIRST] = 1
                keep = keep and not found & policy
            if keep:
                counts[d, KEPT] += 1
            else:
                counts[d, REMOVED] += 1
                at, n = mark, mark_n
                if n > first:  # the segment before may have grown into this line
                    longest_kept = at - origin - segments[n - 1, 0]
                    segments[n - 1, 2] = min(segments[n - 1, 2], longest_kept)
            i += step
            start = i
        out_offsets[d + 1] = at
        segment_offsets[d + 1] = n
