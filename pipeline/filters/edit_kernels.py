"""Compiled parts of rules that edit texts: segments that say where bytes came from.

A segment is (out, in, length): bytes `out .. out + length` of the edited document are the bytes
`in .. in + length` of the incoming one.
"""

from __future__ import annotations

from typing import Any

from pipeline.compiled import kernel
from pipeline.filters.line_kernels import strip


@kernel
def add(segments: Any, n: int, first: int, out: int, source: int, length: int) -> int:
    """Append a segment, joined to the last one of the document where both sides touch."""
    if n > first:
        touches = segments[n - 1, 0] + segments[n - 1, 2] == out
        if touches and segments[n - 1, 1] + segments[n - 1, 2] == source:
            segments[n - 1, 2] += length
            return n
    segments[n, 0], segments[n, 1], segments[n, 2] = out, source, length
    return n + 1


@kernel
def outer_blanks(buffer: Any, offsets: Any, out: Any) -> int:
    """Begin and end of each document without the blanks at its ends [n, 2]; how many had some."""
    n = 0
    for d in range(len(offsets) - 1):
        out[d, 0], out[d, 1] = strip(buffer, offsets[d], offsets[d + 1])
        n += 1 if out[d, 0] != offsets[d] or out[d, 1] != offsets[d + 1] else 0
    return n


@kernel
def clip(
    buffer: Any, offsets: Any, bounds: Any, segments: Any, segment_offsets: Any, out: Any,
    out_offsets: Any, clipped: Any, clipped_offsets: Any,
) -> None:  # fmt: skip
    """Documents and their segments cut to `bounds` [n, 2]."""
    at = n = 0
    for d in range(len(offsets) - 1):
        low, high = bounds[d, 0] - offsets[d], bounds[d, 1] - offsets[d]
        out[at : at + high - low] = buffer[bounds[d, 0] : bounds[d, 1]]
        at += high - low
        out_offsets[d + 1] = at
        for k in range(segment_offsets[d], segment_offsets[d + 1]):
            begin = max(segments[k, 0], low)
            end = min(segments[k, 0] + segments[k, 2], high)
            if begin < end:
                clipped[n, 0], clipped[n, 2] = begin - low, end - begin
                clipped[n, 1] = segments[k, 1] + begin - segments[k, 0]
                n += 1
        clipped_offsets[d + 1] = n
