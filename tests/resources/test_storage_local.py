"""What only a folder can do wrong: full disk, files in the way, dead writers, two processes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.errors import ConflictError, StorageError
from pipeline.store import Store
from resources.engine import LocalEngine
from resources.storage import open_store
from resources.storage_local import LocalStore, locked


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def names(store: LocalStore) -> list[str]:
    return sorted(path.name for path in store.root.rglob("*"))


def test_unfinished_writes_are_leftovers_not_objects(store: LocalStore) -> None:
    store.write("a/b", b"x")
    (store.root / "a/.tmp-0123").write_bytes(b"half")
    assert [info.key for info in store.list()] == ["a/b"]
    [leftover] = store.leftovers()
    assert (leftover.key, leftover.size) == ("a/.tmp-0123", 4)
    store.discard(leftover)
    assert list(store.leftovers()) == []
    with pytest.raises(ValueError, match="no leftover"):
        store.discard(store.stat("a/b"))


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.write("a", b"old")
    path = tmp_path / "part"
    path.write_bytes(b"new")
    monkeypatch.setattr(os, "fsync", full)
    uses: list[Callable[[], None]] = [
        lambda: store.write("a", b"new"),
        lambda: store.upload(path, "a"),
        lambda: store.swap("a", b"new", expected=b"old"),
        store.check,
    ]
    for use in uses:
        with pytest.raises(StorageError, match="No space left on device") as caught:
            use()
        assert "gristmill prune" in (caught.value.hint or "")
    assert store.read("a") == b"old"
    assert names(store) == ["a"]


FILE_SIZE_LIMIT = """
import resource, sys
from resources.storage import open_store
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
open_store(sys.argv[1]).write("a", bytes(2000))
"""


def test_a_write_that_the_system_cuts_off_leaves_nothing(store: LocalStore) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMIT, store.url], capture_output=True, text=True
    )
    assert "StorageError: cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert names(store) == []


def test_a_file_in_the_way_of_a_folder(store: LocalStore) -> None:
    store.write("a", b"x")
    with pytest.raises(StorageError, match="cannot write"):
        store.write("a/b", b"y")
    with pytest.raises(StorageError):
        LocalStore(store.root / "a").check()


def test_upload_from_another_file_system_copies(store: LocalStore) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == store.root.parent.stat().st_dev:
        pytest.skip("no second file system here")
    path = shm / f"gristmill-test-{os.getpid()}"
    path.write_bytes(b"data")
    store.upload(path, "a/b")
    assert store.read("a/b") == b"data"
    assert not path.exists()


def test_links_to_folders_are_followed(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "big-disk").mkdir()
    store.root.mkdir()
    (store.root / "a").symlink_to(tmp_path / "big-disk")
    store.write("a/b", b"x")
    assert [info.key for info in store.list()] == ["a/b"]
    assert (tmp_path / "big-disk/b").read_bytes() == b"x"


def count_up(store: Store) -> int:
    """Raise the number in `n` by one, 50 times; how often somebody else was faster."""
    lost = 0
    for _ in range(50):
        while True:
            now = store.read("n")
            try:
                store.swap("n", str(int(now) + 1).encode(), expected=now)
            except ConflictError:
                lost += 1
            else:
                break
    return lost


def test_processes_that_swap_never_lose_a_count(store: LocalStore) -> None:
    store.write("n", b"0")
    with LocalEngine(3) as engine:
        list(engine.map(count_up, [open_store(store.url)] * 3))
    assert store.read("n") == b"150"
    assert names(store) == ["n"]


HOLD = """
import sys, time
from pathlib import Path
from resources.storage_local import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_killed_holder_frees_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / ".lock-x"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        process.kill()
    assert lock.exists()
    with locked(lock):
        pass
    assert not lock.exists()
