"""Compiled: elements whose content is text up to their end tag: scripts, styles, `xmp`.

Scripts carry formulas and the types of schema.org. In a script, `<!--` and then `<script` hide the
next `</script` (HTML, 13.2.5.24).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipeline.compiled import bare_kernel
from pipeline.extractor import places as at
from pipeline.extractor import vocabulary as voc
from pipeline.extractor.attributes import DISPLAY, TEX, has, type_hint
from pipeline.extractor.sheet import begin_block, break_line, write_raw, write_tex

SCRIPT, XMP, PLAINTEXT = (voc.TAG_CODE[name] for name in ("script", "xmp", "plaintext"))
TYPE_KEY, OPEN_SCRIPT, END_COMMENT = (
    np.frombuffer(word, np.uint8).copy() for word in (b'"@type"', b"<script", b"-->")
)


@bare_kernel
def raw_text(sheet: Any, i: int, n: int, first: int, last: int, t: int, flags: int) -> Any:
    """Pass over text up to its end tag; formulas and preformatted text are kept."""
    s, buffer = sheet.state, sheet.buffer
    k = raw_end(sheet, i, n, first, last, t)
    if s[at.SKIP] == 0:
        if t == SCRIPT and flags & TEX:
            write_tex(sheet, i, k, False, flags & DISPLAY != 0)
        elif t in (XMP, PLAINTEXT):
            break_line(sheet, 0)
            begin_block(sheet, s[at.TOP])
            write_raw(sheet, i, k)
            break_line(sheet, 0)
    while k < n and buffer[k] != 62:
        k += 1
    return k + 1


@bare_kernel
def raw_end(sheet: Any, i: int, n: int, first: int, last: int, t: int) -> Any:
    """Where the end tag of raw text begins. Types that scripts name are hints."""
    buffer = sheet.buffer
    name = buffer[first:last]
    script = t == SCRIPT
    comment = double = False  # in `<!--` a `<script` hides the next `</script`
    k = i
    while k < n:
        c = buffer[k]
        if c == 60:
            if k + 1 < n and buffer[k + 1] == 47 and has(buffer, k + 2, n, name):
                if not double:
                    return k
                double = False
            elif script and k + 3 < n and buffer[k + 1] == 33:
                comment |= buffer[k + 2] == 45 and buffer[k + 3] == 45
            elif comment and has(buffer, k, n, OPEN_SCRIPT):
                double = True
        elif c == 45 and comment and has(buffer, k, n, END_COMMENT):
            comment = double = False
        elif c == 34 and script and has(buffer, k, n, TYPE_KEY):
            sheet.state[at.HINTS] |= script_hint(buffer, k + len(TYPE_KEY), n, sheet.lexicon)
        k += 1
    return n


@bare_kernel
def script_hint(buffer: Any, k: int, n: int, lexicon: Any) -> Any:
    """The hint of the value behind `"@type"`: a name, or the first of a list."""
    end = min(n, k + 32)
    while k < end and (buffer[k] <= 32 or buffer[k] == 58 or buffer[k] == 91):
        k += 1
    if k >= end or buffer[k] != 34:
        return np.int64(0)
    k += 1
    stop = min(n, k + 64)
    j = k
    while j < stop and buffer[j] != 34:
        j += 1
    return type_hint(buffer, k, j, lexicon)
