"""Which checkpoints of a folder count: complete ones whose files are as they were written.

Reads `checkpoint.json` (`training.saving.saver` writes it) and hashes files: SHA-256 takes a core a
second for 1 to 2 GB, so the newest one is looked at first, and an older one only where that fails.
No torch here, so that whoever copies checkpoints can verify them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.errors import TrainingError
from training.shards import checksum

STEP = re.compile(r"step-(\d+)")
RECORD = "checkpoint.json"
LATEST = "latest"
METADATA = ".metadata"


@dataclass(frozen=True)
class Found:
    """The newest good checkpoint of a folder, and what was passed over to reach it."""

    path: Path | None
    skipped: list[str] = field(default_factory=list)
    """One sentence for each newer one that does not count: its name and why."""

    @property
    def step(self) -> int:
        """Its step; 0 where there is none."""
        return step_of(self.path) if self.path else 0


def step_of(path: Path) -> int:
    """N of `step-N`."""
    match = STEP.fullmatch(path.name)
    return int(match.group(1)) if match else 0


def complete_steps(folder: Path) -> list[Path]:
    """The folders `step-N`, newest first; unfinished ones (`.tmp`) are not among them."""
    paths = [p for p in folder.glob("step-*") if p.is_dir() and STEP.fullmatch(p.name)]
    return sorted(paths, key=step_of, reverse=True)


def kept(steps: Iterable[int], keep: int, every: int | None) -> set[int]:
    """The steps that stay: the newest `keep`, and for good every one that `every` divides."""
    newest = sorted(steps, reverse=True)
    return set(newest[:keep]) | {step for step in newest if every and step % every == 0}


def find(folder: Path) -> Found:
    """The newest checkpoint whose files all are as they were written.

    Where no checkpoint at all has our record (they come from another program), the newest that has
    the framework's metadata and no empty file counts.
    """
    paths = complete_steps(folder)
    foreign = is_foreign(paths)
    skipped: list[str] = []
    for path in paths:
        why = fault_of_foreign(path) if foreign else fault_of(path)
        if why is None:
            return Found(path, skipped)
        skipped.append(passed_over(path, why))
    return Found(None, skipped)


def passed_over(path: Path, why: str) -> str:
    """The sentence about a checkpoint that does not count."""
    return f"{path.name} was skipped: {why}"


def is_foreign(paths: Collection[Path]) -> bool:
    """Whether none of these checkpoints was written here."""
    return not any((path / RECORD).exists() for path in paths)


def fault_of(path: Path) -> str | None:
    """Why a checkpoint does not count, or None. Reads every byte, some files at once."""
    try:
        files = files_of(path)
    except TrainingError as error:
        return error.message
    if (why := fault_of_sizes(path, files)) is not None:
        return why
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        whys = pool.map(lambda name: fault_of_bytes(path, {name: files[name]}), sorted(files))
        return next((why for why in whys if why is not None), None)


def files_of(path: Path) -> dict[str, dict[str, Any]]:
    """Name -> `bytes` and `checksum` of each file; TrainingError where nothing tells."""
    return dict(read_record(path)["files"])


def fault_of_sizes(path: Path, files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Which file is absent or cut. Reads nothing."""
    for name, told in files.items():
        file = path / name
        if not file.exists():
            return f"{name} is absent"
        if file.stat().st_size != told["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, not {told['bytes']}"
    return None


def fault_of_bytes(path: Path, files: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Which of these files has other bytes than it was written with. Reads all of them."""
    for name, told in files.items():
        try:
            if checksum(path / name) != told["checksum"]:
                return f"{name} has another checksum than when it was written"
        except OSError as error:
            return f"{name} cannot be read: {error.strerror or error}"
    return None


def shares(sizes: Mapping[str, int], parts: int) -> list[list[str]]:
    """Names in `parts` lists of about equal size: each, the largest first, to the smallest list."""
    lists: list[list[str]] = [[] for _ in range(parts)]
    totals = [0] * parts
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        smallest = totals.index(min(totals))
        lists[smallest].append(name)
        totals[smallest] += sizes[name]
    return lists


def fault_of_foreign(path: Path) -> str | None:
    """The same for a checkpoint without our record: only absence and emptiness can be seen."""
    if not (path / METADATA).exists():
        return f"{METADATA} is absent, so it was never completed"
    shards = list(path.glob("*.distcp"))
    if not shards or any(not file.stat().st_size for file in shards):
        return "a file of tensors is absent or empty"
    return None


def read_record(path: Path) -> dict[str, Any]:
    """`checkpoint.json` of a checkpoint; TrainingError where it is absent or damaged."""
    try:
        record = dict(json.loads((path / RECORD).read_bytes()))
        files = {name: (told["bytes"], told["checksum"]) for name, told in record["files"].items()}
        _ = record["step"], dict(record["progress"]), dict(record["stamps"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{RECORD} is absent or damaged"
        raise TrainingError(message, hint="the checkpoint was not completed") from error
    if METADATA not in files:
        message = f"{RECORD} names no {METADATA}"
        raise TrainingError(message, hint="the checkpoint was not completed")
    return record


def rewinds_of(path: Path) -> int:
    """How many rewinds the run of a checkpoint had behind it; a damaged one counts as none."""
    try:
        return int(read_record(path)["progress"].get("rewinds", 0))
    except (TrainingError, TypeError, ValueError):
        return 0
