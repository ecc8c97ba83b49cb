"""What nothing references any more, and its removal.

Kept is what a current manifest names, what the manifests that those read (by hash, all the way
back) name, what training runs pin, and whatever is younger than the grace period and was not yet
superseded by a later pointer, since a run may be writing it. Of the rest only what stages wrote
goes: manifests, receipts, parts, files that a manifest or receipt of their folder names, and
unfinished writes. Other files are never touched.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import ConflictError
from pipeline.manifest import KINDS
from pipeline.store import ObjectInfo, Store

GRACE_SECONDS = 3600.0
HASH = re.compile(r"\b[0-9a-f]{64}\b")
OURS = re.compile(
    r"(?P<folder>(?:[^/]+/)+)"
    r"(?:(?P<pointer>current)|manifests/(?P<manifest>[0-9a-f]{64})\.json"
    r"|(?P<receipt>receipts/[^/]+\.json)"
    rf"|(?P<part>(?:(?:{'|'.join(KINDS)}|signed)/)?part-[^/]+"
    r"|[^/]+-[0-9a-f]{24}\.(?:bin|json)"  # a model, a tokenizer, a plan
    r"|[^/]+-\d{5,}-[0-9a-f]{8}(?:-held_out)?\.(?:bin|idx|json|docs\.parquet)))"  # a shard
)
PINS = re.compile(r"checkpoints/[^/]+/[^/]+\.json|runs/[^/]+\.ya?ml")
"""Files of training runs; every manifest hash in them is pinned."""


@dataclass
class Folder:
    """One dataset folder as it stands in the listing."""

    name: str
    pointer: str | None = None
    moved: float = 0.0
    """When the pointer was moved: other manifests that are older than that were superseded."""
    manifests: dict[str, ObjectInfo] = field(default_factory=dict)
    receipts: dict[str, ObjectInfo] = field(default_factory=dict)


@dataclass(frozen=True)
class PrunePlan:
    """What would go, and what stays."""

    deletions: list[tuple[str, int]]
    """(key, bytes), unfinished writes among them, in the order in which they would go."""
    kept: tuple[int, int]
    """Objects and bytes that are referenced or not ours."""
    young: tuple[int, int]
    """Objects and bytes that only the grace period keeps."""
    skipped: list[str]
    """Folders left alone because a manifest that is needed cannot be read."""
    pointers: dict[str, str]
    """Pointer -> the manifest it named when the plan was made."""
    leftovers: list[ObjectInfo]
    """The unfinished writes among the deletions."""

    @property
    def bytes(self) -> int:
        """What would be freed."""
        return sum(size for _, size in self.deletions)


def plan_prune(
    store: Store, *, grace_seconds: float = GRACE_SECONDS, now: float | None = None
) -> PrunePlan:
    """Look through the store at a root, delete nothing. Reads every manifest once."""
    objects = {info.key: info for info in store.list()}
    folders = _folders(store, objects)
    contents = _contents(store, folders)
    retained = _retained(folders, contents, _pinned(store, objects))
    skipped = sorted(
        folder.name
        for folder in folders.values()
        if any(contents.get(name) is None for name in folder.manifests if name in retained)
        or (folder.pointer and folder.pointer not in folder.manifests)
    )
    referenced, known, superseded = _references(store, folders, contents, retained)
    limit = (time.time() if now is None else now) - grace_seconds
    doomed: list[ObjectInfo] = []
    young: list[ObjectInfo] = []
    for key, info in objects.items():
        folder = _folder_of(key, folders)
        if folder is None or folder.name in skipped or key in referenced or not _ours(key, known):
            continue
        (doomed if key in superseded or _older(info, limit) else young).append(info)
    leftovers = [info for info in store.leftovers() if _older(info, limit)]
    going = sorted(doomed, key=lambda info: _order(info.key)) + leftovers
    gone = {info.key for info in doomed} | {info.key for info in young}
    return PrunePlan(
        deletions=[(info.key, info.size) for info in going],
        kept=_total([info for key, info in objects.items() if key not in gone]),
        young=_total(young),
        skipped=skipped,
        pointers={f"{f.name}current": f.pointer for f in folders.values() if f.pointer},
        leftovers=leftovers,
    )


def apply(store: Store, plan: PrunePlan) -> None:
    """Delete what the plan names. Raises ConflictError where a dataset was committed since."""
    for key, name in plan.pointers.items():
        if not store.exists(key) or store.read(key).decode().strip() != name:
            message = f"{store.url}/{key} was moved since the plan was made"
            raise ConflictError(message, hint="make the plan again")
    unfinished = {leftover.key for leftover in plan.leftovers}
    store.delete(key for key, _ in plan.deletions if key not in unfinished)
    for leftover in plan.leftovers:
        store.discard(leftover)


def _folders(store: Store, objects: dict[str, ObjectInfo]) -> dict[str, Folder]:
    """Folders that hold a pointer, a manifest or a receipt."""
    folders: dict[str, Folder] = {}
    for key, info in objects.items():
        match = OURS.fullmatch(key)
        if match is None or match["part"]:
            continue
        folder = folders.setdefault(match["folder"], Folder(match["folder"]))
        if match["pointer"]:
            folder.pointer = store.read(key).decode(errors="replace").strip()
            folder.moved = info.modified or 0.0
        elif match["manifest"]:
            folder.manifests[match["manifest"]] = info
        else:
            folder.receipts[key] = info
    return folders


def _contents(store: Store, folders: dict[str, Folder]) -> dict[str, dict[str, Any] | None]:
    """Manifest hash -> its content; None where it cannot be read."""
    return {
        name: _json(store, info.key, "content")
        for folder in folders.values()
        for name, info in folder.manifests.items()
    }


def _json(store: Store, key: str, field_name: str) -> dict[str, Any] | None:
    try:
        value = json.loads(store.read(key))[field_name]
    except (ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, dict) else None


def _pinned(store: Store, objects: dict[str, ObjectInfo]) -> set[str]:
    """Every hash in the files of training runs."""
    pins = [key for key in objects if PINS.fullmatch(key)]
    return {
        found for key in pins for found in HASH.findall(store.read(key).decode(errors="replace"))
    }


def _retained(
    folders: dict[str, Folder], contents: dict[str, dict[str, Any] | None], pinned: set[str]
) -> set[str]:
    """Current and pinned manifests and all that they were made from."""
    waiting = {folder.pointer for folder in folders.values() if folder.pointer} | pinned
    retained: set[str] = set()
    while waiting:
        name = waiting.pop()
        retained.add(name)
        inputs = (contents.get(name) or {}).get("inputs", [])
        read = {one["hash"] for one in inputs if isinstance(one, dict) and one.get("hash")}
        waiting |= read - retained
    return retained


def _entries(lists: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Whatever looks like an entry of a file, in any list of a manifest or receipt."""
    for value in lists.values():
        if isinstance(value, list):
            yield from (one for one in value if isinstance(one, dict) and "path" in one)


