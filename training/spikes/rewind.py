"""When a run is taken back to a checkpoint, and to which. Decided on the host, step by step.

The ladder sees every step in order, whenever the values come over from the device, so its verdict
does not depend on how often that is. All ranks see the same numbers and decide the same.

    refused steps   `rewind_skips` of them among `rewind_within`
    a lasting rise  the loss, smoothed (EMA 0.98), stays more than `rewind_rise` nats above its
                    least value before, for `rewind_patience` steps on end

Then the run goes on from the newest good checkpoint that lies `rewind_distance` steps before the
first bad step, and leaves out the samples from there to `leave_out` steps behind the spike: from
other data the same weights mostly do not spike (PaLM, arXiv:2204.02311, section 5.1). No torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from training.settings.spikes import SpikeConfig

SMOOTHING = 0.98
MOST_A_VALUE = 1.0  # nats above the smoothed loss that one value counts for: 0.02 in the mean
SPAN = 10_000
"""Steps in which `rewinds` are counted."""


@dataclass(frozen=True)
class Rewind:
    """Go back: `first_bad` and `spike` are steps."""

    first_bad: int
    spike: int
    reason: str


@dataclass
class Ladder:
    """What is remembered of the steps so far; all of it goes into a checkpoint."""

    settings: SpikeConfig
    skipped: list[int] = field(default_factory=list)
    """Refused steps that still count."""
    smooth: float | None = None
    least: float | None = None
    """Least smoothed loss since the data last changed."""
    high_since: int | None = None
    """First step of the rise that lasts until now."""
    phase: int = 0

    def observe(self, step: int, loss: float, refused: bool, phase: int = 0) -> Rewind | None:
        """Take in one step; a verdict where the run must go back. `phase`: number of the data's."""
        if phase != self.phase:  # other data have another loss
            self.smooth = self.least = self.high_since = None
            self.phase = phase
        return self._refused(step) if refused else self._risen(step, loss)

    def _refused(self, step: int) -> Rewind | None:
        settings = self.settings
        kept = [s for s in self.skipped if s > step - settings.rewind_within]
        self.skipped = [*kept, step]
        if not settings.rewind or len(self.skipped) < settings.rewind_skips:
            return None
        first = self.skipped[0]
        self.skipped = []
        reason = f"{settings.rewind_skips} steps from {first} to {step} were refused"
        return Rewind(first, step, reason)

    def _risen(self, step: int, loss: float) -> Rewind | None:
        settings = self.settings
        if self.smooth is None or self.least is None:
            self.smooth = self.least = loss
            return None
        value = min(loss, self.smooth + MOST_A_VALUE)
        self.smooth = SMOOTHING * self.smooth + (1 - SMOOTHING) * value
        self.least = min(self.least, self.smooth)
        if self.smooth <= self.least + settings.rewind_rise:
            self.high_since = None
            return None
        self.high_since = step if self.high_since is None else self.high_since
        if not settings.rewind or step - self.high_since + 1 < settings.rewind_patience:
            return None
        first, self.high_since = self.high_since, None
        high, least = self.smooth, self.least
        self.smooth = self.least = None
        reason = f"the smoothed loss is {high:.3f} and was {least:.3f} before step {first}"
        return Rewind(first, first, reason)

    def state(self) -> dict[str, Any]:
        """JSON values of what a checkpoint keeps."""
        names = ("skipped", "smooth", "least", "high_since", "phase")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """As it was at the checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)
        self.skipped = list(self.skipped)


def latest_start(settings: SpikeConfig, rewind: Rewind) -> int:
    """The last step whose checkpoint is far enough before the first bad step."""
    return rewind.first_bad - settings.rewind_distance


def too_many(settings: SpikeConfig, rewinds: list[dict[str, Any]], step: int) -> bool:
    """Whether one rewind more, decided at `step`, is above the limit."""
    recent = [event for event in rewinds if event["step"] > step - SPAN]
    return len(recent) >= settings.rewinds
