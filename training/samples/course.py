"""Which samples a step trains on: a pure function of the run file and of what was left out.

Sample indices are global: `training.samples.order` says where each comes from. Step s takes the
next `batch_size(s)` of them that are not left out, so the course of a run is exact after any resume
and at any number of ranks, and its state is the step alone. Two things bend it:

    batch_ramp   smaller batches up to a token count, as papers state them
    left_out     ranges of sample indices that a rewind or a quarantine took out (the ledger)

A range takes effect from its first index on: what steps before it took stays the same, so a ledger
may grow behind a checkpoint and that checkpoint still resumes exactly. A look-up costs a binary
search over the stages and the ranges.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from training.errors import TrainingError

if TYPE_CHECKING:
    from training.config import RunConfig

Range = tuple[int, int]
"""[from_sample, to_sample) of global sample indices."""


@dataclass(frozen=True)
class Stage:
    """Steps with one batch size."""

    first_step: int
    """Steps done before it begins."""
    first_sample: int
    """Samples taken before it begins, those left out not counted."""
    batch: int


class Course:
    """Step (from 1) to the sample indices of its global batch."""

    def __init__(self, config: RunConfig, left_out: Iterable[Range] = ()) -> None:
        """`left_out`: [from, to) in any order, overlapping or not; TrainingError for another."""
        self.config = config
        self.stages = stages_of(config)
        self.left_out = merged(left_out)
        removed, self._removed, self._keys = 0, [0], []
        for begin, end in self.left_out:
            self._keys.append(begin - removed)  # taken samples before the range
            removed += end - begin
            self._removed.append(removed)

    def batch_size(self, step: int) -> int:
        """Sequences of the global batch of `step`."""
        return self._stage(step - 1).batch

    def samples_taken(self, step: int) -> int:
        """Samples that the steps up to `step` train on."""
        stage = self._stage(max(step - 1, 0))
        return stage.first_sample + (step - stage.first_step) * stage.batch

    def tokens_until(self, step: int) -> int:
        """Tokens of the steps up to `step`, padding included."""
        return self.samples_taken(step) * self.config.context

    def samples_until(self, step: int) -> int:
        """The first sample index behind all that the steps up to `step` have taken."""
        taken = self.samples_taken(step)
        return self._index(taken - 1) + 1 if taken else 0

    def indices(self, step: int) -> Sequence[int]:
        """Sample indices of the global batch of `step`, increasing."""
        end = self.samples_taken(step)
        begin = end - self.batch_size(step)
        first, last = self._index(begin), self._index(end - 1)
        if last - first == end - 1 - begin:
            return range(first, last + 1)
        return [self._index(n) for n in range(begin, end)]

    def _stage(self, done: int) -> Stage:
        """The stage of the step after `done` steps."""
        return self.stages[bisect_right(self.stages, done, key=lambda s: s.first_step) - 1]

    def _index(self, taken: int) -> int:
        """Global index of the sample before which `taken` were taken."""
        return taken + self._removed[bisect_right(self._keys, taken)]


def stages_of(config: RunConfig) -> list[Stage]:
    """Stages of `batch_ramp`, then `global_batch` for good; one that gets no step is left out."""
    stages: list[Stage] = []
    step, sample = 0, 0
    for ramp in config.batch_ramp:
        wanted = -(-ramp.until_tokens // config.context)  # samples, rounded up
        steps = -(-max(wanted - sample, 0) // ramp.global_batch)
        if steps:
            stages.append(Stage(step, sample, ramp.global_batch))
        step, sample = step + steps, sample + steps * ramp.global_batch
    return [*stages, Stage(step, sample, config.global_batch)]


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Sorted, without overlap; TrainingError for a range that is empty or begins below 0."""
    out: list[Range] = []
    for begin, end in sorted(ranges):
        if not 0 <= begin < end:
            message = f"samples {begin} to {end} cannot be left out"
            raise TrainingError(message, hint="a range begins at 0 or later and ends behind that")
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(end, out[-1][1]))
        else:
            out.append((begin, end))
    return out
