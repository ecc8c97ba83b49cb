"""The section `engine`: where parts are worked on. Its values never change a result."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import Field

from pipeline.config.base import Section


class EngineConfig(Section):
    """Local processes or Ray tasks."""

    kind: Literal["local", "ray"] = "local"
    """`local`: processes of this machine. `ray`: tasks of a Ray cluster (extra `ray`)."""
    workers: int | None = Field(default=None, ge=1, le=4096)
    """Parts worked on at once; by default one a core."""
    threads: int | None = Field(default=None, ge=1, le=256)
    """Threads of Polars, OpenMP and numba in each worker; by default cores / workers."""
    address: str | None = Field(default=None, min_length=1)
    """Ray: address of the cluster (`auto`, `ray://host:10001`); by default one on this machine."""
    memory_gb: float | None = Field(default=None, gt=0)
    """Ray: memory to reserve for each task, so that a node is not filled beyond it."""

    @property
    def n_workers(self) -> int:
        """`workers`, or one a core."""
        return self.workers or cores()


def cores() -> int:
    """Cores this process may use (affinity, not what the machine has)."""
    return len(os.sched_getaffinity(0))
