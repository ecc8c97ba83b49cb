"""`launch`: nodes, restarts and time limits of the job. It does not shape the result."""

from __future__ import annotations

from pydantic import Field, model_validator

from training.settings.section import Section

LONGEST_WAIT = 31 * 86_400  # seconds; clocks and timers of the system take no more than years


class LaunchConfig(Section):
    """How the agents of `torch.distributed.run` start, watch and restart the ranks."""

    nodes: int = Field(default=1, ge=1, le=10_000)
    """Hosts that may take part, each with one agent. (Not `1:2`: YAML reads that as 62.)"""
    min_nodes: int | None = Field(default=None, ge=1)
    """Hosts that are enough to start, and to go on with after a loss; default: all."""
    rendezvous: str | None = Field(default=None, pattern=r"^[^\s:]+:\d{1,5}$")
    """`host:port` where the agents meet: the host that launches; default: its name, port 29400."""
    restarts: int = Field(default=100, ge=0, le=10_000)
    """Times that all ranks are started again after one died, hung or a host left.

    A run that makes no progress between two attempts is stopped long before.
    """
    hang_seconds: float = Field(default=300, ge=5, le=LONGEST_WAIT)
    """Longest time without a finished step before a rank counts as hanging."""
    slow_seconds: float = Field(default=1800, ge=5, le=LONGEST_WAIT)
    """The same where long waits are usual: to the first step, in evaluation, for a checkpoint."""
    join_seconds: float = Field(default=120, ge=5, le=LONGEST_WAIT)
    """How long the ranks of an attempt wait for each other to appear."""
    last_call_seconds: int = Field(default=20, ge=1, le=LONGEST_WAIT)
    """How long agents wait for further hosts once `min_nodes` are there."""

    @model_validator(mode="after")
    def _ordered(self) -> LaunchConfig:
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            message = f"launch.min_nodes {self.min_nodes} must not exceed launch.nodes {self.nodes}"
            raise ValueError(message)
        if self.slow_seconds < self.hang_seconds:
            message = (
                f"launch.slow_seconds {self.slow_seconds:g} must not be below "
                f"launch.hang_seconds {self.hang_seconds:g}"
            )
            raise ValueError(message)
        return self

    @property
    def fewest(self) -> int:
        """Hosts that are enough."""
        return self.min_nodes or self.nodes
