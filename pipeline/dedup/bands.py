"""Band buckets: which documents are worth comparing.

A signature of b x r values is cut into b bands of r; documents that agree on a whole band share a
bucket. Buckets are made one band at a time (24 bytes a document while at it) and only those with
two members or more are kept, one of them new, so that what stays grows with the duplicates.
Documents are numbered by rank, their place in the total order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.compiled import kernel
from pipeline.dedup.shingles import GOLDEN, SHIFT_32, mix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    U32 = NDArray[np.uint32]
    U64 = NDArray[np.uint64]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Buckets:
    """Buckets of all bands, and for each document the buckets it is in."""

    starts: I64
    """Where the members of each bucket begin, `[buckets + 1]`."""
    members: I32
    """Ranks, ascending within a bucket."""
    bands: I32
    """The band of each bucket, `[buckets]`."""
    of_starts: I64
    """Where the buckets of each document begin, `[documents + 1]`."""
    of: I32
    """Bucket numbers, by document, in order of their bands."""


def band_keys(signatures: U32, band: int, rows: int, scope: U64) -> U64:
    """The key of one band of each signature, `[documents] uint64`; equal keys share a bucket.

    `scope [documents] uint64` keeps documents of different scopes apart.
    """
    return _band_keys(signatures, band * rows, (band + 1) * rows, scope)


@kernel
def _band_keys(signatures: U32, first: int, last: int, scope: U64) -> U64:
    keys = np.empty(len(signatures), np.uint64)
    for d in range(len(signatures)):
        h = scope[d]
        for k in range(first, last):
            h = (h ^ np.uint64(signatures[d, k])) * GOLDEN
            h ^= h >> SHIFT_32
        keys[d] = mix(h)
    return keys


def buckets(keys_by_band: Iterable[U64], ranks: I32, documents: int, first_new: int) -> Buckets:
    """The buckets of all bands.

    `keys_by_band` yields one array of keys a band, for the documents with ranks `ranks`; buckets
    without a rank of at least `first_new` are left out. `documents` is the number of ranks.
    """
    starts, members, bands = [np.zeros(1, np.int64)], [], []
    entries = 0
    for band, keys in enumerate(keys_by_band):
        found, sizes = band_buckets(keys, ranks, first_new)
        starts.append(entries + np.cumsum(sizes))
        members.append(found)
        bands.append(np.full(len(sizes), band, np.int32))
        entries += len(found)
    joined = np.concatenate([np.empty(0, np.int32), *members])
    begins = np.concatenate(starts)
    number = np.repeat(np.arange(len(begins) - 1, dtype=np.int32), np.diff(begins))
    order = np.argsort(joined, kind="stable")
    of_starts = np.searchsorted(joined[order], np.arange(documents + 1))
    band_of = np.concatenate([np.empty(0, np.int32), *bands])
    return Buckets(begins, joined, band_of, of_starts, number[order])


def band_buckets(keys: U64, ranks: I32, first_new: int) -> tuple[I32, I64]:
    """The members of one band's buckets, bucket after bucket, and the sizes of these."""
    crowded = (
        pl.DataFrame({"key": keys, "rank": ranks})
        .filter(pl.col("key").is_duplicated())
        .with_columns(last=pl.col("rank").max().over("key"))
        .filter(pl.col("last") >= first_new)
        .sort("key", "rank")
    )
    sizes = crowded["key"].rle().struct.field("len").to_numpy().astype(np.int64)
    return crowded["rank"].to_numpy().astype(np.int32), sizes
