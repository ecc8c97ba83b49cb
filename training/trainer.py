"""What one rank holds during a run: one step, saving and resuming. The loop is in `train`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.checkpoint import Checkpoints, Saved, load_weights
from training.config import RunConfig
from training.course import Course
from training.data import Batch
from training.errors import TrainingError
from training.evaluate import HeldOut, Score
from training.guards import Guard
from training.model import Decoder
from training.optim import build_optimizer, set_rate
from training.parallel import parallelise
from training.plan import Data, earlier_plan
from training.schedule import learning_rate
from training.verify import find, read_record
from training.vocabulary import Vocabulary
from training.world import World


class Trainer:
    """Model, optimiser, data and checkpoints of one rank, and the step over them."""

    def __init__(self, config: RunConfig, world: World, vocabulary: Vocabulary, data: Data) -> None:
        self.config, self.world, self.vocabulary, self.data = config, world, vocabulary, data
        model = Decoder(config.model, vocabulary.size, config.context)
        model.init_weights(config.seed)
        self.parallel = parallelise(model.to(world.device), world, config)
        self.model = self.parallel.model
        if config.parent:
            load_weights(parent_of(config), self.model, no_dist=False)
        self.optimizer = build_optimizer(self.model, config)
        self.guard = Guard(config.clip, config.max_skips, world.device)
        self.held_out = HeldOut(data.held_out, vocabulary, limit=config.eval_rows)
        stamps = {"configuration": config.config_hash(), "tokenizer": vocabulary.checksum}
        self.checkpoints = Checkpoints(
            config.out / "checkpoints",
            world,
            keep=config.keep_checkpoints,
            every=config.keep_every,
            max_failed=config.max_failed_saves,
            stamps=stamps | {"data": data.checksum},
        )
        self.course = Course(config)
        self.step, self.tokens, self.finished = 0, 0, False
        self.skipped: list[int] = []
        self.saved: dict[str, Any] = {}

    def resume(self) -> list[str]:
        """Go to the newest good checkpoint, if any; returns what to tell about it."""
        found = self.checkpoints.newest()
        if found.path is None:
            return [*found.skipped, f"started from {self.config.parent or 'new weights'}"]
        self._check_data(found.path)
        record = self.checkpoints.load(
            found.path, self.model, self.optimizer, self.config.accept_change
        )
        progress = record["progress"]
        self.step, self.tokens = found.step, progress["tokens"]
        self.skipped, self.finished = progress["skipped"], progress["finished"]
        self.guard.in_row.fill_(progress["skipped_in_row"])
        self.saved = {"step": found.step, "path": str(found.path), "identity": record["identity"]}
        return [*found.skipped, f"resumed from {found.path.name}"]

    def _check_data(self, path: Path) -> None:
        """TrainingError that names the plan to go on with, where a newer one took its place."""
        told = read_record(path)["stamps"].get("data")
        if told == self.data.checksum or "data" in self.config.accept_change:
            return
        if plan := earlier_plan(self.config, self.vocabulary, str(told)):
            message = f"checkpoint {path} was made with another plan than {self.config.plan} now is"
            hint = f"its plan is still there: set `plan: {plan}` in the run file to go on"
            raise TrainingError(message, hint=hint)

    def save(self) -> list[str]:
        """Begin to save a checkpoint of the step just done; `saved` names it once it is there.

        Returns what to tell of a save that failed before.
        """
        progress = {
            "next_sample": self.course.samples_until(self.step),
            "tokens": self.tokens,
            "skipped": self.skipped,
            "skipped_in_row": int(self.guard.in_row.item()),
            "finished": self.finished,
        }
        return self.note(self.checkpoints.save(self.model, self.optimizer, self.step, progress))

    def note(self, ended: list[Saved]) -> list[str]:
        """Remember the newest checkpoint that is there; returns what to tell of failed ones."""
        for one in ended:
            if not one.problem:
                self.saved = one.summary()
        return [str(one.error()) for one in ended if one.problem]

    def settle(self) -> None:
        """Wait for the save that is under way; TrainingError where it fails."""
        for one in self.checkpoints.wait():
            if one.problem:
                raise one.error()
            self.saved = one.summary()

    def advance(self) -> None:
        """Count the step that was just done."""
        self.step += 1
        self.tokens += self.course.batch_size(self.step) * self.config.context

    def rates(self, began: float) -> dict[str, float]:
        """Learning rate and speed of the step that began at `began` (monotonic seconds)."""
        tokens = self.config.global_batch * self.config.context
        seconds = max(time.monotonic() - began, 1e-9)
        return {
            "lr": self.optimizer.param_groups[0]["lr"],
            "tokens_per_second": round(tokens / seconds, 1),
        }

    def evaluate(self) -> Score:
        """Held-out score of the weights as they are."""
        self.model.eval()
        scores = self.held_out.score(
            self.model,
            self.world.device,
            batch=self.config.micro_batch,
            rank=self.world.rank,
            world=self.world.size,
        )
        self.model.train()
        return scores.total

    def train_step(self, stop: bool) -> tuple[dict[str, Tensor], Tensor]:
        """One step; returns its values (0-dimensional, equal on all ranks) and who asked to stop.

        The loss is the mean over the targets of the global batch, whatever rank they are on.
        """
        config, world, device = self.config, self.world, self.world.device
        indices = self.course.indices(self.step + 1)
        batch = self.data.loader.batch(indices, world.data_rank, world.data_size)
        fields = to_device(batch, device)
        counts, histogram = shared_counts(batch, fields, self.vocabulary.size, stop, world)
        set_rate(self.optimizer, learning_rate(self.step + 1, config))
        self.optimizer.zero_grad(set_to_none=True)
        sums, _ = self.parallel.accumulate(fields, (1 / counts[0]).float())
        world.sum_(sums)
        loss = sums[0] / counts[0]
        norm, skipped = self.guard.step(self.optimizer, loss)
        values = {
            "loss": loss,
            "grad_norm": norm,
            "entropy": sums[1] / sums[2],
            "batch_entropy": entropy(histogram),
            "skipped": skipped,
            "targets": counts[0],
            "batch_checksum": counts[2],
        }
        return values, counts[1]


def to_device(batch: Batch, device: torch.device) -> list[Tensor]:
    """Tokens, positions, documents, mask, targets of a batch as tensors."""
    arrays = (batch.tokens, batch.positions, batch.documents, batch.mask, batch.targets)
    return [torch.from_numpy(array).to(device, non_blocking=True) for array in arrays]


def shared_counts(
    batch: Batch, fields: list[Tensor], vocab_size: int, stop: bool, world: World
) -> tuple[Tensor, Tensor]:
    """Over all ranks, in one message: [targets, asked to stop, checksum] and token counts [V]."""
    tokens, documents = fields[0], fields[2]
    own = torch.tensor(
        [float(batch.mask.sum()), float(stop), float(batch.checksum)],
        dtype=torch.float64,
        device=tokens.device,
    )
    histogram = torch.bincount(tokens[documents >= 0], minlength=vocab_size).double()
    both = torch.cat([own, histogram])
    world.sum_(both)
    return both[:3], both[3:]


def entropy(histogram: Tensor) -> Tensor:
    """Nats of a token drawn from these counts."""
    share = histogram / histogram.sum()
    return torch.special.entr(share).sum()


def parent_of(config: RunConfig) -> Path:
    """The checkpoint folder that `parent: name@step` names; TrainingError where it is not there."""
    name, _, step = str(config.parent).partition("@")
    folder = config.parent_root / name / "checkpoints"
    path = find(folder).path if step == "latest" else folder / f"step-{step}"
    if path is None or not path.is_dir():
        message = f"parent {config.parent}: {folder} holds no such checkpoint"
        there = ", ".join(sorted(p.name for p in folder.glob("step-*"))) or "none"
        raise TrainingError(message, hint=f"there: {there}")
    return path
