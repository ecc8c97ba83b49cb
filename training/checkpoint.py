"""Checkpoints that count only when they are complete and verified.

All ranks write `checkpoints/step-N.tmp/` (torch.distributed.checkpoint), then the first rank adds
`checkpoint.json` (checksum and size of every file, progress, identity), reads everything back,
renames the folder to `step-N` and moves the pointer `latest`. Older ones are removed only after
that. The framework's own loader accepts a flipped byte, hence the checksums.

A checkpoint can be loaded at any number of processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.state_dict_saver import save as save_state
from torch.distributed.tensor import DTensor

from training.errors import TrainingError
from training.faults import fault
from training.model import Decoder
from training.shards import checksum
from training.verify import (
    LATEST,
    RECORD,
    Found,
    complete_steps,
    fault_of,
    find,
    read_record,
    step_of,
)
from training.world import World, agree


class Checkpoints:
    """The checkpoints of one run; every method is called by all ranks."""

    def __init__(self, folder: Path, world: World, *, keep: int, stamps: Mapping[str, str]) -> None:
        self.folder, self.world, self.keep = folder, world, keep
        self.stamps = dict(stamps)
        """Hashes that must not change under a run: configuration, tokenizer, data."""

    def newest(self) -> Found:
        """The newest good checkpoint, the same on every rank."""
        found = agree(find(self.folder) if self.world.first else None, self.world)
        assert isinstance(found, Found)
        return found

    def save(
        self, model: Decoder, optimizer: torch.optim.Optimizer, step: int, progress: dict[str, Any]
    ) -> str:
        """Write, verify and publish `step-N`; returns its identity.

        `progress` (JSON values) comes back in the record that `load` returns. Raises TrainingError
        on all ranks where the disk refuses; nothing of it is then visible.
        """
        final = self.folder / f"step-{step}"
        temporary = self.folder / f"step-{step}.tmp"
        state = state_of(model, optimizer)
        fault("training.checkpoint.start")
        why = agree(self._clear() if self.world.first else None, self.world)
        try:
            if why is None:
                save_state(state, checkpoint_id=temporary)
        except (OSError, CheckpointException) as error:
            why = str(error).strip().splitlines()[-1]
        fault("training.checkpoint.written")
        identity = identity_of(state)
        if self.world.first and why is None:
            record = {"step": step, "identity": identity, "progress": progress}
            why = self._publish(temporary, final, record | {"stamps": self.stamps})
        if (why := agree(why, self.world)) is not None:
            message = f"checkpoint {final} could not be saved: {why}"
            raise TrainingError(message, hint="free disk space, then start the run again")
        return identity

    def _clear(self) -> str | None:
        """Remove what killed processes left behind; returns why not."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in [*self.folder.glob("step-*.tmp"), *self.folder.glob("step-*.old")]:
                shutil.rmtree(path)
        except OSError as error:
            return f"{error.strerror or error} ({error.filename})"
        return None

    def _publish(self, temporary: Path, final: Path, record: dict[str, Any]) -> str | None:
        """Record, verify, rename, point, purge; returns why not."""
        try:
            files = sorted(p for p in temporary.iterdir() if p.is_file())
            record["files"] = {
                p.name: {"bytes": p.stat().st_size, "checksum": checksum(p)} for p in files
            }
            write_text(temporary / RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")
            if (why := fault_of(temporary)) is not None:
                return why
            sync_folder(temporary)
            fault("training.checkpoint.before_rename")
            if final.exists():  # a damaged one of the same step, from before a roll-back
                final.rename(final.with_name(f"{final.name}.old"))
            temporary.rename(final)
            sync_folder(self.folder)
            fault("training.checkpoint.after_rename")
            write_text(self.folder / LATEST, final.name + "\n")
            fault("training.checkpoint.after_pointer")
            self._purge(final)
            fault("training.checkpoint.after_purge")
        except OSError as error:
            return f"{error.strerror or error} ({error.filename})"
        return None

    def _purge(self, newest: Path) -> None:
        """Keep the newest `keep`, by step, up to the one just published; the rest goes.

        Newer ones than that can only be damaged: the run rolled back behind them.
        """
        older = [p for p in complete_steps(self.folder) if step_of(p) <= step_of(newest)]
        newer = [p for p in complete_steps(self.folder) if step_of(p) > step_of(newest)]
        for path in [*older[self.keep :], *newer, *self.folder.glob("step-*.old")]:
            gone = path.with_name(f"{path.name}.tmp")  # never half a checkpoint under a good name
            path.rename(gone)
            shutil.rmtree(gone)

    def load(self, path: Path, model: Decoder, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Weights and optimiser state from `path`; returns its record: `identity, progress, …`.

        Raises TrainingError where the checkpoint belongs to another configuration, tokenizer or
        data, naming which.
        """
        record = read_record(path)
        for name, value in self.stamps.items():
            if record["stamps"].get(name) != value:
                message = (
                    f"checkpoint {path} was made with another {name} "
                    f"({str(record['stamps'].get(name))[:12]}…, now {value[:12]}…)"
                )
                hint = f"give the run another name, with `parent: {path.parents[1].name}@latest`"
                raise TrainingError(message, hint=hint)
        state = state_of(model, optimizer)
        load_state(state, checkpoint_id=path)
        set_state_dict(
            model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
        )
        return record


def load_weights(path: Path, model: Decoder, *, no_dist: bool = True) -> None:
    """The weights of a checkpoint into a model, in this one process or on all ranks."""
    if (why := fault_of(path)) is not None:
        message = f"checkpoint {path} cannot be used: {why}"
        raise TrainingError(message, hint="name another step, or let the run save a new one")
    state = {"model": model.state_dict()}
    with warnings.catch_warnings():
        # it says that one process is meant, which is so
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_state(state, checkpoint_id=path, no_dist=no_dist)
    model.load_state_dict(state["model"])


def state_of(model: Decoder, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What a checkpoint holds: weights and optimiser state by parameter name."""
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments}


def identity_of(state: Mapping[str, Any]) -> str:
    """SHA-256 over (name, dtype, shape, bytes) of all tensors, by name: equal content, equal hash.

    Sharded tensors are gathered one at a time, so all ranks call this together.
    """
    total = hashlib.sha256()
    for name, tensor in sorted(_tensors(state, ""), key=lambda pair: pair[0]):
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        data = whole.detach().cpu().contiguous()
        head = f"{name} {str(data.dtype).removeprefix('torch.')} {list(data.shape)}\n"
        total.update(head.encode())
        total.update(hashlib.sha256(data.reshape(-1).view(torch.uint8).numpy().data).digest())
    return total.hexdigest()


def _tensors(state: Any, prefix: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(state, Tensor):
        yield prefix, state
    elif isinstance(state, Mapping):
        for key, value in state.items():
            yield from _tensors(value, f"{prefix}.{key}" if prefix else str(key))


def write_text(path: Path, text: str) -> None:
    """Write a file whole and synced: temporary name, then rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def sync_folder(path: Path) -> None:
    """Make renames inside a folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
