"""spaCy's English tokenizer as a compiled scan, for runs of characters between blanks.

The rules are those of `spacy/tokenizer.pyx` with `spacy.lang.en`: signs are split off at both ends,
what is left is an address or is split at signs inside. Every run with a case that is not decided
here (a special case of the language, an address with a user or a protocol, characters beyond the
basic plane) is refused, and spaCy itself is asked. `pipeline.chunks` makes the tables from spaCy's
own lists; tests compare the two on every distinct run of real texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.word_kernels import OFFSET, PRIME, codepoint, find, mix

ALPHA, LOWER, UPPER, DIGIT, SPLITS, STARTS, ENDS, ICON, QUOTE, BEFORE_DOT, CURRENCY = (
    1 << k for k in range(11)
)
"""Classes of characters: letters, what is split off at both ends, only at the start, only at the
end, what splits a run anywhere, quotes, what may stand before a full stop, money after a digit."""

REFUSED = -1

PLUS, MINUS, DOT, COMMA, SLASH, COLON, APOSTROPHE, STAR = 43, 45, 46, 44, 47, 58, 39, 42
QUESTION, HASH, AT, CARET, TILDE, UNDERSCORE, LESS, EQUAL, MORE = (
    63,
    35,
    64,
    94,
    126,
    95,
    60,
    61,
    62,
)
EN_DASH, EM_DASH, ELLIPSIS, RIGHT_QUOTE, DEGREE = 0x2013, 0x2014, 0x2026, 0x2019, 0xB0
LONGEST_UNIT, LONGEST_LABEL, LONGEST_DOMAIN_END = 5, 64, 63


@kernel
def hash_points(points: Any, begin: int, end: int) -> Any:
    """A 64-bit hash of a row of code points, never 0."""
    h = OFFSET
    for i in range(begin, end):
        h = (h ^ np.uint64(points[i])) * PRIME
    return mix(h) | np.uint64(1)


@kernel
def special(points: Any, begin: int, end: int, table: Any, longest: int) -> Any:
    """0 where the row is no special case; else 1 plus the number of tokens it would be without,
    or 1 where it is not looked for in a row of tokens."""
    if end - begin > longest or end - begin < 2:
        return 0
    return value(table, hash_points(points, begin, end))


@kernel
def value(table: Any, h: Any) -> Any:
    """What an open-addressing table of (hash, value) has for a hash; 0 for none."""
    return max(find(table, h), 0)


@kernel
def dollar(points: Any, begin: int, end: int) -> int:
    """The length of "US$", "C$" or "A$" at `begin`, else 0."""
    if begin + 2 < end and points[begin] == 85 and points[begin + 1] == 83:
        return 3 if points[begin + 2] == 36 else 0
    if begin + 1 < end and (points[begin] == 67 or points[begin] == 65):
        return 2 if points[begin + 1] == 36 else 0
    return 0


@kernel
def prefix(points: Any, kinds: Any, begin: int, end: int) -> int:
    """How many characters are split off at the start."""
    c = points[begin]
    if c == PLUS:
        return 0 if begin + 1 < end and kinds[points[begin + 1]] & DIGIT else 1
    if kinds[c] & (SPLITS | STARTS):
        return 1
    if c == DOT:
        i = begin
        while i < end and points[i] == DOT:
            i += 1
        return i - begin if i - begin > 1 else 0
    return dollar(points, begin, end)


@kernel
def full_stop(points: Any, kinds: Any, begin: int, end: int) -> bool:
    """Whether the full stop at the end is split off, by what stands before it."""
    if end - begin < 2:
        return False
    before = kinds[points[end - 2]]
    if before & BEFORE_DOT:
        return True
    if end - begin < 3:
        return False
    if before & UPPER and kinds[points[end - 3]] & UPPER:
        return True
    scale = points[end - 2] | 32
    return points[end - 3] == DEGREE and (scale == 102 or scale == 99 or scale == 107)


@kernel
def suffix(points: Any, kinds: Any, begin: int, end: int, units: Any) -> int:
    """How many characters are split off at the end: the most that any rule takes.

    `units` [n, LONGEST_UNIT]: code points of units of measure, 0 behind the end.
    """
    if end <= begin:
        return 0
    c = points[end - 1]
    most = 0
    if kinds[c] & (SPLITS | ENDS):
        most = 1
        if c == ELLIPSIS and end - begin > 1 and points[end - 2] == ELLIPSIS:
            most = 2
    elif c == DOT:
        i = end
        while i > begin and points[i - 1] == DOT:
            i -= 1
        if end - i > 1:
            most = end - i
        elif full_stop(points, kinds, begin, end):
            most = 1
    elif (c | 32) == 115 and end - begin > 1 and points[end - 2] in (APOSTROPHE, RIGHT_QUOTE):
        most = 2
    for size in range(1, LONGEST_UNIT + 1):  # after a digit: units, money, a plus
        at = end - size
        if at <= begin:
            break
        if size > most and kinds[points[at - 1]] & DIGIT:
            if size == 1 and (c == PLUS or kinds[c] & CURRENCY):
                most = 1
            elif dollar(points, at, end) == size or measure(points, at, end, units):
                most = size
    return most


@kernel
def measure(points: Any, begin: int, end: int, units: Any) -> bool:
    """Whether a row of code points is a unit of measure."""
    n = end - begin
    for k in range(len(units)):
        if n < LONGEST_UNIT and units[k, n] != 0:
            continue
        same = True
        for i in range(n):
            same &= units[k, i] == points[begin + i]
        if same:
            return True
    return False


@kernel
def address(points: Any, kinds: Any, begin: int, end: int) -> int:
    """Whether the whole row is a web address: 1, 0, or REFUSED where it is not decided here."""
    dots = 0
    domain_end = begin  # first character that no host name has
    only_digits = True
    while domain_end < end:
        c = points[domain_end]
        if not (kinds[c] & DIGIT or c == DOT):
            letter = 97 <= (c | 32) <= 122 and c < 128
            if not (c >= 0xA1 or letter or c in (MINUS, UNDERSCORE)):
                break
            only_digits = False
        dots += 1 if c == DOT else 0
        domain_end += 1
    for i in range(domain_end, end):
        c = points[i]
        if c == AT or (c == COLON and i + 2 < end and points[i + 1] == SLASH == points[i + 2]):
            for k in range(begin, end):
                if points[k] == DOT:
                    return REFUSED
            return 0
    if dots == 0:
        return 0
    if only_digits:
        return REFUSED if dots >= 3 else 0
    at = label = begin
    while at < domain_end:
        if points[at] == DOT:
            last = points[at - 1] if at > label else MINUS
            first = points[label]
            signs = first in (MINUS, UNDERSCORE) or last in (MINUS, UNDERSCORE)
            if signs or at - label > LONGEST_LABEL:
                return 0
            label = at + 1
        at += 1
    if not 2 <= domain_end - label <= LONGEST_DOMAIN_END:
        return 0
    for i in range(label, domain_end):
        if not kinds[points[i]] & LOWER:
            return 0
    at = domain_end
    if at < end and points[at] == COLON:
        at += 1
        while at < end and kinds[points[at]] & DIGIT:
            at += 1
        if at < end and points[at] > 127:
            return REFUSED  # a digit of another script
        if not 2 <= at - domain_end - 1 <= 5:
            return 0
    return 1 if at == end or points[at] in (SLASH, QUESTION, HASH) else 0


@kernel
def infix(points: Any, kinds: Any, begin: int, i: int, end: int) -> int:
    """How many characters at `i` split the row in two; 0 for none."""
    c = points[i]
    if c == DOT:
        k = i
        while k < end and points[k] == DOT:
            k += 1
        if k - i > 1:
            return k - i
    if kinds[c] & ICON:
        return 1
    if i == begin or i + 1 >= end:
        return 0
    before, after = kinds[points[i - 1]], kinds[points[i + 1]]
    arithmetic = c in (PLUS, MINUS, STAR, CARET)
    if arithmetic and before & DIGIT and (after & DIGIT or points[i + 1] == MINUS):
        return 1
    if c == DOT:
        return 1 if before & (LOWER | QUOTE) and after & (UPPER | QUOTE) else 0
    if c == COMMA:
        return 1 if before & ALPHA and after & ALPHA else 0
    if not before & (ALPHA | DIGIT):
        return 0
    if c in (COLON, LESS, EQUAL, MORE, SLASH):
        return 1 if after & ALPHA else 0
    if c in (MINUS, EN_DASH, EM_DASH, TILDE):
        if after & ALPHA:
            return 1
        most = 3 if c == MINUS else 2 if c == EM_DASH else 1
        k = i + 1
        while k < end and k - i < most and points[k] == c:
            if k + 1 < end and kinds[points[k + 1]] & ALPHA:
                return k + 1 - i
            k += 1
    return 0


@kernel
def cut_run(
    points: Any, n: int, kinds: Any, units: Any, specials: Any, longest: int, ends: Any, tail: Any
) -> int:
    """Where the tokens of a run end (`ends`, in characters); how many there are, or REFUSED.

    `tail`: room for the ends of what was split off behind.
    """
    begin, end, before, m, t = 0, n, -1, 0, 0
    while begin < end and end - begin != before:
        if special(points, begin, end, specials, longest):
            return REFUSED
        before = end - begin
        head = prefix(points, kinds, begin, end)
        if head and special(points, begin + head, end, specials, longest):
            return REFUSED
        foot = suffix(points, kinds, begin + head, end, units)
        if foot and special(points, begin, end - foot, specials, longest):
            return REFUSED
        if head:
            begin += head
            ends[m] = begin
            m += 1
        if foot:
            tail[t] = end
            t += 1
            end -= foot
    if begin < end:
        found = address(points, kinds, begin, end)
        if found == REFUSED:
            return REFUSED
        if not found:
            start = i = begin
            while i < end:
                step = infix(points, kinds, begin, i, end)
                if step and i > begin:
                    if i != start:
                        ends[m] = i
                        m += 1
                    ends[m] = i + step
                    m += 1
                    start = i + step
                i += max(step, 1)
            if start < end:
                ends[m] = end
                m += 1
        else:
            ends[m] = end
            m += 1
    while t:
        t -= 1
        ends[m] = tail[t]
        m += 1
    return REFUSED if hides_special(points, ends, m, specials, longest) else m


@kernel
def hides_special(points: Any, ends: Any, m: int, specials: Any, longest: int) -> bool:
    """Whether tokens in a row spell a special case that is looked for there."""
    begin = 0
    for i in range(m):
        for k in range(i, m):
            if ends[k] - begin > longest:
                break
            if special(points, begin, ends[k], specials, longest) == 2 + k - i:
                return True
        begin = ends[i]
    return False


@kernel
def cut_runs(
    buffer: Any, begins: Any, ends: Any, kinds: Any, units: Any, specials: Any, longest: int,
    counts: Any, out: Any,
) -> int:  # fmt: skip
    """Token ends (byte offsets in `buffer`) of every run, one after another in `out`; how many.

    `counts` [n_runs]: tokens of each run, REFUSED where spaCy has to be asked. `out` needs room for
    one entry a byte.
    """
    most = 1
    for r in range(len(begins)):
        most = max(most, ends[r] - begins[r])
    points, places = np.empty(most, np.int64), np.empty(most + 1, np.int64)
    found, tail = np.empty(most, np.int64), np.empty(most, np.int64)
    total = 0
    for r in range(len(begins)):
        i, n, plane = begins[r], 0, True
        while i < ends[r]:
            c = codepoint(buffer, i)
            plane &= c < len(kinds)
            points[n], places[n] = c, i
            n += 1
            i += 1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4
        places[n] = i
        m = REFUSED
        if plane:
            m = cut_run(points, n, kinds, units, specials, longest, found, tail)
        counts[r] = m
        for k in range(m):
            out[total] = places[found[k]]
            total += 1
    return total
