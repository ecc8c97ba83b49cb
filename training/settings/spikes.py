"""`spikes`: when a step is refused, a run taken back, and a batch left out.

Sources: a window of 128 that is armed by 64 values is OLMo-core's (arXiv:2501.00656); median and
MAD of accepted values in place of mean and deviation of all, since a refused value must not widen
the limit; 100 steps back and leaving out what follows is PaLM's (arXiv:2204.02311).
"""

from __future__ import annotations

from pydantic import Field, model_validator

from training.settings.section import Section

TO_SIGMA = 1.4826
"""MAD of a normal distribution times this is its deviation."""


class SpikeConfig(Section):
    """The gate on loss and gradient norm, and the ladder behind it."""

    skip: bool = True
    """Refuse steps that stand out; those that are not finite are always refused."""
    window: int = Field(default=128, ge=8, le=4096)
    """Accepted values that median and MAD are taken over."""
    armed_after: int = Field(default=64, ge=2)
    """Accepted values before the gate judges by them; before that a step stands out where it is
    more than `early_factor` times the median."""
    early_factor: float = Field(default=10.0, gt=1)
    """Megatron-LM's factor for a loss or norm that cannot be chance."""
    mads: float = Field(default=8.0, gt=0)
    """Deviations above the median, each 1.4826 x MAD, that are a spike."""
    floor: float = Field(default=0.02, ge=0)
    """The least such distance of the loss, as a share of the median."""
    norm_floor: float = Field(default=0.02, ge=0)
    """The same of the norm. Right for batches of a million tokens; norms of small ones have
    a long tail, so the recipes for CPUs have 6, seven times the median. (Batches of 2,048 tokens,
    480 steps: rows of the demo's planted document are at 9.6 times the median and above, all other
    steps at 5.9 and below; at 0.02 three steps in a hundred are refused for nothing.)"""
    in_row: int = Field(default=3, ge=1)
    """Most steps in a row that are refused for standing out; then the weights are at fault, and
    steps count, clipped, until one is below the limit."""
    rewind: bool = True
    """Go back to a checkpoint where refusing steps is not enough."""
    rewind_skips: int = Field(default=5, ge=2)
    """Refused steps among `rewind_within` that take the run back."""
    rewind_within: int = Field(default=50, ge=2, le=10_000)
    rewind_rise: float = Field(default=0.1, gt=0)
    """Nats by which the smoothed loss lies above its least value before, for `rewind_patience`
    steps on end, that take the run back."""
    rewind_patience: int = Field(default=100, ge=2)
    rewind_distance: int = Field(default=100, ge=1)
    """Steps that the checkpoint lies before the first bad step, at least."""
    leave_out: int = Field(default=50, ge=0)
    """Steps behind the spike whose samples are left out too after a rewind."""
    rewinds: int = Field(default=3, ge=0)
    """Most rewinds in 10,000 steps; then the run ends."""

    @model_validator(mode="after")
    def _fits(self) -> SpikeConfig:
        if self.rewind_skips > self.rewind_within:
            message = (
                f"spikes.rewind_skips {self.rewind_skips} cannot be reached within "
                f"spikes.rewind_within {self.rewind_within} steps"
            )
            raise ValueError(message)
        return self
