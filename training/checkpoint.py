"""Checkpoints of a run: saved beside training, counted only when verified, loaded in any layout.

`save` copies the state to host memory and returns; a thread of each rank writes, verifies and
publishes it (`training.saving.saver`) while training goes on. One save is under way at a time: the
next one waits for it, and how long the step's thread stood still is counted. What became of a save
is known on all ranks at the same step, where the loop asks (`finished`).

Where the disk refuses, the earlier checkpoints stay and the run stops with that sentence;
`max_failed` saves in a row may fail before that.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict_loader import load as load_state

from training.errors import TrainingError
from training.saving.files import reason, write_text
from training.saving.saver import Place, commit, remove
from training.saving.state import Staging, State, generators, other_model, restore, state_of
from training.saving.together import first_of, first_says, shared_fault
from training.verify import (
    LATEST,
    Found,
    complete_steps,
    fault_of,
    find,
    is_foreign,
    passed_over,
    read_record,
    step_of,
)
from training.world import World

SAVE_TIMEOUT = timedelta(minutes=30)
"""How long savers wait for each other: one rank may write much longer than another."""
POLL_SECONDS = 0.02


@dataclass(frozen=True)
class Saved:
    """What became of a save."""

    step: int
    path: str
    identity: str
    """Hash of the tensors; empty where the save failed."""
    problem: str
    """Why it is not there; empty where it is."""
    seconds: float
    """From the call to the end."""
    stall_seconds: float
    """How long the call kept the step's thread."""

    def summary(self) -> dict[str, Any]:
        """What names one that is there."""
        return {"step": self.step, "path": self.path, "identity": self.identity}

    def error(self) -> TrainingError:
        """The error of a save that failed."""
        message = f"checkpoint {self.path} could not be saved: {self.problem}"
        return TrainingError(message, hint="free disk space, then start the run again")


