"""Which samples a step trains on: a pure function of the run file and of what was left out.

Sample indices are global: `training.data.Order` says where each comes from. A step takes the next
ones of them that are not left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from training.config import RunConfig


class Course:
    """Step (from 1) to the sample indices of its global batch."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config

    def batch_size(self, step: int) -> int:
        """Sequences of the global batch of `step`."""
        return self.config.global_batch

    def samples_until(self, step: int) -> int:
        """The first sample index that no step up to `step` has taken."""
        return step * self.config.global_batch

    def indices(self, step: int) -> Sequence[int]:
        """Sample indices of the global batch of `step`, in order."""
        return range(self.samples_until(step - 1), self.samples_until(step))
