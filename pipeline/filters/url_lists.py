"""Lists of addresses and words, as files that a person gives.

Lists of addresses have millions of entries (UT1's `adult` has 4.6 million hosts), and every worker
holds them: an entry is kept as a 64-bit hash, eight bytes, sorted. Two different strings have the
same hash once in 10^12 looked up. Reading 4.6 million takes 0.6 s. Lists of words are short and
kept as they are.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipeline.compiled import kernel
from pipeline.config.urls import UrlConfig
from pipeline.filters.url_files import list_files, stamp, unreadable
from pipeline.word_kernels import OFFSET, PRIME, hash_spans, mix
from pipeline.words import texts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_BYTES = 1 << 22
NEWLINE, SPACE, HASH, DOT = 10, 32, 35, 46
SIGNS = re.compile(r"[^a-z0-9]+")
SCHEME = r"^[A-Za-z][A-Za-z0-9+.-]*://"


@dataclass(frozen=True)
class HashedSet:
    """A set of strings by their hashes."""

    hashes: NDArray[np.uint64]  # sorted, distinct

    def __len__(self) -> int:
        return len(self.hashes)

    def has(self, column: pl.Series) -> NDArray[np.bool_]:
        """Which strings of a column are in the set; null is not."""
        looked = _hashes(column)
        if not len(self.hashes):
            return np.zeros(len(looked), np.bool_)
        at = np.searchsorted(self.hashes, looked)
        found = self.hashes[np.minimum(at, len(self.hashes) - 1)] == looked
        present: NDArray[np.bool_] = column.is_not_null().to_numpy()
        return found & present

    def __or__(self, other: HashedSet) -> HashedSet:
        return HashedSet(_distinct(np.concatenate([self.hashes, other.hashes])))


def _hashes(column: pl.Series) -> NDArray[np.uint64]:
    texts = texts_of(column)
    hashes = np.empty(len(texts), np.uint64)
    hash_spans(texts.buffer, np.stack([texts.offsets[:-1], texts.offsets[1:]], axis=1), hashes)
    return hashes


@dataclass(frozen=True)
class AddressLists:
    """What URLs are compared with."""

    domains: HashedSet  # hosts, in lower case and ASCII
    urls: HashedSet  # whole URLs
    below: HashedSet  # hosts with paths, without scheme; what is below is meant too


@dataclass(frozen=True)
class WordLists:
    """What the words of URLs are compared with: lower-case letters and digits, sorted."""

    banned: tuple[str, ...]
    substrings: tuple[str, ...]
    soft: tuple[str, ...]


def ascii_hosts(hosts: pl.Series) -> pl.Series:
    """Hosts in lower case, without a dot at the end, names of other scripts as punycode."""
    plain = hosts.str.to_lowercase().str.strip_chars_end(".")
    other = plain.str.contains(r"[^\x00-\x7f]").fill_null(value=False)
    if not other.any():
        return plain
    names = plain.filter(other).unique().to_list()
    return plain.replace({name: _punycode(name) for name in names})


def _punycode(host: str) -> str:
    try:
        return host.encode("idna").decode()
    except UnicodeError:  # no such host can exist; left as it is
        return host


def paths_below(urls: pl.Series) -> pl.Series:
    """URLs as UT1 writes them: no scheme, user, port, `www.`, fragment and slash at the end."""
    bare = urls.str.replace(SCHEME, "").str.replace(r"#.*$", "")
    parts = bare.str.extract_groups(
        r"^(?:[^/?@]*@)?(?P<host>\[[^\]]*\]|[^/?:]*)(?::[0-9]*)?(?P<rest>.*)$"
    )
    host = ascii_hosts(parts.struct.field("host")).str.replace(r"^www\.", "")
    rest = parts.struct.field("rest").str.strip_chars_end("/")
    return (host + rest).alias("url")


def lists_of(config: UrlConfig) -> tuple[AddressLists, WordLists]:
    """All lists that are named. ConfigError naming the key of one that cannot be read."""
    files = list_files(config)
    empty = HashedSet(np.zeros(0, np.uint64))

    def addresses(name: str, kind: str) -> HashedSet:
        return _union([_addresses(key, path, kind) for key, path in files[name]], empty)

    def words(name: str) -> tuple[str, ...]:
        return next((_words(key, path) for key, path in files[name]), ())

    return (
        AddressLists(
            domains=addresses("domains", "host"),
            urls=addresses("urls", "url"),
            below=addresses("below", "below"),
        ),
        WordLists(words("banned_words"), words("banned_substrings"), words("soft_words")),
    )


def _union(sets: list[HashedSet], empty: HashedSet) -> HashedSet:
    for one in sets:
        empty = one if not len(empty) else empty | one
    return empty


def _addresses(key: str, path: Path, kind: str) -> HashedSet:
    return _hashed(path, *stamp(key, path), key, kind)


@lru_cache(maxsize=64)
def _hashed(path: Path, changed: int, size: int, key: str, kind: str) -> HashedSet:
    found = [np.zeros(0, np.uint64)]
    for block in _blocks(key, path):
        if kind == "below":
            found.append(_hashes(paths_below(_entries(block))))
            continue
        buffer = np.frombuffer(block, np.uint8)
        most = np.count_nonzero(buffer == NEWLINE) + 1
        hashes, other = np.empty(most, np.uint64), np.empty((most, 2), np.int64)
        n, m = hash_lines(buffer, kind == "host", hashes, other)
        found.append(hashes[:n])
        if m:  # names in other scripts
            names = [block[begin:end].decode() for begin, end in other[:m].tolist()]
            found.append(_hashes(ascii_hosts(pl.Series("entry", names))))
    return HashedSet(_distinct(np.concatenate(found)))


@kernel
def hash_lines(buffer: Any, hosts: bool, hashes: Any, other: Any) -> tuple[int, int]:
    """Hashes of the entries of a list, as `hash_spans` has them; how many.

    `hosts`: in lower case, without a dot at the end; those that are not ASCII are put aside as
    (begin, end) in `other`, of which the second number says how many.
    """
    n = m = start = 0
    size = len(buffer)
    while start < size:
        stop = start
        while stop < size and buffer[stop] != NEWLINE:
            stop += 1
        begin, end = start, stop
        start = stop + 1
        while begin < end and buffer[begin] <= SPACE:
            begin += 1
        while end > begin and (buffer[end - 1] <= SPACE or (hosts and buffer[end - 1] == DOT)):
            end -= 1
        if begin == end or buffer[begin] == HASH:
            continue
        h, plain = OFFSET, True
        for i in range(begin, end):
            c = buffer[i]
            plain &= c < 0x80
            if hosts and 65 <= c <= 90:
                c += 32
            h = (h ^ np.uint64(c)) * PRIME
        if plain or not hosts:
            hashes[n] = mix(h) | np.uint64(1)
            n += 1
        else:
            other[m, 0], other[m, 1] = begin, end
            m += 1
    return n, m


def _distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    hashes.sort()  # np.unique takes eight times as long
    return hashes[np.append(True, hashes[1:] != hashes[:-1])[: len(hashes)]]


def _words(key: str, path: Path) -> tuple[str, ...]:
    return _plain(path, *stamp(key, path), key)


@lru_cache(maxsize=16)
def _plain(path: Path, changed: int, size: int, key: str) -> tuple[str, ...]:
    entries = [entry for block in _blocks(key, path) for entry in _entries(block).to_list()]
    words = {SIGNS.sub("", entry.lower()) for entry in entries}
    return tuple(sorted(words - {""}))


def _blocks(key: str, path: Path) -> Iterator[bytes]:
    """A list in blocks of whole lines."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                block += file.readline()
                block.decode("utf-8")
                yield block
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise unreadable(key, path, error) from error


def _entries(block: bytes) -> pl.Series:
    """The lines that are neither blank nor a comment."""
    lines = pl.Series("entry", [block.decode()]).str.split("\n").explode().str.strip_chars()
    return lines.filter((lines != "") & ~lines.str.starts_with("#"))
