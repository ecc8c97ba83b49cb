"""A tiny writer of a dataset, killed at every point of the stores, gives what it gives alive."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.faults import POINTS
from resources.storage import open_store
from tests.faults.harness import run_undisturbed, run_until_killed
from tests.s3_server import moto_server

WRITER = """
import hashlib, json, sys, tempfile
from pathlib import Path
from pipeline.config.storage import StorageConfig
from resources.engine import LocalEngine
from resources.storage import open_store

store = open_store(sys.argv[1], options=StorageConfig(part_mb=5, parallel=1))
files = {}
for number in range(2):
    data = bytes([number]) * (6 << 20)
    key = f"part-{number}.bin"
    files[key] = hashlib.sha256(data).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "aside"
        path.write_bytes(data)
        if not store.exists(key):
            store.upload(path, key)
manifest = json.dumps(files).encode()
name = hashlib.sha256(manifest).hexdigest()
store.write(f"manifests/{name}.json", manifest)
current = store.read("current") if store.exists("current") else None
if current != name.encode():
    store.swap("current", name.encode(), expected=current)
"""

FOLDER_POINTS = [name for name in POINTS if name.startswith("store.")]
S3_POINTS = [name for name in POINTS if name.startswith("s3.")]
SECOND_ARRIVALS = {"store.upload.after_rename:2", "s3.upload.part:3", "s3.upload.after_complete:2"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with moto_server() as server, server.environment():
        yield f"s3://{server.bucket()}"


def contents(url: str) -> dict[str, bytes]:
    store = open_store(url)
    return {info.key: store.read(info.key) for info in store.list()}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run that never died leaves; the same in a folder and in S3."""
    url = str(tmp_path_factory.mktemp("undisturbed"))
    run_undisturbed([sys.executable, "-c", WRITER, url])
    return contents(url)


def check_point(url: str, point: str, expected: dict[str, bytes]) -> None:
    command = [sys.executable, "-c", WRITER, url]
    run_until_killed(command, point)
    seen = contents(url)
    if "current" in seen:  # what is pointed to is whole
        assert f"manifests/{seen['current'].decode()}.json" in seen
        assert {"part-0.bin", "part-1.bin"} < set(seen)
    for key, data in seen.items():
        if key.startswith("part-"):
            assert len(data) == 6 << 20
    run_undisturbed(command)
    assert contents(url) == expected


@pytest.mark.faults
@pytest.mark.parametrize(
    "point", FOLDER_POINTS + sorted(p for p in SECOND_ARRIVALS if p.startswith("store."))
)
def test_folder(point: str, tmp_path: Path, expected: dict[str, bytes]) -> None:
    check_point(str(tmp_path / "data"), point, expected)
    store = open_store(str(tmp_path / "data"))
    for leftover in store.leftovers():
        store.discard(leftover)


@pytest.mark.faults
@pytest.mark.parametrize(
    "point", S3_POINTS + sorted(p for p in SECOND_ARRIVALS if p.startswith("s3."))
)
def test_s3(point: str, bucket: str, expected: dict[str, bytes]) -> None:
    url = f"{bucket}/{secrets.token_hex(4)}"
    check_point(url, point, expected)
    store = open_store(url)
    for leftover in store.leftovers():
        store.discard(leftover)
    assert list(store.leftovers()) == []


def test_every_point_of_the_registry_is_in_the_code_and_the_reverse() -> None:
    root = Path(__file__).resolve().parents[2]
    text = "".join(
        path.read_text()
        for room in ("pipeline", "resources")
        for path in (root / room).rglob("*.py")
    )
    used = set(re.findall(r'\bfault\(\s*"([^"]+)"', text))
    built = {f"{base}.before_rename" for base in ("store.write", "store.swap")}
    assert used | built == set(POINTS)


def test_an_unknown_point_is_refused() -> None:
    with pytest.raises(AssertionError, match="names no fault point"):
        run_until_killed([sys.executable, "-c", "import pipeline.faults"], "nowhere")


WORKERS = """
import sys
from resources.engine import LocalEngine
from tests.faults.test_store_faults import write_one
try:
    with LocalEngine(2) as engine:
        list(engine.map(write_one, [sys.argv[1] + "/a", sys.argv[1] + "/b"]))
except Exception as error:
    sys.exit(str(error))
"""


def write_one(url: str) -> None:
    open_store(url).write("x", b"x")


@pytest.mark.faults
def test_a_worker_killed_at_a_point(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKERS, str(tmp_path)]
    run_until_killed(command, "store.write.before_rename", by_worker=True)
    assert contents(str(tmp_path)) == {}
    run_undisturbed(command)
    assert contents(str(tmp_path)) == {"a/x": b"x", "b/x": b"x"}
