"""What one rank holds during a run: one step, saving, resuming, going back. The loop: `train`.

What was decided about the run, and which samples a step takes, is in `training.history`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.checkpoint import Checkpoints, Saved
from training.config import RunConfig
from training.errors import TrainingError
from training.evaluate import HeldOut, languages_of
from training.exchange import Counts, Sums, entropy, shared_counts, shared_sums, to_device
from training.faults import fault
from training.guards import Guard, Verdict
from training.history import History
from training.layouts.norms import clip_gradients, gradient_norm
from training.model import Decoder
from training.network.masks import choose
from training.network.moe import update_biases
from training.optim import build_optimizer, set_rate
from training.origin import samples_of_parent, start_weights, what_changed
from training.parallel import parallelise
from training.plan import Data, earlier_plan
from training.samples.course import Course
from training.samples.prefetch import Prefetch
from training.schedule import learning_rate
from training.spikes.review import Review
from training.spikes.rewind import Rewind, latest_start, too_many
from training.verify import read_record, step_of
from training.vocabulary import Vocabulary
from training.watching.observe import WeightWatch, expert_load, source_losses
from training.watching.scores import Scores
from training.watching.stopwatch import mark
from training.world import World, agree


class Trainer:
    """Model, optimiser, data and checkpoints of one rank, and the step over them."""

    def __init__(self, config: RunConfig, world: World, vocabulary: Vocabulary, data: Data) -> None:
        self.config, self.world, self.vocabulary, self.data = config, world, vocabulary, data
        choose(config.attention, world.device, getattr(torch, config.dtype))
        with torch.device("meta"):  # no process ever holds a big model whole
            model = Decoder(config.model, vocabulary.size, config.context, config.attention)
        self.parallel = parallelise(model, world, config)
        self.model = self.parallel.model.to_empty(device=world.device)
        self.model.init_weights(config.seed)
        self.optimizer = build_optimizer(self.parallel, config)
        self.guard = Guard(config.spikes, config.max_skips, world.device)
        self.weights = WeightWatch(self.parallel.parameters(), world)
        languages = agree(languages_of(config.out) if world.first else None, world)
        self.held_out = HeldOut(data.held_out, vocabulary, limit=config.eval_rows, groups=languages)
        stamps = {"configuration": config.config_hash(), "tokenizer": vocabulary.checksum}
        self.checkpoints = Checkpoints(
            config.out / "checkpoints",
            world,
            keep=config.keep_checkpoints,
            every=config.keep_every,
            max_failed=config.max_failed_saves,
            stamps=stamps | {"data": data.checksum},
        )
        self.history = History(config, world)
        self.ledger = self.history.ledger
        self.review = Review(config, data.loader, self.ledger, world.first)
        self.prefetch = Prefetch(
            data.loader, world.data_rank, world.data_size, pin=world.device.type == "cuda"
        )
        self.seen = torch.zeros(vocabulary.size, dtype=torch.int32, device=world.device)
        """[vocabulary]: the accepted step that first had a token; 0 where none did."""
        self.step, self.tokens, self.finished = 0, 0, False
        self.skipped: list[int] = []
        self.saved: dict[str, Any] = {}

    @property
    def course(self) -> Course:
        """Which samples each step takes, as things stand."""
        return self.history.course

    def resume(self) -> list[str]:
        """Go to the newest good checkpoint, if any; returns what to tell about it."""
        back = self.history.unfinished_rewind(self.checkpoints.folder)
        if back is not None:
            self.checkpoints.discard_after(back)
        self.history.leave_out_quarantine()
        found = self.checkpoints.newest()
        if found.path is None:
            if found.skipped:
                message = f"no checkpoint in {self.checkpoints.folder} is good: {found.skipped[0]}"
                hint = "bring one back, or move the folder away to start from the beginning"
                raise TrainingError(message, hint=hint)
            size = self.vocabulary.size
            start_weights(self.config, size, self.model, self.optimizer, self.checkpoints)
            if taken := samples_of_parent(self.config):
                self.history.leave_out(0, taken, step=0, reason="samples of the parent")
            return [f"started from {self.config.origin}"]
        self._load(found.path)
        return [*found.skipped, f"resumed from {found.path.name}"]

    def _load(self, path: Path) -> None:
        """Everything as it was at a checkpoint of this run."""
        self._check_data(path)
        record = self.checkpoints.load(path, self.model, self.optimizer, self.config.accept_change)
        progress, extra = record["progress"], record["extra"]
        self.step, self.tokens = step_of(path), progress["tokens"]
        self.skipped, self.finished = list(progress["skipped"]), progress["finished"]
        self.review.ladder.restore(progress["ladder"])
        self.guard.load_state_dict(extra)
        self.seen.copy_(extra["seen"])
        self.saved = {"step": self.step, "path": str(path), "identity": record["identity"]}
        if (here := self.course.samples_until(self.step)) != progress["next_sample"]:
            message = (
                f"checkpoint {path} goes on at sample {progress['next_sample']}, this run at {here}"
            )
            hint = "undo the change of global_batch, batch_ramp or ledger.jsonl, or start a new run"
            raise TrainingError(message, hint=hint)
        if changes := what_changed(record["stamps"], self.checkpoints.stamps):
            self.history.accept(self.step, changes)
            if changes.keys() - {"configuration"}:
                self.guard.set_back()

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

        Every step was looked at before (`review`). Returns what to tell of a save that failed.
        """
        progress = {
            "next_sample": self.course.samples_until(self.step),
            "tokens": self.tokens,
            "skipped": self.skipped,
            "finished": self.finished,
            "ladder": self.review.ladder.state(),
            "rewinds": len(self.ledger.rewinds),
            "ledger": self.ledger.checksum(),
        }
        extra = self.guard.state_dict() | {"seen": self.seen}
        return self.note(
            self.checkpoints.save(self.model, self.optimizer, self.step, progress, extra)
        )

    def note(self, ended: list[Saved]) -> list[str]:
        """Remember the newest checkpoint that is there; returns what to tell of failed ones."""
        for one in ended:
            if not one.problem:
                self.saved = one.summary()
        return [f"{one.error().message}; training goes on" for one in ended if one.problem]

    def settle(self) -> None:
        """Wait for the save that is under way; TrainingError where it fails."""
        for one in self.checkpoints.wait():
            if one.problem:
                raise one.error()
            self.saved = one.summary()

    def rewind(self, verdict: Rewind) -> list[str]:
        """Go back to a checkpoint before a spike and leave its samples out; returns what to tell.

        What is done is in the ledger first, so that a process killed anywhere in here goes on to
        the same. TrainingError where the run went back too often.
        """
        spikes, rewinds = self.config.spikes, self.ledger.rewinds
        told = self.note(self.checkpoints.wait())
        if too_many(spikes, rewinds, verdict.spike):
            message = (
                f"step {verdict.spike}: {verdict.reason}, and the run went back {len(rewinds)} "
                f"times already"
            )
            hint = "lower lr, or look at the documents in spikes/; spikes.rewinds is the limit"
            raise TrainingError(message, hint=hint)
        found = self.checkpoints.newest(until=latest_start(spikes, verdict))
        if found.path is None:
            why = f"no checkpoint lies {spikes.rewind_distance} steps before {verdict.first_bad}"
            return [*told, *found.skipped, f"{verdict.reason}; {why}, so the run goes on"]
        self.history.enter_rewind(verdict, found.step)
        fault("training.rewind.entered")
        self.checkpoints.discard_after(found.step)
        fault("training.rewind.discarded")
        self.review.waiting.clear()
        self.history.rewound()
        self._load(found.path)
        fault("training.rewind.loaded")
        why = f"{verdict.reason}; the run went back to {found.path.name}"
        return [*told, *found.skipped, f"{why} and leaves out the samples up to the spike"]

    def advance(self) -> None:
        """Count the step that was just done."""
        self.step += 1
        self.tokens += self.course.batch_size(self.step) * self.config.context

    @property
    def rate(self) -> float:
        """Learning rate of the step that was done last."""
        return float(self.optimizer.param_groups[0]["lr"])

    def evaluate(self) -> Scores:
        """Held-out scores of the weights as they are."""
        self.parallel.eval()
        scores = self.held_out.score(
            self.parallel.nats,
            self.world.device,
            batch=self.config.micro_batch,
            rank=self.world.data_rank,
            world=self.world.data_size,
            add_up=self.world.total_,
        )
        self.parallel.train()
        return scores

    def train_step(self, stop: bool) -> tuple[dict[str, Tensor], Tensor]:
        """One step; returns its values (0-dimensional, equal on all ranks) and who asked to stop.

        The loss is the mean over the targets of the global batch, whatever rank they are on.
        """
        config, world, number = self.config, self.world, self.step + 1
        indices = self.course.indices(number)
        if self._new_data(number):
            self.guard.set_back()
        then = self.course.indices(number + 1) if number < config.steps else None
        batch = self.prefetch.batch(indices, then)
        fields = to_device(batch, world.device)
        mark("data")
        counts = shared_counts(batch, fields, self.vocabulary.size, stop, world)
        set_rate(self.optimizer, learning_rate(number, config))
        self.optimizer.zero_grad(set_to_none=True)
        mark("other")
        found = self.parallel.accumulate(fields, (1 / counts.targets).float())
        sums = self._sums(*found, indices)
        loss = sums.kinds[0] / counts.targets
        norm = gradient_norm(self.parallel.parameters(), world)
        clip_gradients(self.parallel.parameters(), config.clip, norm)
        mark("other")
        measured = number % config.watch.weights_every == 0
        if measured:
            self.weights.before()
            mark("other")
        verdict = self.guard.step(self.optimizer, loss, norm)
        loads = self._level_experts(number, verdict.refused)
        mark("optimiser")
        fresh = (self.seen == 0) & (counts.histogram > 0) & (verdict.refused == 0)
        self.seen.masked_fill_(fresh, number)
        self.review.add(number, indices, loss, norm, verdict, sums.sequences)
        values = self._values(loss, norm, verdict, sums, counts)
        values |= expert_load(loads) if loads is not None else {}
        return values | (self.weights.after() if measured else {}), counts.stop

    def _values(
        self, loss: Tensor, norm: Tensor, verdict: Verdict, sums: Sums, counts: Counts
    ) -> dict[str, Tensor]:
        """What the line of a step has of every run."""
        values = {
            "loss": loss,
            "grad_norm": norm,
            "entropy": sums.kinds[1] / sums.kinds[2],
            "z_loss": sums.kinds[3] / counts.targets,
            "batch_entropy": entropy(counts.histogram),
            "skipped": verdict.refused,
            "gate/loss_limit": verdict.limit[0],
            "gate/norm_limit": verdict.limit[1],
            "targets": counts.targets,
            "batch_checksum": counts.checksum,
        }
        return values | source_losses(sums.sources, self.data.loader.order.names)

    def _level_experts(self, number: int, refused: Tensor) -> Tensor | None:
        """Move the biases of the routers, less and less as the learning rate falls."""
        config = self.config
        if config.model.moe is None:
            return None
        # whole in the warm-up: loads are least even then
        share = 1.0 if number <= config.warmup_steps else learning_rate(number, config) / config.lr
        rate = config.model.moe.rate(config.steps) * share
        loads = update_biases(self.model, rate, refused, self.world.sum_)
        return self.parallel.loads_of_all(loads)

    def _sums(self, sums: Tensor, per_sequence: Tensor, indices: Sequence[int]) -> Sums:
        """Sums of this rank's share as those of the global batch."""
        own = len(per_sequence)
        begin = self.world.data_rank * own
        order = self.data.loader.order
        sources = torch.from_numpy(order.many(indices[begin : begin + own])[0])
        return shared_sums(sums, per_sequence, sources, len(order.names), self.world)

    def _new_data(self, number: int) -> bool:
        """Whether a step is the first with samples of another phase of the data."""
        if number == 1:
            return False
        before = self.review.phase_of(self.course.indices(number - 1)[-1])
        return self.review.phase_of(self.course.indices(number)[-1]) != before
