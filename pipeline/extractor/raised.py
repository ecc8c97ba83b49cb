"""Compiled: superscripts and subscripts in plain text.

`10<sup>6</sup>` is `10^6`, not 106; `2<sup>n+1</sup>` is `2^(n+1)`; `1<sup>st</sup>` stays 1st and
`H<sub>2</sub>O` H2O; the mark of a note becomes `word[1]`; `$19<sup>99</sup>` is a price.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import bare_kernel
from pipeline.extractor import places

LONGEST = 24
"""A raised text of more bytes is a remark: it gets a blank in front."""
ENDING_LETTERS = np.frombuffer(b"aeohrsdt", np.uint8).copy()
"""One-letter endings of ordinals and abbreviations: 1e, 1a, 1o, 1r, 5h, n°; s, d, t in English."""
NUMBER, LETTERS, OTHER = 0, 1, 2


@bare_kernel
def letter(c: int) -> Any:
    """Whether a byte is (part of) a letter."""
    return 65 <= c <= 90 or 97 <= c <= 122 or c >= 0x80


@bare_kernel
def digit(c: int) -> Any:
    """Whether a byte is an ASCII digit."""
    return 48 <= c <= 57


@bare_kernel
def shape(out: Any, start: int, end: int) -> Any:
    """NUMBER (digits), LETTERS, or OTHER (signs, terms)."""
    digits = letters = 0
    for i in range(start, end):
        digits += digit(out[i])
        letters += letter(out[i])
    if digits == end - start:
        return NUMBER
    return LETTERS if letters == end - start else OTHER


@bare_kernel
def insert(out: Any, at: int, end: int, c: int) -> Any:
    """Put a byte at `at`; the new end."""
    for i in range(end, at, -1):
        out[i] = out[i - 1]
    out[at] = c
    return end + 1


@bare_kernel
def wrap(out: Any, at: int, end: int, left: int, right: int) -> Any:
    """Put brackets around [at, end); the new end."""
    end = insert(out, at, end, left)
    out[end] = right
    return end + 1


@bare_kernel
def base_letters(out: Any, start: int, at: int) -> Any:
    """(length of the run of letters before `at`, whether it begins with a capital)."""
    i = at
    while i > start and letter(out[i - 1]):
        i -= 1
    return at - i, i < at and 65 <= out[i] <= 90


@bare_kernel
def is_price(out: Any, start: int, at: int) -> Any:
    """Whether the number before `at` follows a sign of currency."""
    i = at
    while i > start and (digit(out[i - 1]) or out[i - 1] == 44):
        i -= 1
    if i in (at, start):
        return False
    c = out[i - 1]
    # $; the last bytes of UTF-8's pound (C2 A3) and euro (E2 82 AC)
    if c == 36:
        return True
    if c == 0xA3:
        return i >= start + 2 and out[i - 2] == 0xC2
    return c == 0xAC and i >= start + 3 and out[i - 2] == 0x82 and out[i - 3] == 0xE2


@bare_kernel
def separate(out: Any, start: int, at: int, end: int, raised: bool, linked: bool) -> Any:
    """Mark the text [at, end) of a `sup` or `sub` in its block from `start`; the new end.

    Room for two more bytes is the caller's concern: its tags were longer.
    """
    if end == at or out[at] <= 32:
        return end
    kind = shape(out, at, end)
    if at == start:  # nothing before it: the mark of a note, in front of the note
        return wrap(out, at, end, 91, 93) if raised and kind == NUMBER else end
    base = out[at - 1]
    if base <= 32 or base == 40 or base == 91:
        return end
    if end - at > LONGEST:
        return insert(out, at, end, 32)
    if not raised:
        return lowered(out, start, at, end, kind)
    if linked:
        opened = out[at] == 91 or out[at] == 40
        return end if opened or kind == OTHER else wrap(out, at, end, 91, 93)
    if kind == NUMBER:
        return raised_number(out, start, at, end)
    if kind == LETTERS:
        return raised_letters(out, start, at, end)
    return raised_other(out, start, at, end)


@bare_kernel
def close_raised(sheet: Any, begin: Any, raised: bool) -> None:
    """Mark what the `sup` or `sub` that closes has written; one inside it is marked already."""
    s = sheet.state
    linked = s[places.LINKS] > s[places.RAISED_LINKS] or s[places.LINK] > 0
    s[places.OUT] = separate(sheet.out, s[places.START], begin, s[places.OUT], raised, linked)
    s[places.SPACE] |= begin == s[places.START] and s[places.OUT] > s[places.START]


@bare_kernel
def lowered(out: Any, start: int, at: int, end: int, kind: int) -> Any:
    """`H2O`, `Ca(OH)2` as they are; `x_1`, `10_2`, `T_max`."""
    base = out[at - 1]
    length, capital = base_letters(out, start, at)
    if kind == NUMBER and ((0 < length <= 4 and capital) or base == 41 or base == 93):
        return end
    return insert(out, at, end, 95) if letter(base) or digit(base) or base == 41 else end


@bare_kernel
def raised_number(out: Any, start: int, at: int, end: int) -> Any:
    """A power after a number, a unit or a variable; a note after a word or a stop."""
    if takes_notes(out, start, at):
        return wrap(out, at, end, 91, 93)
    price = end - at == 2 and is_price(out, start, at)
    return insert(out, at, end, 46 if price else 94)


@bare_kernel
def takes_notes(out: Any, start: int, at: int) -> Any:
    """Whether a raised number here is a note: behind a word or a stop, not behind a number, a
    bracket or the few letters of a unit or a variable."""
    base = out[at - 1]
    if digit(base) or base in (41, 93, 124):
        return False
    length, _ = base_letters(out, start, at)
    return length == 0 or length > 3


@bare_kernel
def raised_letters(out: Any, start: int, at: int, end: int) -> Any:
    """Endings stay (`1st`, `Mme`); a single other letter is a power (`x^n`)."""
    length, _ = base_letters(out, start, at)
    ending = False
    for c in ENDING_LETTERS:
        ending |= out[at] == c
    if end - at > 1 or length > 2 or (ending and not (length == 1 and out[at] == 116)):
        return end
    return insert(out, at, end, 94)


@bare_kernel
def only_numbers(out: Any, at: int, end: int) -> Any:
    """Whether the bytes are digits, commas, hyphens and blanks."""
    for i in range(at, end):
        c = out[i]
        if not (digit(c) or c == 44 or c == 45 or c == 32):
            return False
    return True


@bare_kernel
def raised_other(out: Any, start: int, at: int, end: int) -> Any:
    """`10^-6`, `2^(n+1)`, notes `[2,3]`; signs (`*`, `.99`, `[1]`) stay as they are."""
    c = out[at]
    if digit(c) and only_numbers(out, at, end) and takes_notes(out, start, at):
        return wrap(out, at, end, 91, 93)
    signed = c == 45 or c == 43 or (c == 0xE2 and end - at > 3 and out[at + 1] == 0x88)
    if not (signed or digit(c) or letter(c)):
        return end
    if signed and end - at == 1:  # an ion: Na+
        return end
    terms = False
    first = at + 3 if c == 0xE2 else at + 1
    for i in range(first, end):
        terms |= not digit(out[i]) and not (letter(out[i]) and end - at <= 3)
    end = insert(out, at, end, 94)
    return wrap(out, at + 1, end, 40, 41) if terms else end
