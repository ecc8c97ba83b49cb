"""Exact duplicates: a key of the text that looks past how it is written down.

Two texts are the same when they agree after canonical composition (NFC), without characters that
have no width (zero-width spaces and joiners, soft hyphens, byte order marks) and with every run of
white space, line ends included, as one blank. NFC rather than NFKC: the latter also equates x² with
x2, which are different texts. Only the key is normalised; the text itself stays as it is.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING
from unicodedata import is_normalized, normalize

import numpy as np
import polars as pl
import xxhash

from pipeline.compiled import kernel
from pipeline.dedup.shingles import code_point, utf8

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U8 = NDArray[np.uint8]
    I64 = NDArray[np.int64]

ZERO_WIDTH = "[\u00ad\u180e\u200b-\u200f\u2060-\u2064\ufeff]"


def text_keys(texts: pl.Series) -> pl.Series:
    """The 128-bit xxh3 of each normalised text, as `Binary` of 16 bytes; null is an empty text."""
    data, ends = squashed(composed(texts))
    digest = xxhash.xxh3_128_digest
    # one call into C a document, over 1 GB a second: it does not show
    keys = [digest(data[begin:end]) for begin, end in pairwise(ends.tolist())]
    return pl.Series("text_hash", keys, dtype=pl.Binary)


def composed(texts: pl.Series) -> pl.Series:
    """Texts in NFC without characters of no width; ASCII, which is both, is passed over."""
    texts = texts.fill_null("")
    rows = (texts.str.len_bytes() != texts.str.len_chars()).arg_true()
    shown = texts.gather(rows).str.replace_all(ZERO_WIDTH, "")
    # Python's quick check reads a text once; Polars composes all, at 120 MB/s
    formed = [text if is_normalized("NFC", text) else normalize("NFC", text) for text in shown]
    return texts.scatter(rows, pl.Series(formed, dtype=pl.String)) if formed else texts


def squashed(texts: pl.Series) -> tuple[memoryview, I64]:
    """UTF-8 of all texts with runs of white space as one blank and none at the ends; offsets."""
    data, starts = utf8(texts)
    out = np.empty(int(starts[-1] - starts[0]), np.uint8)
    ends = np.zeros(len(starts), np.int64)
    _squash(data, starts, out, ends)
    return out.data, ends


@kernel
def _is_space(point: int) -> bool:
    """Unicode's property White_Space."""
    if point < 0x80:
        return point == 0x20 or 0x09 <= point <= 0x0D
    if point < 0x2000:
        return point == 0x85 or point == 0xA0 or point == 0x1680
    narrow = point <= 0x200A or point == 0x2028 or point == 0x2029
    return narrow or point == 0x202F or point == 0x205F or point == 0x3000


@kernel
def _squash(data: U8, starts: I64, out: U8, ends: I64) -> None:
    n = 0
    for d in range(len(starts) - 1):
        begin = n
        blank = False
        i = starts[d]
        while i < starts[d + 1]:
            size = 1
            point = int(data[i])
            if point >= 0x80:
                point, size = code_point(data, i)
            if _is_space(point):
                blank = n > begin
            else:
                if blank:
                    out[n] = 0x20
                    n += 1
                    blank = False
                for k in range(i, i + size):
                    out[n] = data[k]
                    n += 1
            i += size
        ends[d + 1] = n
