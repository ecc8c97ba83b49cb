"""What a stage needs of a store: keys with atomic writes, and one conditional pointer.

The implementations (a folder, S3) are in `resources/storage.py`; they are picklable, so that worker
processes open their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TEMPORARY = ".tmp-"
"""How the name of an unfinished write begins (folders only); never listed, never a key."""

LOCK = ".lock-"
"""How the name of a pointer's lock begins (folders only)."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a store. `etag` is null for a folder; `modified` is in seconds since 1970."""

    key: str
    size: int
    etag: str | None = None
    modified: float | None = None


def check_key(key: str) -> str:
    """`key` if it names an object inside the store; ValueError where it could lead outside."""
    parts = key.split("/")
    hidden = any(part.startswith((TEMPORARY, LOCK)) for part in parts)
    if hidden or "\0" in key or any(part in ("", ".", "..") for part in parts):
        message = f"{key!r} is no key: relative, '/'-separated, without '.', '..' or empty parts"
        raise ValueError(message)
    return key


class Store(Protocol):
    """Keys are '/'-separated and relative to `url`. Missing keys raise FileNotFoundError; refusals
    after retries raise StorageError."""

    @property
    def url(self) -> str:
        """`/absolute/folder` or `s3://bucket/prefix`; `open_store(url)` reopens it."""
        ...

    def child(self, prefix: str) -> Store:
        """The same store below `prefix`."""
        ...

    def read(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of an object, or one ranged read of them."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Write an object whole: readers see the old one or the new one, never a part of it."""
        ...

    def upload(self, path: Path, key: str) -> None:
        """Publish a local file under `key` (rename or multipart upload), atomically as `write`.

        The store takes the file over: afterwards there is nothing at `path`.
        """
        ...

    def local(self, key: str) -> AbstractContextManager[Path]:
        """A local file with the object's bytes; a temporary copy where the store is remote."""
        ...

    def exists(self, key: str) -> bool:
        """Whether the object is there."""
        ...

    def stat(self, key: str) -> ObjectInfo:
        """Size and ETag of an object."""
        ...

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects whose key starts with `prefix`, by key; unfinished writes never show."""
        ...

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; missing ones are no error."""
        ...

    def swap(self, key: str, new: bytes, *, expected: bytes | None) -> None:
        """Move a pointer: write `new` if the object still holds `expected` (None: is absent).

        Raises ConflictError where somebody else moved it.
        """
        ...

    def check(self) -> None:
        """Nothing if the store can be reached and written; else StorageError with the cause."""
        ...

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Unfinished writes of processes that died or still run (see `modified`)."""
        ...

    def discard(self, leftover: ObjectInfo) -> None:
        """Remove one of `leftovers`."""
        ...
