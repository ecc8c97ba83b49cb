"""Texts as the classifiers read them: lower case, single blanks, no marks of fastText.

fastText stops reading at a line end and takes words such as `__label__1` and `</s>` for its own
marks; to a classifier a line end should weigh as much as a blank. `reference` says exactly what is
done, with Polars; `normalise` gives the same texts from one compiled pass over their bytes, as
buffers that the scorer reads without a string in between. Rows with what the pass does not do (a
capital sigma, whose lower case depends on its place; letters whose lower case is longer; marks to
be escaped) go to `reference`: 1 in 200 of paragraphs in 39 languages, 1 in 8 of the Greek ones.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.words import Texts, series_of, texts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

NOT_ONE_BLANK = r"(?:[^\S ]|\x00| [\s\x00])[\s\x00]*"
"""White space that is not a single blank already; passing those over is three times as fast."""

PLANES = 0x20000
"""Code points with an entry of their own; none beyond has a lower case."""
BLANK, ODD = 0, -1
"""In place of a lower case: a blank, and what only `reference` can do."""


def reference(texts: pl.Series) -> pl.Series:
    """What normalising means. Null is empty."""
    plain = texts.fill_null("").str.to_lowercase().str.replace_all(NOT_ONE_BLANK, " ")
    plain = plain.str.strip_chars(" ").str.replace_all("__label__", "_label_", literal=True)
    return plain.str.replace_all("</s>", "< /s>", literal=True)


def normalise(texts: pl.Series) -> pl.Series:
    """The texts of `reference`, from the compiled pass."""
    return series_of(normalised(texts)).alias(texts.name)


def normalised(texts: pl.Series) -> Texts:
    """The same as bytes, without a Python string."""
    from pipeline.quality.kernels import squash

    given = texts_of(texts)
    out = np.empty(len(given.buffer), np.uint8)
    bounds = np.zeros(len(given) + 1, np.int64)
    odd = np.zeros(len(given), np.bool_)
    source = given.buffer.view()
    source.flags.writeable = False  # always, or an empty column would be compiled for once more
    squash(source, given.offsets, lower_case(), out, bounds, odd)
    made = Texts(out[: bounds[-1]], bounds)
    if not odd.any():
        return made
    rows = np.flatnonzero(odd)
    mended = texts_of(series_of(made).scatter(rows, reference(texts.gather(rows))))
    return Texts(np.array(mended.buffer), mended.offsets)


@cache
def lower_case() -> NDArray[np.int32]:
    """The lower case of each code point below `PLANES`, as Polars has it; BLANK or ODD else."""
    points = [c for c in range(PLANES) if not 0xD800 <= c < 0xE000]
    characters = pl.Series([chr(c) for c in points])
    lower = characters.str.to_lowercase()
    longer = lower.str.len_bytes() > characters.str.len_bytes()
    odd = longer | (lower.str.len_chars() != 1) | (characters == "Σ")
    table = np.full(PLANES, ODD, np.int32)
    same = lower.str.head(1).to_list()
    table[points] = [ODD if o else ord(c) for c, o in zip(same, odd, strict=True)]
    table[np.array(points)[characters.str.contains(r"^[\s\x00]$").to_numpy()]] = BLANK
    return table