def _references(
    store: Store,
    folders: dict[str, Folder],
    contents: dict[str, dict[str, Any] | None],
    retained: set[str],
) -> tuple[set[str], set[str], set[str]]:
    """Keys that retained manifests need, keys that any manifest or receipt names, and those of
    manifests that were current once and are needed no more.
    """
    referenced: set[str] = set()
    known: set[str] = set()
    superseded: set[str] = set()
    for folder in folders.values():
        for name, info in folder.manifests.items():
            entries = list(_entries(contents[name] or {}))
            paths = {folder.name + entry["path"] for entry in entries}
            known |= paths
            receipts = {f"{folder.name}receipts/{entry.get('key')}.json" for entry in entries}
            if name in retained:
                referenced |= paths | receipts | {info.key}
            elif info.modified is not None and info.modified < folder.moved:
                superseded |= paths | receipts | {info.key}
        for key in folder.receipts:
            entries = list(_entries(_json(store, key, "entries") or {}))
            known |= {folder.name + entry["path"] for entry in entries}
        referenced.add(f"{folder.name}current")
    return referenced, known, superseded


def _folder_of(key: str, folders: dict[str, Folder]) -> Folder | None:
    """The innermost dataset folder that a key lies in."""
    while "/" in key.rstrip("/"):
        key = key.rstrip("/").rpartition("/")[0] + "/"
        if key in folders:
            return folders[key]
    return None


def _ours(key: str, known: set[str]) -> bool:
    return key in known or OURS.fullmatch(key) is not None


def _older(info: ObjectInfo, limit: float) -> bool:
    return info.modified is not None and info.modified <= limit


def _order(key: str) -> tuple[int, str]:
    """Receipts first, so that none ever promises a file that is gone; manifests last."""
    if "/receipts/" in key:
        return 0, key
    return (2 if "/manifests/" in key else 1), key


def _total(infos: list[ObjectInfo]) -> tuple[int, int]:
    return len(infos), sum(info.size for info in infos)
