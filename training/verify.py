"""Which checkpoints of a folder count: complete ones whose files are as they were written.

Reads `checkpoint.json` (`training.checkpoint` writes it) and hashes files. No torch here, so that
whoever copies checkpoints can verify them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.errors import TrainingError
from training.shards import checksum

STEP = re.compile(r"step-(\d+)")
RECORD = "checkpoint.json"
LATEST = "latest"


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


def find(folder: Path) -> Found:
    """The newest checkpoint whose files all are as they were written.

    Where no checkpoint at all has our record (they come from another program), the newest that has
    the framework's metadata and no empty file counts.
    """
    paths = complete_steps(folder)
    foreign = not any((path / RECORD).exists() for path in paths)
    skipped: list[str] = []
    for path in paths:
        why = fault_of_foreign(path) if foreign else fault_of(path)
        if why is None:
            return Found(path, skipped)
        skipped.append(f"{path.name} was skipped: {why}")
    return Found(None, skipped)


def fault_of(path: Path) -> str | None:
    """Why a checkpoint does not count, or None. Reads every byte."""
    try:
        record = read_record(path)
    except TrainingError as error:
        return error.message
    for name, told in record["files"].items():
        file = path / name
        if not file.exists():
            return f"{name} is absent"
        if file.stat().st_size != told["bytes"]:
            return f"{name} has {file.stat().st_size} bytes, not {told['bytes']}"
        if checksum(file) != told["checksum"]:
            return f"{name} has another checksum than when it was written"
    return None


def fault_of_foreign(path: Path) -> str | None:
    """The same for a checkpoint without our record: only absence and emptiness can be seen."""
    if not (path / ".metadata").exists():
        return ".metadata is absent, so it was never completed"
    shards = list(path.glob("*.distcp"))
    if not shards or any(not file.stat().st_size for file in shards):
        return "a file of tensors is absent or empty"
    return None


def read_record(path: Path) -> dict[str, Any]:
    """`checkpoint.json` of a checkpoint; TrainingError where it is absent or damaged."""
    try:
        record = json.loads((path / RECORD).read_bytes())
        files = set(record["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{RECORD} is absent or damaged"
        raise TrainingError(message, hint="the checkpoint was not completed") from error
    if ".metadata" not in files:
        message = f"{RECORD} names no .metadata"
        raise TrainingError(message, hint="the checkpoint was not completed")
    return dict(record)
