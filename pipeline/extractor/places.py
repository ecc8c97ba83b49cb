"""Places in the state of the pass, and the columns of its element rows."""

from __future__ import annotations

(
    OUT, BLOCKS, ELEMENTS, TOP, START, FIRST, NODE, SPACE, LINK, LINK_BYTES, LINKS, IMAGES, BOLD,
    BOLD_BYTES, BREAKS, PRE, SKIP, SKIP_DEPTH, SKIP_POPS, MATH, MATH_SPACE, ALT_START, ALT_END,
    DRAWN, GUTTERS, GUTTER_NODE, CODE_ROW, RAISED_LINKS, HINTS, TITLE_START, TITLE_END,
    DRAWN_AT,
) = range(32)  # fmt: skip
"""Lengths of the three outputs and the innermost open element; of the block under way its start,
the element of its first character, its nearest block-level element, whether a blank is due, what
is inside links and bold, images and `<br>` before it; open `pre`; the tag that is skipped, how
often it is open, and whether it was entered as an element; the open formula and its `alttext`;
where the drawing of a formula with source may stand; open line numbers; a row of code; links before
a raised or lowered text; hints; title; where in the text the formula with source ends."""
N_STATE = 32

(
    E_PARENT, E_TAG, E_BITS, E_SIG, E_NAME, E_NUMBER, E_LINE, E_AT, E_CHILDREN,
) = range(9)  # fmt: skip
"""Of an element: its parent, code, bits, signature, hash of its name, number; the nearest
block-level element, itself included; where in the text it begins; children so far (in formulas)."""
N_ELEMENT = 9
