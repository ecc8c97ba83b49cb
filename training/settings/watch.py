"""`watch`: what is measured beside the loss, and how often. It does not shape the result."""

from __future__ import annotations

from pydantic import Field

from training.settings.section import Section


class WatchConfig(Section):
    """Metrics that cost something, and the early-run report."""

    weights_every: int = Field(default=10, ge=1)
    """Steps between two measurements of parameter norm and update/weight ratio."""
    early_steps: int = Field(default=1000, ge=10)
    """Steps that the early-run report looks at."""
    reference: str | None = None
    """Run whose losses the early-run report compares with; default: none."""
