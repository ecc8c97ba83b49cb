"""A store in a folder: write aside, sync, rename.

A reader sees an object whole or not at all: bytes go to a `.tmp-` name in the same folder, are
synced, and are renamed over the key; the folder is synced after it. The pointer moves under an
exclusive lock, so that of two processes that expect the same old value one wins.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import ConflictError, StorageError
from pipeline.faults import fault
from pipeline.store import LOCK, TEMPORARY, ObjectInfo, check_key

MISSING = (errno.ENOENT, errno.EISDIR, errno.ENOTDIR)
HINTS = {
    errno.ENOSPC: "free disk space (`gristmill prune` shows what nobody needs) and run again",
    errno.EDQUOT: "raise the quota or free space (`gristmill prune`) and run again",
    errno.EACCES: "give this user the right to write there, or choose another storage.root",
    errno.EPERM: "give this user the right to write there, or choose another storage.root",
    errno.EROFS: "mount the folder writable, or choose another storage.root",
}
OTHER = "check the disk and the path; what was written before is whole"


@contextlib.contextmanager
def refusals(what: str, path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a StorageError with a cure."""
    try:
        yield
    except OSError as error:
        message = f"cannot {what} {path}: {os.strerror(error.errno or 0)}"
        raise StorageError(message, hint=HINTS.get(error.errno or 0, OTHER)) from error


@contextlib.contextmanager
def _missing(path: Path) -> Iterator[None]:
    """A key that is a folder, or lies below a file, is missing like any other."""
    try:
        yield
    except OSError as error:
        if error.errno in MISSING:
            raise FileNotFoundError(errno.ENOENT, "no such object", str(path)) from error
        message = f"cannot read {path}: {os.strerror(error.errno or 0)}"
        raise StorageError(message, hint=HINTS.get(error.errno or 0, OTHER)) from error


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True)
class LocalStore:
    """Objects as files below `root` (absolute). See `pipeline.store.Store`."""

    root: Path

    @property
    def url(self) -> str:
        """The absolute folder."""
        return str(self.root)

    def child(self, prefix: str) -> "LocalStore":
        """The store below `prefix`."""
        return LocalStore(self.root / check_key(prefix))

    def _path(self, key: str) -> Path:
        return self.root / check_key(key)

    def read(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes `offset .. offset + length`; fewer where the object ends."""
        path = self._path(key)
        with _missing(path), path.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if length is None else length)

    def write(self, key: str, data: bytes) -> None:
        """Write whole."""
        self._replace(self._path(key), data, "store.write")

    def _replace(self, path: Path, data: bytes, point: str) -> None:
        with refusals("write", path), self._aside(path) as aside:
            if point == "store.write":
                fault("store.write.start")
            with aside.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fault(f"{point}.before_rename")
            aside.replace(path)
            if point == "store.write":
                fault("store.write.after_rename")
            sync_folder(path.parent)

    @contextlib.contextmanager
    def _aside(self, path: Path) -> Iterator[Path]:
        """A temporary name beside `path`, gone afterwards; also where the disk is full."""
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            yield aside
        finally:
            aside.unlink(missing_ok=True)

    def upload(self, path: Path, key: str) -> None:
        """Rename into place; copied first where `path` is on another file system."""
        target = self._path(key)
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        with refusals("write", target), self._aside(target) as aside:
            try:
                path.rename(aside)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                shutil.copyfile(path, aside)
                path.unlink()
            with aside.open("rb") as file:
                os.fsync(file.fileno())
            fault("store.upload.before_rename")
            aside.replace(target)
            fault("store.upload.after_rename")
            sync_folder(target.parent)

    @contextlib.contextmanager
    def local(self, key: str) -> Iterator[Path]:
        """The file itself; not to be written to."""
        self.stat(key)
        yield self._path(key)

    def exists(self, key: str) -> bool:
        """Whether `key` is a file."""
        return self._path(key).is_file()

    def stat(self, key: str) -> ObjectInfo:
        """Size and time of an object."""
        path = self._path(key)
        with _missing(path):
            if not path.is_file():
                raise FileNotFoundError(errno.ENOENT, "no such object", str(path))
            state = path.stat()
        return ObjectInfo(key, state.st_size, modified=state.st_mtime)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """All objects below `prefix`, sorted by key."""
        above, slash, leaf = prefix.rpartition("/")
        folder = self._path(above) if slash else self.root
        return _walk(folder, above + slash, leaf)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; missing ones are no error."""
        for key in keys:
            path = self._path(key)
            with refusals("delete", path), contextlib.suppress(FileNotFoundError):
                path.unlink()

    def swap(self, key: str, new: bytes, *, expected: bytes | None) -> None:
        """Move a pointer under an exclusive lock; ConflictError where it is not `expected`."""
        path = self._path(key)
        with refusals("lock", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with locked(path.with_name(LOCK + path.name)):
            current = self.read(key) if self.exists(key) else None
            if current != expected:
                message = f"{path} was moved by another process: it holds {_short(current)}"
                hint = f"expected {_short(expected)}; run again, finished parts are kept"
                raise ConflictError(message, hint=hint)
            fault("store.swap.before")
            self._replace(path, new, "store.swap")
            fault("store.swap.after")

    def check(self) -> None:
        """Write, sync and remove a temporary file in the folder, or where it would be made."""
        folder = self.root
        while not folder.exists():
            folder = folder.parent
        probe = folder / "probe"
        with refusals("write", self.root), self._aside(probe) as aside, aside.open("xb") as file:
            file.write(b"probe")
            file.flush()
            os.fsync(file.fileno())

    def leftovers(self) -> Iterator[ObjectInfo]:
        """Temporary files of processes that died, or are at work."""
        return _walk(self.root, "", hidden=True)

    def discard(self, leftover: ObjectInfo) -> None:
        """Remove a temporary file."""
        path = self.root / leftover.key
        if not path.name.startswith((TEMPORARY, LOCK)):
            message = f"{leftover.key!r} is no leftover"
            raise ValueError(message)
        with refusals("delete", path):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` alone; it is gone afterwards. A killed holder frees it."""
    with refusals("lock", path):
        while (handle := _lock(path)) is None:
            pass
    try:
        yield
    finally:
        path.unlink(missing_ok=True)  # before closing frees the lock
        os.close(handle)


def _lock(path: Path) -> int | None:
    """A handle with the lock; None where the holder before removed the file that was waited for."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    os.close(handle)
    return None


def _walk(folder: Path, base: str, leaf: str = "", *, hidden: bool = False) -> Iterator[ObjectInfo]:
    """Files below `folder` in the order of their keys, either the hidden or the visible ones.

    Only entries of `folder` whose name starts with `leaf` are looked into.
    """
    try:
        with os.scandir(folder) as entries:
            matching = [entry for entry in entries if entry.name.startswith(leaf)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in sorted(matching, key=lambda e: e.name + "/" * e.is_dir()):
        if entry.is_dir():
            yield from _walk(Path(entry.path), f"{base}{entry.name}/", hidden=hidden)
        elif entry.name.startswith((TEMPORARY, LOCK)) == hidden:
            with contextlib.suppress(FileNotFoundError):  # deleted since the folder was read
                state = entry.stat()
                yield ObjectInfo(base + entry.name, state.st_size, modified=state.st_mtime)


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else value[:80].decode(errors="replace").strip()
