from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from training.errors import TrainingError
from training.shards import checksum
from training.verify import METADATA, RECORD, fault_of, find, kept, read_record, step_of

FILES = (METADATA, "__0_0.distcp", "__1_0.distcp")


def checkpoint(folder: Path, step: int) -> Path:
    """A complete checkpoint of two ranks, as the saver leaves it."""
    path = folder / f"step-{step}"
    path.mkdir(parents=True)
    for name in FILES:
        (path / name).write_bytes(f"{name} of {step}".encode())
    files = {n: {"bytes": (path / n).stat().st_size, "checksum": checksum(path / n)} for n in FILES}
    record = {"step": step, "files": files, "progress": {}, "stamps": {}}
    (path / RECORD).write_text(json.dumps(record))
    return path


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)


def without_metadata(path: Path) -> None:
    record = json.loads(path.read_text())
    del record["files"][METADATA]
    path.write_text(json.dumps(record))


def without(path: Path, key: str) -> None:
    record = json.loads(path.read_text())
    del record[key]
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("name", "damage", "why"),
    [
        ("__1_0.distcp", flip, "__1_0.distcp has another checksum than when it was written"),
        (METADATA, flip, ".metadata has another checksum than when it was written"),
        ("__1_0.distcp", lambda p: p.write_bytes(b"cut"), "__1_0.distcp has 3 bytes, not 18"),
        ("__1_0.distcp", Path.unlink, "__1_0.distcp is absent"),
        (METADATA, Path.unlink, ".metadata is absent"),
        (RECORD, Path.unlink, "checkpoint.json is absent or damaged"),
        (RECORD, lambda p: p.write_text('{"files": {"a": 1}}'), "checkpoint.json is absent or"),
        (RECORD, lambda p: without(p, "progress"), "checkpoint.json is absent or"),
        (RECORD, lambda p: without(p, "stamps"), "checkpoint.json is absent or"),
        (RECORD, without_metadata, "checkpoint.json names no .metadata"),
    ],
)
def test_the_newest_good_one_counts_and_each_newer_one_says_why_not(
    tmp_path: Path, name: str, damage: Callable[[Path], None], why: str
) -> None:
    for step in (10, 20, 30):
        checkpoint(tmp_path, step)
    assert (find(tmp_path).step, find(tmp_path).skipped) == (30, [])
    damage(tmp_path / "step-30" / name)
    found = find(tmp_path)
    assert found.step == 20
    (told,) = found.skipped
    assert told.startswith(f"step-30 was skipped: {why}")
    assert str(fault_of(tmp_path / "step-30")).startswith(why)


def test_older_ones_are_not_read(tmp_path: Path) -> None:
    for step in (10, 20):
        checkpoint(tmp_path, step)
    flip(tmp_path / "step-10/__0_0.distcp")
    assert find(tmp_path).skipped == []
    flip(tmp_path / "step-20/__0_0.distcp")
    found = find(tmp_path)
    assert (found.path, found.step, len(found.skipped)) == (None, 0, 2)


def test_only_finished_ones_are_seen(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    for name in ("step-20.tmp", "step-20.old", "step-x", "step-"):
        checkpoint(tmp_path, 20).rename(tmp_path / name)
    assert find(tmp_path).step == 10
    assert step_of(tmp_path / "step-20.tmp") == 0
    with pytest.raises(TrainingError, match="absent or damaged"):
        read_record(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("keep", "every", "stay"),
    [(1, None, {500}), (2, None, {500, 400}), (1, 200, {500, 400, 200}), (3, 7, {500, 400, 300})],
)  # fmt: skip
def test_the_newest_and_every_so_many_are_kept(
    keep: int, every: int | None, stay: set[int]
) -> None:
    assert kept(range(100, 501, 100), keep, every) == stay
