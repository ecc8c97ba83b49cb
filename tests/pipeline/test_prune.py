"""Prune: keeps what is referenced, deletes the rest of what stages wrote, touches nothing else."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from pipeline.errors import ConflictError
from pipeline.layout import content_key
from pipeline.prune import apply, plan_prune
from pipeline.store import Store
from resources.storage import open_store
from tests.s3_server import moto_server

LATER = time.time() + 7200


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "root"))


def commit(
    root: Store, asset: str, part: str, *, inputs: list[str] | None = None, current: bool = True
) -> str:
    """A dataset with one part, its decisions and its receipt; the manifest's hash."""
    store = root.child(asset)
    entries = {}
    for kind, path in (
        ("parts", f"part-{part}.parquet"),
        ("decisions", f"decisions/part-{part}.p"),
    ):
        store.write(path, part.encode())
        entries[kind] = [{"key": f"key-{part}", "path": path, "rows": 1, "bytes": len(part)}]
    store.write(f"receipts/key-{part}.json", json.dumps({"entries": entries}).encode())
    content = {"inputs": [{"asset": "any", "hash": name} for name in inputs or []], **entries}
    name = content_key(content)
    store.write(f"manifests/{name}.json", json.dumps({"content": content, "run": {}}).encode())
    if current:
        old = store.read("current") if store.exists("current") else None
        store.swap("current", name.encode() + b"\n", expected=old)
    return name


def doomed(store: Store, *, now: float = LATER) -> list[str]:
    return [key for key, _ in plan_prune(store, now=now).deletions]


def test_what_current_manifests_name_stays(store: Store) -> None:
    commit(store, "filtered_text/S", "a")
    commit(store, "tokenizer", "b")
    assert doomed(store) == []


def test_an_older_manifest_goes_with_what_only_it_names(store: Store) -> None:
    old = commit(store, "filtered_text/S", "old")
    commit(store, "filtered_text/S", "new")
    plan = plan_prune(store, now=LATER)
    assert [key for key, _ in plan.deletions] == [
        "filtered_text/S/receipts/key-old.json",
        "filtered_text/S/decisions/part-old.p",
        "filtered_text/S/part-old.parquet",
        f"filtered_text/S/manifests/{old}.json",
    ]
    before = sum(info.size for info in store.list())
    apply(store, plan)
    after = sum(info.size for info in store.list())
    assert before - after == plan.bytes
    assert (len(list(store.list())), after) == plan.kept
    assert doomed(store) == []


def test_what_a_kept_manifest_was_made_from_stays_all_the_way_back(store: Store) -> None:
    extracted = commit(store, "extracted_text/S", "e")
    filtered = commit(store, "filtered_text/S", "f", inputs=[extracted])
    commit(store, "scored_text/S", "s", inputs=[filtered])
    commit(store, "extracted_text/S", "e2")
    commit(store, "filtered_text/S", "f2")
    assert doomed(store) == []
    commit(store, "scored_text/S", "s2")
    assert {key.split("/")[0] for key in doomed(store)} == {
        "extracted_text", "filtered_text", "scored_text",
    }  # fmt: skip


@pytest.mark.parametrize("pin", ["checkpoints/run-1/run.json", "runs/run-1.yaml"])
def test_what_a_run_pins_stays(store: Store, pin: str) -> None:
    old = commit(store, "mixture", "old")
    commit(store, "mixture", "new")
    store.write(pin, json.dumps({"content": {"inputs": [{"hash": old}]}}).encode())
    assert doomed(store) == []
    store.delete([pin])
    assert len(doomed(store)) == 4


def test_the_young_stay(store: Store) -> None:
    commit(store, "filtered_text/S", "now")
    commit(store, "filtered_text/S", "not yet", current=False)
    plan = plan_prune(store)
    assert plan.deletions == []
    assert plan.young[0] == 4
    assert len(plan_prune(store, grace_seconds=0, now=time.time() + 1).deletions) == 4


def test_the_superseded_go_at_once(store: Store) -> None:
    commit(store, "filtered_text/S", "old")
    commit(store, "filtered_text/S", "new")
    assert len(plan_prune(store).deletions) == 4


