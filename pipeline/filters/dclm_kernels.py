"""Compiled scans for the page and line rules of DCLM.

Words are what stands between blanks. Where pages are counted in words that are not punctuation,
they are fastText's: between ASCII blanks, and with a letter or digit in front.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.filters.edit_kernels import add
from pipeline.filters.line_kernels import DASH, DOT, HASH, NEWLINE, strip, three
from pipeline.word_kernels import blank, codepoint

LETTER, CAPITAL, FIGURE, ALNUM = 1, 2, 4, 8
"""Kinds of characters: `str.isalpha`, `isupper`, `isdigit`, `isalnum`."""

WORDS, CHARACTERS, WITHOUT_LETTER, PLAIN_WORDS, SYMBOLS, STOP_WORDS = 0, 1, 2, 3, 4, 5
LINES, BULLETS, ELLIPSES = 6, 7, 8
REMOVED_LINES, WORDS_LEFT = 0, 1
SPACE, STAR = 32, 42


@kernel
def width(c: Any) -> int:
    """Bytes of the character with this first byte."""
    return 1 if c < 0x80 else 2 if c < 0xE0 else 3 if c < 0xF0 else 4


@kernel
def separates(c: Any) -> bool:
    """Whether fastText ends a word at this byte."""
    return c == SPACE or 9 <= c <= 13 or c == 0


@kernel
def same_word(buffer: Any, begin: int, end: int, word: Any) -> bool:
    """Whether a run of bytes is `word`, letters of ASCII in either case."""
    if end - begin != len(word):
        return False
    for k in range(len(word)):
        c = buffer[begin + k]
        if (c + 32 if 65 <= c <= 90 else c) != word[k]:
            return False
    return True


@kernel
def plain_words(buffer: Any, begin: int, end: int, kinds: Any) -> int:
    """fastText's words that have a letter or digit in front."""
    n = 0
    i = begin
    while i < end:
        c = buffer[i]
        if not separates(c) and (i == begin or separates(buffer[i - 1])):
            n += 1 if kinds[codepoint(buffer, i)] & ALNUM else 0
        i += width(c)
    return n


@kernel
def count_plain_words(buffer: Any, offsets: Any, kinds: Any, out: Any) -> None:
    """`plain_words` of each document."""
    for d in range(len(offsets) - 1):
        out[d] = plain_words(buffer, offsets[d], offsets[d + 1], kinds)


@kernel
def spaced_dots(buffer: Any, i: int, end: int) -> bool:
    """Whether ". . ." stands at `i`."""
    return (
        i + 5 <= end
        and three(buffer, i, DOT, SPACE, DOT)
        and buffer[i + 3] == SPACE
        and buffer[i + 4] == DOT
    )


@kernel
def symbols(buffer: Any, begin: int, end: int) -> int:
    """ "#", "...", ". . ." and "…", each counted by itself."""
    n = dots = 0
    free = begin  # where the next ". . ." may begin
    for i in range(begin, end):
        c = buffer[i]
        dots = dots + 1 if c == DOT else 0
        if dots == 3:
            n += 1
            dots = 0
        if c == DOT and i >= free and spaced_dots(buffer, i, end):
            n += 1
            free = i + 5
        n += 1 if c == HASH else 0
        n += 1 if c == 0xE2 and three(buffer, i, 0xE2, 0x80, 0xA6) else 0
    return n


@kernel
def line_marks(buffer: Any, begin: int, end: int, out: Any) -> None:
    """Lines that are not blank, those that start as a bullet, those that end in an ellipsis."""
    start = begin
    while start <= end:
        i = start
        while i < end and buffer[i] != NEWLINE:
            i += 1
        low, high = strip(buffer, start, i)
        if low < high:
            out[LINES] += 1
            c, n = buffer[low], high - low
            bullet = c in (STAR, DASH)
            if n >= 3:
                bullet |= three(buffer, low, 0xE2, 0x97, 0x8F)
                bullet |= three(buffer, low, 0xE2, 0x80, 0xA2)
            out[BULLETS] += 1 if bullet else 0
            trailing = n >= 5 and spaced_dots(buffer, high - 5, high)
            if n >= 3:
                trailing |= three(buffer, high - 3, DOT, DOT, DOT)
                trailing |= three(buffer, high - 3, 0xE2, 0x80, 0xA6)
            out[ELLIPSES] += 1 if trailing else 0
        start = i + 1


