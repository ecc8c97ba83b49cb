"""Compiled: formulas. Each comes out once: as its TeX source where the page has one, else as drawn.

Sources are `annotation encoding="application/x-tex"` in MathML and `alttext` that looks like TeX;
`script type="math/tex"` is read as raw text. The drawing beside a source (`aria-hidden`, a preview)
is skipped. MathML without source keeps its text, with `^`, `_` and `/` between the parts.
"""

from __future__ import annotations

from typing import Any

from pipeline.compiled import bare_kernel
from pipeline.extractor import places as at
from pipeline.extractor import vocabulary as voc
from pipeline.extractor.attributes import TEX
from pipeline.extractor.sheet import put, write_tex

MATH, MSUP, MSUB, MSUBSUP, MFRAC = (
    voc.TAG_CODE[name] for name in ("math", "msup", "msub", "msubsup", "mfrac")
)


@bare_kernel
def skip_element(sheet: Any, t: int) -> None:
    """Skip the innermost element with all it holds."""
    s = sheet.state
    s[at.SKIP], s[at.SKIP_DEPTH], s[at.SKIP_POPS] = t, 1, 1


@bare_kernel
def math_operator(sheet: Any, parent: int) -> None:
    """`^`, `_` or `/` between the parts of a formula that is given by its drawing alone."""
    s = sheet.state
    t, k = sheet.elements[parent, at.E_TAG], sheet.elements[parent, at.E_CHILDREN]
    sheet.elements[parent, at.E_CHILDREN] = k + 1
    if k == 0 or s[at.OUT] <= max(sheet.elements[parent, at.E_AT], s[at.START]):
        return
    if (t == MSUP and k == 1) or (t == MSUBSUP and k == 2):
        put(sheet, 94)
    elif t in (MSUB, MSUBSUP) and k == 1:
        put(sheet, 95)
    elif t == MFRAC and k == 1:
        put(sheet, 47)


@bare_kernel
def annotation(sheet: Any, t: int, flags: int, i: int, n: int) -> Any:
    """TeX takes the place of the drawing so far, and the rest of the formula is skipped."""
    s = sheet.state
    if flags & TEX == 0:
        skip_element(sheet, t)
        return i
    j = i
    while j < n and sheet.buffer[j] != 60:
        j += 1
    replace_math(sheet, i, j)
    s[at.TOP] = s[at.MATH]
    skip_element(sheet, MATH)
    return j


@bare_kernel
def replace_math(sheet: Any, i: int, j: int) -> None:
    """Write TeX instead of what the open formula has put down."""
    s = sheet.state
    v = s[at.MATH]
    s[at.OUT], s[at.SPACE] = max(sheet.elements[v, at.E_AT], s[at.START]), s[at.MATH_SPACE]
    write_tex(sheet, i, j, True, False)
    s[at.DRAWN], s[at.DRAWN_AT] = sheet.elements[v, at.E_PARENT], s[at.OUT]


@bare_kernel
def write_alternative(sheet: Any) -> None:
    """The `alttext` of a formula without source, where it looks like TeX."""
    s = sheet.state
    for i in range(s[at.ALT_START], s[at.ALT_END]):
        c = sheet.buffer[i]
        if c == 92 or c == 94 or c == 95:
            replace_math(sheet, s[at.ALT_START], s[at.ALT_END])
            return