def test_parts_without_a_receipt_go_and_foreign_files_stay(store: Store) -> None:
    commit(store, "filtered_text/S", "a")
    store.write("filtered_text/S/part-lost.parquet", b"x")
    store.write("filtered_text/S/signals/part-lost.parquet", b"x")
    for foreign in ("notes.txt", "filtered_text/S/notes.txt", "elsewhere/part-1.parquet", "part-0"):
        store.write(foreign, b"mine")
    assert doomed(store) == [
        "filtered_text/S/part-lost.parquet",
        "filtered_text/S/signals/part-lost.parquet",
    ]


def test_files_that_a_killed_stage_published_before_its_receipt_go(store: Store) -> None:
    commit(store, "token_shards/S", "a")
    commit(store, "quality_classifier", "b")
    lost = [
        "quality_classifier/model-0123456789abcdef01234567.bin",
        "token_shards/S/S-00001-8d4c22b0-held_out.bin",
        "token_shards/S/S-00001-8d4c22b0.docs.parquet",
        "token_shards/S/signed/part-1.parquet",
    ]
    for key in [*lost, "quality_classifier/model.bin", "token_shards/S/S-00001.bin"]:
        store.write(key, b"x")
    assert doomed(store) == lost


def test_files_of_any_name_go_when_only_an_old_receipt_names_them(store: Store) -> None:
    commit(store, "token_shards/S", "a")
    store.write("token_shards/S/x.bin", b"tokens")
    receipt = {"entries": {"files": [{"key": "k", "path": "x.bin"}]}}
    store.write("token_shards/S/receipts/k.json", json.dumps(receipt).encode())
    assert doomed(store) == ["token_shards/S/receipts/k.json", "token_shards/S/x.bin"]


def test_a_part_that_old_and_new_share_stays(store: Store) -> None:
    commit(store, "filtered_text/S", "same")
    commit(store, "filtered_text/S", "same", inputs=["0" * 64])
    assert [key.split("/")[2] for key in doomed(store)] == ["manifests"]


@pytest.mark.parametrize("damage", ["unreadable", "missing"])
def test_a_folder_whose_current_manifest_cannot_be_read_is_left_alone(
    store: Store, damage: str
) -> None:
    name = commit(store, "filtered_text/S", "a")
    store.write("filtered_text/S/part-lost.parquet", b"x")
    key = f"filtered_text/S/manifests/{name}.json"
    if damage == "missing":
        store.delete([key])
    else:
        store.write(key, b"{")
    plan = plan_prune(store, now=LATER)
    assert plan.deletions == []
    assert plan.skipped == ["filtered_text/S/"]


def test_unfinished_writes_go_when_they_are_old(store: Store, tmp_path: Path) -> None:
    commit(store, "filtered_text/S", "a")
    half = tmp_path / "root/filtered_text/S/.tmp-0123"
    half.write_bytes(b"half")
    os.utime(half, (LATER - 7200, LATER - 7200))
    plan = plan_prune(store, now=LATER)
    assert plan.deletions == [("filtered_text/S/.tmp-0123", 4)]
    apply(store, plan)
    assert not half.exists()


def test_a_plan_is_void_when_a_pointer_moved(store: Store) -> None:
    commit(store, "filtered_text/S", "a")
    commit(store, "filtered_text/S", "b")
    plan = plan_prune(store, now=LATER)
    commit(store, "filtered_text/S", "a")
    with pytest.raises(ConflictError, match="moved since the plan"):
        apply(store, plan)
    assert store.exists("filtered_text/S/part-a.parquet")


def test_the_same_on_s3(tmp_path: Path) -> None:
    with moto_server() as server, server.environment():
        store = open_store(f"s3://{server.bucket()}/root")
        commit(store, "filtered_text/S", "old")
        commit(store, "filtered_text/S", "new")
        plan = plan_prune(store, now=LATER)
        assert len(plan.deletions) == 4
        apply(store, plan)
        assert doomed(store) == []
        assert store.read("filtered_text/S/part-new.parquet") == b"new"
