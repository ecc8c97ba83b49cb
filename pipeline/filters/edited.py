"""Texts after a rule that edits them, and which of their bytes are which of the incoming ones.

Compiled editors write a batch of texts and their segments (`edit_kernels`); here these become the
column `edits` of `pipeline.edits`, composed with earlier edits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.edits import compose
from pipeline.filters import edit_kernels as kernels
from pipeline.words import Texts, Words

if TYPE_CHECKING:
    from numpy.typing import NDArray

SPAN = pl.Struct({"out": pl.UInt32, "in": pl.UInt32, "length": pl.UInt32})


@dataclass(frozen=True)
class Cut:
    """A batch of edited texts and where their bytes came from."""

    texts: Texts
    segments: NDArray[np.int64]  # [n, 3] out, in, length within a document
    offsets: NDArray[np.int64]  # [n_documents + 1] into segments


@dataclass(frozen=True)
class Edited:
    """A batch after the line rules of a set."""

    cut: Cut
    words: Words  # of the edited texts
    signals: pl.DataFrame


def strip(cut: Cut) -> Cut:
    """Without the blanks that an edit left at the ends of texts."""
    texts = cut.texts
    bounds = np.empty((len(texts), 2), np.int64)
    if not kernels.outer_blanks(texts.buffer, texts.offsets, bounds):
        return cut
    out, offsets = np.empty_like(texts.buffer), np.zeros_like(texts.offsets)
    clipped, clipped_offsets = np.empty_like(cut.segments), np.zeros_like(cut.offsets)
    kernels.clip(
        texts.buffer, texts.offsets, bounds, cut.segments, cut.offsets, out, offsets, clipped,
        clipped_offsets,
    )  # fmt: skip
    return Cut(Texts(out[: offsets[-1]], offsets), clipped, clipped_offsets)


def edits_of(cut: Cut, before: Texts, earlier: pl.Series | None) -> pl.Series:
    """The span maps of a batch as a column `edits`; null where a text is as it was.

    `earlier`: the maps that came in, which the new ones are composed with.
    """
    segments = cut.segments[: cut.offsets[-1]]
    starts, ends = cut.offsets[:-1], cut.offsets[1:]
    sizes, old_sizes = np.diff(cut.texts.offsets), np.diff(before.offsets)
    first_lengths = np.append(segments[:, 2], 0)[starts]
    same = (sizes == old_sizes) & (first_lengths == sizes)
    same |= (sizes == 0) & (old_sizes == 0)
    flat = pl.DataFrame(segments, schema=["out", "in", "length"], orient="row")
    owner = np.repeat(np.arange(len(before)), ends - starts)
    spans = flat.cast(pl.UInt32).select(pl.struct(pl.all()).alias("edits"))
    lists = spans.with_columns(pl.Series("row", owner)).group_by("row", maintain_order=True).all()
    rows = pl.DataFrame({"row": np.arange(len(before)), "same": same})
    joined = rows.join(lists, on="row", how="left", maintain_order="left")
    empty = pl.lit([], dtype=pl.List(SPAN))
    column = joined.select(
        pl.when(~pl.col("same")).then(pl.coalesce("edits", empty)).alias("edits")
    )["edits"]
    if earlier is None or earlier.null_count() == len(earlier):
        return column
    pairs = zip(column.to_list(), earlier.to_list(), strict=True)
    return pl.Series("edits", [compose(late, early) for late, early in pairs], pl.List(SPAN))
