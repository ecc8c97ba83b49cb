"""Compiled: how deep the items of lists nest, told from their tags.

`<li>` closes an open `li`, `<dt>` and `<dd>` close an open `dt` or `dd`; but neither closes the
other kind, so `<li><dt><li><dt>` nests without end (HTML, 13.2.6.4.7). Items are told apart by the
open element that they are in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.compiled import bare_kernel, kernel

LI, DT, DD = 5, 6, 7
"""Kinds of tags, above those of `bounds`."""
OPEN, BASE, NESTED = range(3)
MOST_ITEMS = 1 << 14
"""Open items, and open elements with items in them, that are told apart; not all of more count."""


class Items(NamedTuple):
    """The open items of lists, by the open element that they are in."""

    kinds: NDArray[np.uint8]
    """LI, DT or DD of each."""
    bases: NDArray[np.int64]
    """By level of elements: where the items of the element around began."""
    state: NDArray[np.int64]
    """OPEN ones; the BASE, where those of the innermost element begin; those NESTED in another."""


@kernel
def new_items() -> Any:
    """No items yet."""
    return Items(
        np.zeros(MOST_ITEMS, np.uint8), np.zeros(MOST_ITEMS, np.int64), np.zeros(3, np.int64)
    )


@bare_kernel
def note_item(items: Any, kind: int, close: bool) -> None:
    """Open or close an item: `<li>` closes an `li`, `<dt>` and `<dd>` close either of these."""
    s, kinds = items.state, items.kinds
    top, base = s[OPEN], s[BASE]
    if close:
        k = top
        while k > base and kinds[k - 1] != kind:
            k -= 1
        if k > base:
            s[NESTED] -= top - max(k - 1, base + 1) if top > base + 1 else 0
            s[OPEN] = k - 1
        return
    if top > base and (kinds[top - 1] == LI) == (kind == LI):
        kinds[top - 1] = kind
        return
    s[NESTED] += top > base
    if top < len(kinds):
        kinds[top] = kind
        s[OPEN] = top + 1


@bare_kernel
def enter_element(items: Any, level: int) -> None:
    """Items that follow are in another element than those before."""
    if level < len(items.bases):
        items.bases[level] = items.state[BASE]
        items.state[BASE] = items.state[OPEN]


@bare_kernel
def leave_element(items: Any, level: int) -> None:
    """Close the items of the innermost element, and go on in the one around it."""
    s = items.state
    if level < len(items.bases):
        s[NESTED] -= max(s[OPEN] - s[BASE] - 1, 0)
        s[OPEN], s[BASE] = s[BASE], items.bases[level]
