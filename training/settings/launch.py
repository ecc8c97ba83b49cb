"""`launch`: nodes, restarts and time limits of the job. It does not shape the result."""

from __future__ import annotations

from pydantic import Field

from training.settings.section import Section


class LaunchConfig(Section):
    """How the agents of `torch.distributed.run` start, watch and restart the ranks."""

    restarts: int = Field(default=3, ge=0)
    """Times that all ranks are started again after one of them died or hung."""
    hang_seconds: float = Field(default=300, ge=5)
    """Longest time without a finished step before a rank counts as hanging."""
