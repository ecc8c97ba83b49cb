"""A web host as a store to read from: an archive of crawl files behind https.

It has no way to list and takes no writes, so a snapshot there is named by its `warc.paths.gz`.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import StorageError
from pipeline.store import ObjectInfo, Store
from resources.commoncrawl import CommonCrawl


@dataclass(frozen=True)
class HttpStore:
    """The files below an https address."""

    url: str
    client: CommonCrawl

    def child(self, prefix: str) -> Store:
        """The files below `prefix`."""
        return HttpStore(self._at(prefix), self.client)

    def read(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or one ranged read of them."""
        return self.client.read(self._at(key), offset=offset, length=length)

    def local(self, key: str) -> AbstractContextManager[Path]:
        """A temporary copy of a file."""
        return self.client.download(self._at(key))

    def exists(self, key: str) -> bool:
        """Whether the host has the file."""
        try:
            self.client.stat(self._at(key))
        except FileNotFoundError:
            return False
        return True

    def stat(self, key: str) -> ObjectInfo:
        """Size and ETag of a file."""
        info = self.client.stat(self._at(key))
        return ObjectInfo(key, info.size, info.etag)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """A web host cannot be listed: StorageError."""
        message = f"{self._at(prefix)} cannot be listed"
        raise StorageError(message, hint="point snapshots.location at its warc.paths.gz")

    def write(self, key: str, data: bytes) -> None:
        """A web host takes no writes: StorageError."""
        raise self._read_only(key)

    def upload(self, path: Path, key: str) -> None:
        """A web host takes no writes: StorageError."""
        raise self._read_only(key)

    def delete(self, keys: Iterable[str]) -> None:
        """A web host takes no writes: StorageError."""
        raise self._read_only(", ".join(keys))

    def swap(self, key: str, new: bytes, *, expected: bytes | None) -> None:
        """A web host takes no writes: StorageError."""
        raise self._read_only(key)

    def check(self) -> None:
        """A web host takes no writes: StorageError."""
        raise self._read_only()

    def leftovers(self) -> Iterator[ObjectInfo]:
        """None: nothing is ever written."""
        return iter(())

    def discard(self, leftover: ObjectInfo) -> None:
        """A web host takes no writes: StorageError."""
        raise self._read_only(leftover.key)

    def _at(self, key: str) -> str:
        return f"{self.url.rstrip('/')}/{key}" if key else self.url

    def _read_only(self, key: str = "") -> StorageError:
        message = f"{self._at(key)} cannot be written"
        return StorageError(message, hint="storage.root is a folder or an s3:// prefix")
