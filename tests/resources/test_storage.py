"""One contract for every store: a folder, S3 of moto, S3 of SeaweedFS."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.config.storage import StorageConfig
from pipeline.errors import ConflictError, UsageError
from pipeline.store import Store
from resources import storage_s3
from resources.storage import open_store
from tests.s3_server import moto_server, seaweed_server

SMALL_PARTS = StorageConfig(part_mb=5)
BIG = 12 << 20  # three parts of 5 MiB


@pytest.fixture(
    scope="module", params=["folder", "moto", pytest.param("seaweed", marks=pytest.mark.e2e)]
)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a store, without its last prefix."""
    if request.param == "folder":
        yield str(tmp_path_factory.mktemp("stores"))
        return
    start = moto_server if request.param == "moto" else seaweed_server
    with start() as server, server.environment():
        yield f"s3://{server.bucket()}/stores"


@pytest.fixture
def store(place: str) -> Store:
    """A new, empty store."""
    return open_store(f"{place}/{secrets.token_hex(4)}", options=SMALL_PARTS)


def keys(store: Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_what_is_written_is_read(store: Store) -> None:
    store.write("a/b.bin", b"first")
    store.write("a/b.bin", b"0123456789")
    assert store.read("a/b.bin") == b"0123456789"
    assert store.read("a/b.bin", offset=3) == b"3456789"
    assert store.read("a/b.bin", offset=3, length=4) == b"3456"
    assert store.read("a/b.bin", offset=8, length=4) == b"89"
    assert store.read("a/b.bin", offset=10, length=4) == b""
    assert store.read("a/b.bin", length=0) == b""
    store.write("empty", b"")
    assert store.read("empty") == b""


def test_missing_keys_are_file_not_found(store: Store) -> None:
    store.write("a/b", b"x")
    for key in ("nothing", "a", "a/b/c"):
        assert not store.exists(key)
        for refuse in (store.read, store.stat, lambda k: store.read(k, length=0)):
            with pytest.raises(FileNotFoundError):
                refuse(key)
        with pytest.raises(FileNotFoundError), store.local(key):
            pass
    assert keys(store.child("nowhere")) == []


def test_stat_tells_size_and_time(store: Store) -> None:
    store.write("a", b"12345")
    info = store.stat("a")
    assert (info.key, info.size) == ("a", 5)
    assert info.modified is not None
    assert info == next(store.list("a"))


def test_list_is_sorted_by_key_and_filtered_by_prefix(store: Store) -> None:
    names = ["a/x", "a-b/x", "a.b", "a/x/y", "ab", "b", "part-2", "part-10", "a/Ü"]
    folders = {name for name in names if any(o.startswith(name + "/") for o in names)}
    for name in names:
        if name not in folders:
            store.write(name, b"x")
    assert keys(store) == ["a-b/x", "a.b", "a/x/y", "a/Ü", "ab", "b", "part-10", "part-2"]
    assert keys(store, "a/") == ["a/x/y", "a/Ü"]
    assert keys(store, "a") == ["a-b/x", "a.b", "a/x/y", "a/Ü", "ab"]
    assert keys(store, "part-") == ["part-10", "part-2"]
    assert keys(store, "a/x/y/z") == []


def test_list_goes_on_behind_the_first_page(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_s3, "LIST_PAGE", 10)
    for n in range(25):
        store.write(f"k/{n:02}", b"")
    assert keys(store, "k/") == [f"k/{n:02}" for n in range(25)]
    store.delete(f"k/{n:02}" for n in range(24))
    assert keys(store) == ["k/24"]


def test_child_is_the_same_store_below(store: Store) -> None:
    store.child("a/b").write("c", b"x")
    assert store.read("a/b/c") == b"x"
    assert keys(store.child("a")) == ["b/c"]
    assert store.child("a").child("b").url == f"{store.url}/a/b"


def test_reopened_and_pickled_it_is_the_same_store(store: Store) -> None:
    store.write("a", b"x")
    assert open_store(store.url).read("a") == b"x"
    assert pickle.loads(pickle.dumps(store)).read("a") == b"x"


@pytest.mark.parametrize("size", [0, 1000, BIG])
def test_upload_takes_the_file_over(store: Store, tmp_path: Path, size: int) -> None:
    path = tmp_path / "part"
    data = secrets.token_bytes(size)
    path.write_bytes(data)
    store.upload(path, "a/part.parquet")
    assert not path.exists()
    assert store.read("a/part.parquet") == data
    assert keys(store) == ["a/part.parquet"]
    assert list(store.leftovers()) == []
    with store.local("a/part.parquet") as local:
        assert local.read_bytes() == data
        assert local.suffix == ".parquet"


def test_upload_of_nothing_is_file_not_found(store: Store, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        store.upload(tmp_path / "nothing", "a")


def test_delete_takes_missing_keys_too(store: Store) -> None:
    store.write("a/b", b"x")
    store.write("a/c", b"x")
    store.delete(["a/b", "nothing", "a/d/e"])
    assert keys(store) == ["a/c"]
    store.delete([])


def test_swap_moves_only_what_was_expected(store: Store) -> None:
    store.swap("current", b"one", expected=None)
    store.swap("current", b"two", expected=b"one")
    assert store.read("current") == b"two"
    for stale in (None, b"one", b""):
        with pytest.raises(ConflictError, match="moved by another process"):
            store.swap("current", b"three", expected=stale)
    with pytest.raises(ConflictError):
        store.swap("other", b"x", expected=b"gone")
    assert store.read("current") == b"two"
    assert keys(store) == ["current"]
    assert list(store.leftovers()) == []


def test_of_those_who_swap_at_once_one_wins(store: Store) -> None:
    def attempt(number: int) -> bool:
        try:
            store.swap("race", str(number).encode(), expected=b"start")
        except ConflictError:
            return False
        return True

    store.write("race", b"start")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(8)))
    assert won.count(True) == 1
    assert store.read("race") == str(won.index(True)).encode()


