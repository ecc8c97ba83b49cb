"""`spikes`: when a step is refused, a run taken back, and a batch left out."""

from __future__ import annotations

from pydantic import Field

from training.settings.section import Section


class SpikeConfig(Section):
    """The gate on loss and gradient norm, and the ladder behind it."""

    skip: bool = True
    """Refuse steps that stand out; those that are not finite are always refused."""
    window: int = Field(default=128, ge=8, le=4096)
    """Accepted values that median and MAD are taken over."""
    armed_after: int = Field(default=64, ge=2)
    """Accepted values before the gate judges by them."""
    mads: float = Field(default=8.0, gt=0)
    """Deviations above the median, each 1.4826 x MAD, that are a spike."""
    floor: float = Field(default=0.02, ge=0)
    """The least such distance, as a share of the median."""