@kernel
def page_shape(buffer: Any, offsets: Any, kinds: Any, stop: Any, bounds: Any, out: Any) -> None:
    """What the page rules count [n, 9]; `stop, bounds`: stop words in one run of bytes."""
    for d in range(len(offsets) - 1):
        out[d] = 0
        i, end = offsets[d], offsets[d + 1]
        while i < end:
            step = blank(buffer, i, end)
            if step:
                i += step
                continue
            begin, letters, n = i, 0, 0
            while i < end and not blank(buffer, i, end):
                letters |= kinds[codepoint(buffer, i)] & LETTER
                n += 1
                i += width(buffer[i])
            out[d, WORDS] += 1
            out[d, CHARACTERS] += n
            out[d, WITHOUT_LETTER] += 0 if letters else 1
            for k in range(len(bounds) - 1):
                if same_word(buffer, begin, i, stop[bounds[k] : bounds[k + 1]]):
                    out[d, STOP_WORDS] += 1
        out[d, PLAIN_WORDS] = plain_words(buffer, offsets[d], end, kinds)
        out[d, SYMBOLS] = symbols(buffer, offsets[d], end)
        line_marks(buffer, offsets[d], end, out[d])


@kernel
def keeps(
    buffer: Any, begin: int, end: int, kinds: Any, capitals: float, figures: float, least: int
) -> bool:
    """Whether a line stays: empty, or not too many capitals or figures and enough words."""
    if begin == end:
        return True
    n = upper = digits = words = 0
    inside = False
    i = begin
    while i < end:
        step = blank(buffer, i, end)
        words += 1 if not step and not inside else 0
        inside = step == 0
        kind = kinds[codepoint(buffer, i)]
        upper += 1 if kind & CAPITAL else 0
        digits += 1 if kind & FIGURE else 0
        n += 1
        i += width(buffer[i])
    return upper / n <= capitals and digits / n <= figures and words >= least


@kernel
def edit_lines(
    buffer: Any, offsets: Any, kinds: Any, capitals: float, figures: float, least: int, out: Any,
    out_offsets: Any, segments: Any, segment_offsets: Any, counts: Any,
) -> None:  # fmt: skip
    """Keep the lines that pass, as they are. `counts` [n, 2]: lines removed, words left."""
    at = n = 0
    for d in range(len(offsets) - 1):
        base, end = offsets[d], offsets[d + 1]
        origin, first = at, n
        counts[d] = 0
        kept = 0
        start = base
        while start <= end:
            i = start
            while i < end and buffer[i] != NEWLINE:
                i += 1
            if keeps(buffer, start, i, kinds, capitals, figures, least):
                if kept:
                    out[at] = NEWLINE
                    n = add(segments, n, first, at - origin, start - 1 - base, 1)
                    at += 1
                if i > start:
                    out[at : at + i - start] = buffer[start:i]
                    n = add(segments, n, first, at - origin, start - base, i - start)
                    at += i - start
                counts[d, WORDS_LEFT] += plain_words(buffer, start, i, kinds)
                kept += 1
            else:
                counts[d, REMOVED_LINES] += 1
            start = i + 1
        out_offsets[d + 1] = at
        segment_offsets[d + 1] = n


def kinds_of_characters() -> Any:
    """The kinds of all code points, uint8; beyond the third plane no character has one."""
    kinds = np.zeros(0x110000, np.uint8)
    for c in range(0x32400):
        character = chr(c)
        kinds[c] = (
            LETTER * character.isalpha() | CAPITAL * character.isupper()
            | FIGURE * character.isdigit() | ALNUM * character.isalnum()
        )  # fmt: skip
    return kinds