class Checkpoints:
    """The checkpoints of one run; every method but `abandon` is called by all ranks."""

    def __init__(
        self,
        folder: Path,
        world: World,
        *,
        keep: int,
        stamps: Mapping[str, str],
        every: int | None = None,
        max_failed: int = 0,
    ) -> None:
        """`keep` newest ones stay, and each whose step `every` divides.

        `stamps`: hashes that must not change under a run, by what they are of.
        """
        self.folder, self.world, self.keep, self.every = folder, world, keep, every
        self.stamps, self.max_failed = dict(stamps), max_failed
        self.stall_seconds = 0.0
        """How long saves have kept the step's thread so far."""
        self._savers = dist.new_group(backend="gloo", timeout=SAVE_TIMEOUT)
        self._askers = dist.new_group(backend="gloo", timeout=SAVE_TIMEOUT)
        self._staging = Staging(world.device)
        self._thread: threading.Thread | None = None
        self._outcome: Saved | BaseException | None = None
        self._failed = 0

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        step: int,
        progress: Mapping[str, Any],
        extra: Mapping[str, Tensor] | None = None,
    ) -> list[Saved]:
        """Begin to save `step-N`; returns what became of the save before, as `finished` does.

        `progress` (JSON values) and `extra` (tensors, equal on all ranks) come back from `load`.
        All of it is copied before this returns.
        """
        began = time.monotonic()
        before = self._wait()
        state = state_of(model, optimizer)
        state |= {"extra": dict(extra or {}), "rng": generators(self.world.rank, self.world.device)}
        staged = self._staging.copy(state)
        record = {"step": step, "progress": json.loads(json.dumps(progress)), "stamps": self.stamps}
        stalled = time.monotonic() - began
        self.stall_seconds += stalled
        self._thread = threading.Thread(
            target=self._run, args=(staged, record, began, stalled), daemon=True, name="saver"
        )
        self._thread.start()
        return before

    def _place(self) -> Place:
        world = self.world
        return Place(self.folder, self.keep, self.every, world.rank, world.size, self._savers)

    def _run(self, staged: State, record: dict[str, Any], began: float, stalled: float) -> None:
        """The saver's thread."""
        try:
            if self.world.device.type == "cuda":
                torch.cuda.set_device(self.world.device)  # a new thread begins with the first GPU
            self._staging.wait()
            why, identity = commit(staged, record, self._place())
            path = self.folder / f"step-{record['step']}"
            seconds = time.monotonic() - began
            problem = "" if why is None else why
            identity = identity if why is None else ""
            self._outcome = Saved(record["step"], str(path), identity, problem, seconds, stalled)
        except BaseException as error:  # it is raised by the step's thread
            self._outcome = error

    def finished(self) -> list[Saved]:
        """The save that ended since the last call, if one did; alike on all ranks, never waiting.

        Raises TrainingError on all ranks where it failed and no more failures are allowed.
        """
        if self._thread is None:
            return []
        ended = not self._thread.is_alive()
        crashed = ended and isinstance(self._outcome, BaseException)
        told = torch.tensor([int(ended), int(crashed)])
        dist.all_reduce(told, group=self._askers)
        if told[1]:
            self._crashed()
        return [self._take()] if int(told[0]) == self.world.size else []

    def wait(self) -> list[Saved]:
        """As `finished`, but wait for a save that is under way; the time counts as stall."""
        began = time.monotonic()
        found = self._wait()
        self.stall_seconds += time.monotonic() - began
        return found

    def _wait(self) -> list[Saved]:
        found: list[Saved] = []
        while self._thread is not None:
            self._thread.join(POLL_SECONDS)
            found += self.finished()
        return found

    def abandon(self, seconds: float) -> None:
        """Before a failing rank leaves: let its saver end, for at most that long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _take(self) -> Saved:
        saved, self._thread, self._outcome = self._outcome, None, None
        assert isinstance(saved, Saved)
        self._failed = self._failed + 1 if saved.problem else 0
        if self._failed > self.max_failed:
            raise saved.error()
        return saved

    def _crashed(self) -> None:
        error, self._thread, self._outcome = self._outcome, None, None
        if isinstance(error, BaseException):
            raise error
        message = "saving a checkpoint failed on another rank"
        raise TrainingError(message, hint="its own message tells why")

    def newest(self, until: int | None = None) -> Found:
        """The newest good checkpoint (with `until`: not after that step), alike on every rank.

        The files of a candidate are hashed by all ranks together. No save may be under way: its
        threads use the same process group.
        """
        assert self._thread is None, "wait for the save that is under way"
        found = first_says(self._candidates(until) if self.world.first else None, self._savers)
        if isinstance(found, Found):
            return found
        skipped: list[str] = []
        for path in found:
            if (why := shared_fault(path, self._savers)) is None:
                return Found(path, skipped)
            skipped.append(passed_over(path, why))
        return Found(None, skipped)

    def _candidates(self, until: int | None) -> Found | list[Path]:
        paths = complete_steps(self.folder)
        if until is None and is_foreign(paths):
            return find(self.folder)
        return [path for path in paths if until is None or step_of(path) <= until]

    def discard_after(self, step: int) -> None:
        """Remove checkpoints after a step, as they are of a history that a rewind took back."""
        self._wait()
        why = None
        if self.world.first:
            try:
                paths = complete_steps(self.folder)
                earlier = [path for path in paths if step_of(path) <= step]
                if earlier:
                    write_text(self.folder / LATEST, f"{earlier[0].name}\n")
                for path in paths[: len(paths) - len(earlier)]:
                    remove(path)
            except OSError as error:
                why = reason(error)
        if (why := first_says(why, self._savers)) is not None:
            message = f"checkpoints after step {step} could not be removed: {why}"
            raise TrainingError(message, hint="remove them by hand, then start the run again")

    def load(
        self,
        path: Path,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        accepted: Collection[str] = (),
    ) -> dict[str, Any]:
        """Weights, moments and generators from `path`; returns its record: `identity, progress, …`.

        The record's `extra` holds the tensors that `save` got, in host memory. Raises TrainingError
        before anything is loaded where the checkpoint belongs to another configuration, tokenizer
        or data, naming which, unless `accepted` names it; and where it is of another model.
        """
        assert self._thread is None, "wait for the save that is under way"
        record = read_record(path)
        for name, value in self.stamps.items():
            if record["stamps"].get(name) != value and name not in accepted:
                message = (
                    f"checkpoint {path} was made with another {name} "
                    f"({str(record['stamps'].get(name))[:12]}…, now {value[:12]}…)"
                )
                parent = f"give the run another name, with `parent: {path.parents[1].name}@latest`"
                hint = f"{parent}; or, knowing what it does, set `accept_change: [{name}]`"
                raise TrainingError(message, hint=hint)
        check_model(path, first_of(other_model(path, model), self._savers))
        extra = restore(path, model, optimizer, self._savers, self.world.rank)
        return record | {"extra": extra}


def check_model(path: Path, why: str | None) -> None:
    """TrainingError where a checkpoint is of a model of other shapes; see `other_model`."""
    if why is not None:
        message = f"checkpoint {path} is of another model: {why}"
        raise TrainingError(message, hint="use the recipe, model and tokenizer it was made with")


def load_weights(path: Path, model: nn.Module, *, no_dist: bool = True) -> None:
    """The weights of a checkpoint into a model, in this one process or on all ranks."""
    why = fault_of(path) if no_dist else shared_fault(path, None)
    if why is not None:
        message = f"checkpoint {path} cannot be used: {why}"
        raise TrainingError(message, hint="name another step, or let the run save a new one")
    differs = other_model(path, model)
    check_model(path, differs if no_dist else first_of(differs, None))
    state = {"model": model.state_dict()}
    with warnings.catch_warnings():
        # it says that one process is meant, which is so
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load_state(state, checkpoint_id=path, no_dist=no_dist)
    model.load_state_dict(state["model"])
