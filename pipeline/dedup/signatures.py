"""MinHash signatures in datasketch's scheme `affine32`, many documents at a time.

The permutations come from datasketch; a 32-bit hash h is pre-mixed with MurmurHash3's finaliser and
permuted as a * h + b mod 2^32 with odd a (ekzhu/datasketch#212). Fed the same hashes, a row here
equals `datasketch.MinHash(..., scheme="affine32").hashvalues` bit for bit, so that signatures can
be read with datasketch: `MinHash(hashvalues=row, permutations=..., scheme="affine32")`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pipeline.compiled import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U32 = NDArray[np.uint32]
    U64 = NDArray[np.uint64]
    I64 = NDArray[np.int64]

EMPTY = np.uint32(0xFFFFFFFF)
"""Every value of the signature of a document without shingles, as datasketch has it."""


@cache
def permutations(count: int, seed: int) -> tuple[U32, U32]:
    """The factors a and summands b of `count` permutations, `[count] uint32` each."""
    from datasketch import MinHash  # 0.1 s

    a, b = MinHash(num_perm=count, seed=seed, scheme="affine32").permutations
    return a.astype(np.uint32), b.astype(np.uint32)


def signatures(shingles: U64, offsets: I64, count: int, seed: int) -> U32:
    """The signature of each document, `[documents, count] uint32`.

    `shingles` are 64-bit hashes of which the lower half is fed to the scheme; `offsets [n + 1]`.
    """
    a, b = permutations(count, seed)
    out = np.empty((len(offsets) - 1, count), np.uint32)
    _minhash(shingles.astype(np.uint32), offsets, a, b, out)
    return out


@kernel
def _fmix32(h: np.uint32) -> np.uint32:
    h ^= h >> np.uint32(16)
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h ^= h >> np.uint32(13)
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    return h ^ (h >> np.uint32(16))


@kernel
def _minhash(hashes: U32, offsets: I64, a: U32, b: U32, out: U32) -> None:
    # the permutations run innermost over unit strides, which LLVM turns into vector instructions
    for d in range(len(offsets) - 1):
        row = out[d]
        row[:] = EMPTY
        for i in range(offsets[d], offsets[d + 1]):
            h = _fmix32(hashes[i])
            for k in range(len(a)):
                row[k] = min(row[k], np.uint32(a[k] * h + b[k]))
