"""Compiled: one start tag of regular HTML5 -> what it says about its element.

lexbor writes `<name attr="value" ...>`: one blank between, always quoted; `&`, `<`, `>`, `"` and
the no-break space of a value are escaped. Names of attributes are as wild as the page
(`<p =a ""=1>`), but hold no blank, no `>` and, but for the first character, no `=`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import bare_kernel
from pipeline.extractor import vocabulary as voc
from pipeline.extractor.counts import PRIME, SEED, find, hashed

TEX, DISPLAY, ASIDE, RENDERED = 1, 2, 4, 8
"""Flags of a tag: its content is TeX, set apart; not read aloud; a formula drawn from a source
that follows."""
META = voc.TAG_CODE["meta"]
DISPLAY_WORD, NONE_WORD, SPACE_WORD, PRE_WORD, LINE_WORD, TEX_TYPE, X_TEX, MODE_DISPLAY = (
    np.frombuffer(word.encode(), np.uint8).copy()
    for word in (
        "display", "none", "white-space", "pre", "-line", "math/tex", "application/x-tex",
        "mode=display",
    )
)  # fmt: skip
OG_TYPE = np.frombuffer(b"og:type", np.uint8).copy()


WORD_SALT, ATTRIBUTE_SALT, HINT_SALT = (
    np.uint64(salt) for salt in (voc.WORD_SALT, voc.ATTRIBUTE_SALT, voc.HINT_SALT)
)


@bare_kernel
def has(buffer: Any, i: int, end: int, word: Any) -> Any:
    """Whether the word stands at `i`, before `end`."""
    if i + len(word) > end:
        return False
    for k in range(len(word)):  # noqa: SIM110  # numba has no generators here
        if buffer[i + k] != word[k]:
            return False
    return True


@bare_kernel
def groups_in(buffer: Any, start: int, end: int, lexicon: Any) -> Any:
    """The groups of the words in an attribute's value; `mainContent` is two words."""
    own = np.int64(0)
    h, length = SEED, 0
    after_small: Any = False
    for i in range(start, end + 1):
        c = buffer[i] if i < end else np.uint8(32)
        capital = 65 <= c <= 90
        if capital:
            c = np.uint8(c + 32)
        letter = 97 <= c <= 122
        if (capital and after_small) or not letter:
            if length > 1:
                own |= find(lexicon, h ^ WORD_SALT)
            h, length = SEED, 0
        if letter:
            h = (h ^ np.uint64(c)) * PRIME
            length += 1
        after_small = letter and not capital
    return own


@bare_kernel
def styled(buffer: Any, start: int, end: int) -> Any:
    """voc.HIDDEN for `display: none`, voc.PREFORMATTED for `white-space: pre` and `pre-wrap`."""
    own = np.int64(0)
    for i in range(start, end - 7):
        if buffer[i] == 100 and has(buffer, i, end, DISPLAY_WORD):
            k = after_colon(buffer, i + 7, end)
            if has(buffer, k, end, NONE_WORD):
                own |= voc.HIDDEN
        elif buffer[i] == 119 and has(buffer, i, end, SPACE_WORD):
            k = after_colon(buffer, i + 11, end)
            if has(buffer, k, end, PRE_WORD) and not has(buffer, k + 3, end, LINE_WORD):
                own |= voc.PREFORMATTED
    return own


@bare_kernel
def after_colon(buffer: Any, i: int, end: int) -> Any:
    """Behind the blanks and the colon at `i`."""
    while i < end and (buffer[i] == 58 or buffer[i] == 32):
        i += 1
    return i


@bare_kernel
def integer(buffer: Any, start: int, end: int) -> Any:
    """A value of up to seven digits, else voc.NO_NUMBER."""
    negative = start < end and buffer[start] == 45
    start += negative
    if start == end or end - start > 7:
        return voc.NO_NUMBER
    value = np.int64(0)
    for i in range(start, end):
        if not 48 <= buffer[i] <= 57:
            return voc.NO_NUMBER
        value = value * 10 + np.int64(buffer[i]) - 48
    return -value if negative else value


