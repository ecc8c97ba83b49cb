"""What the ranks of a group tell each other about checkpoints, as Python values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist

from training.errors import TrainingError
from training.verify import fault_of_bytes, fault_of_sizes, files_of, shares


def first_says(value: Any, group: dist.ProcessGroup | None) -> Any:
    """What the first rank says, on all ranks."""
    box: list[Any] = [value]
    dist.broadcast_object_list(box, src=0, group=group)
    return box[0]


def all_say(value: Any, group: dist.ProcessGroup | None) -> list[Any]:
    """What every rank says, by rank."""
    box: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(box, value, group=group)
    return box


def shared_fault(path: Path, group: dist.ProcessGroup | None) -> str | None:
    """Why a checkpoint does not count, or None; the ranks of a group hash a share of it each."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    try:
        files = files_of(path)
        mine = shares({name: told["bytes"] for name, told in files.items()}, size)[rank]
        why = fault_of_sizes(path, files)
        why = why or fault_of_bytes(path, {name: files[name] for name in mine})
    except TrainingError as error:
        why = error.message
    return first_of(why, group)


def first_of(why: str | None, group: dist.ProcessGroup | None) -> str | None:
    """What the first rank that found something says, on all ranks."""
    return next((one for one in all_say(why, group) if one is not None), None)