@pytest.mark.parametrize(
    "key",
    ["", "/etc/passwd", "../up", "a/../../b", "a//b", "a/", ".", "a\0b", ".tmp-x", "a/.lock-b"],
)
def test_keys_stay_inside(store: Store, key: str) -> None:
    for use in (store.read, store.exists, lambda k: store.write(k, b""), store.child):
        with pytest.raises(ValueError, match="is no key"):
            use(key)


def test_check_passes_and_leaves_nothing(store: Store) -> None:
    store.check()
    assert keys(store) == []
    assert list(store.leftovers()) == []


KEYS = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=5).filter(
        lambda part: part not in (".", "..") and not part.startswith((".tmp-", ".lock-"))
    ),
    min_size=1,
    max_size=3,
).map("/".join)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(contents=st.dictionaries(KEYS, st.binary(max_size=20), max_size=8))
def test_a_folder_is_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, contents: dict[str, bytes]
) -> None:
    store = open_store(str(tmp_path_factory.mktemp("dictionary")))
    kept = {
        key: data
        for key, data in contents.items()
        if not any(other.startswith(key + "/") for other in contents)  # no file is a folder too
    }
    for key, data in kept.items():
        store.write(key, data)
    assert keys(store) == sorted(kept)
    assert {key: store.read(key) for key in kept} == kept


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("x/y").url == str(tmp_path / "x/y")
    assert open_store(f"file://{tmp_path}/a%20b").url == f"{tmp_path}/a b"
    assert open_store("s3://bucket").url == "s3://bucket"
    assert open_store("s3://bucket/a/b/").url == "s3://bucket/a/b"
    for bad in ("", "ftp://x/y", "s3://", "s3://a", "s3://bucket/a/../b", "s3://b u/x"):
        with pytest.raises(UsageError):
            open_store(bad)