@bare_kernel
def tex_flags(buffer: Any, start: int, end: int) -> Any:
    """TEX and DISPLAY of a `type` such as `math/tex; mode=display`."""
    if not has(buffer, start, end, TEX_TYPE):
        return 0
    for i in range(start, end):
        if has(buffer, i, end, MODE_DISPLAY):
            return TEX | DISPLAY
    return TEX


@bare_kernel
def type_hint(buffer: Any, start: int, end: int, lexicon: Any) -> Any:
    """The hint of a type by its last word: `https://schema.org/Product`, `article`."""
    k = end
    while k > start and buffer[k - 1] != 47:
        k -= 1
    return find(lexicon, hashed(buffer, k, end) ^ HINT_SALT)


@bare_kernel
def read_attributes(buffer: Any, j: int, n: int, tag: int, name: Any, lexicon: Any) -> Any:
    """Attributes from `j`, behind the name, to the `>`.

    (behind the tag, bits, signature of name and class without digits, number, flags, hints, start
    and end of `alttext`).
    """
    own, number, flags, hints = np.int64(0), np.int64(voc.NO_NUMBER), 0, np.int64(0)
    sig, alt_start, alt_end, is_type, content = name, 0, 0, False, np.int64(0)
    while j < n and buffer[j] != 62:
        j += 1  # the blank
        start = j
        j += 1
        while j < n and buffer[j] != 61 and buffer[j] != 62 and buffer[j] != 32:
            j += 1
        end = min(j, n)
        a = find(lexicon, hashed(buffer, start, end) ^ ATTRIBUTE_SALT)
        v0 = v1 = j
        if j + 1 < n and buffer[j] == 61:
            v0 = v1 = j + 2
            while v1 < n and buffer[v1] != 34:
                v1 += 1
            j = v1 + 1
        if a == 0:
            continue
        if a <= voc.A_ITEMTYPE:
            own |= groups_in(buffer, v0, v1, lexicon)
            if a != voc.A_ID:
                for k in range(v0, v1):
                    if not 48 <= buffer[k] <= 57:  # post-17 and post-18 are of one kind
                        sig = (sig ^ np.uint64(buffer[k])) * PRIME
            if a == voc.A_ITEMTYPE:
                hints |= type_hint(buffer, v0, v1, lexicon)
        elif a == voc.A_HIDDEN:
            own |= voc.HIDDEN
        elif a == voc.A_STYLE:
            own |= styled(buffer, v0, v1)
        elif a == voc.A_ARIA_HIDDEN:
            if v1 - v0 == 4 and buffer[v0] == 116:
                own |= voc.HIDDEN
                flags |= ASIDE
        elif a == voc.A_TYPE:
            flags |= tex_flags(buffer, v0, v1)
        elif a in (voc.A_START, voc.A_VALUE):
            number = integer(buffer, v0, v1)
        elif a == voc.A_REVERSED:
            own |= voc.REVERSED
        elif a == voc.A_ENCODING:
            if has(buffer, v0, v1, X_TEX):
                flags |= TEX
        elif a == voc.A_ALTTEXT:
            alt_start, alt_end = v0, v1
        elif a == voc.A_RENDERED:
            flags |= RENDERED
        elif a == voc.A_LINE_NUMBER:
            own |= voc.GUTTER | voc.LINE | voc.NUMBERS
        elif tag == META:
            if a == voc.A_PROPERTY:
                is_type = has(buffer, v0, v1, OG_TYPE) and v1 - v0 == len(OG_TYPE)
            elif a == voc.A_CONTENT:
                content = type_hint(buffer, v0, v1, lexicon)
    if own & voc.LINE and own & voc.NUMBERS:
        own |= voc.GUTTER
    if own & voc.JAX and own & voc.PREVIEW:
        flags |= RENDERED
    if is_type:
        hints |= content
    return j + 1, own, sig, number, flags, hints, alt_start, alt_end
