"""Span maps: which bytes of an edited text come from which bytes of the text before.

`edits` is a list of `{"out", "in", "length"}` in UTF-8 bytes, ascending and disjoint in both: the
bytes `out .. out + length` of the new text are the bytes `in .. in + length` of the old. Bytes of
the new text that no span covers were inserted. An unedited text has no list (null).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypedDict

Span = TypedDict("Span", {"out": int, "in": int, "length": int})
Edits = list[Span]


def span(out: int, source: int, length: int) -> Span:
    """One copied run of bytes."""
    return {"out": out, "in": source, "length": length}


def compose(later: Sequence[Span] | None, earlier: Sequence[Span] | None) -> Edits | None:
    """The map from the newest text to the oldest, given newest -> middle and middle -> oldest.

    None is the identity. Linear in the number of spans.
    """
    if later is None:
        return None if earlier is None else list(earlier)
    if earlier is None:
        return list(later)
    composed: Edits = []
    starts = [s["out"] for s in earlier]
    for outer in later:
        begin, end = outer["in"], outer["in"] + outer["length"]
        for inner in earlier[max(bisect_right(starts, begin) - 1, 0) :]:
            if inner["out"] >= end:
                break
            low, high = max(begin, inner["out"]), min(end, inner["out"] + inner["length"])
            if low < high:
                out = outer["out"] + low - begin
                _append(composed, span(out, inner["in"] + low - inner["out"], high - low))
    return composed


def _append(spans: Edits, new: Span) -> None:
    """Append, joining runs that touch in both texts, so that equal maps are equal lists."""
    if spans:
        last = spans[-1]
        touches_out = last["out"] + last["length"] == new["out"]
        if touches_out and last["in"] + last["length"] == new["in"]:
            last["length"] += new["length"]
            return
    spans.append(new)


def trace_back(edits: Sequence[Span] | None, offset: int) -> int | None:
    """The byte of the old text behind byte `offset` of the new; None where it was inserted."""
    if edits is None:
        return offset
    at = bisect_right([s["out"] for s in edits], offset) - 1
    if at < 0 or offset >= edits[at]["out"] + edits[at]["length"]:
        return None
    return edits[at]["in"] + offset - edits[at]["out"]
