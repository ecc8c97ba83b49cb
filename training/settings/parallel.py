"""`parallel`: how a run is spread over processes. It sets speed and memory, not the result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from training.settings.section import Section


class ParallelConfig(Section):
    """Degrees of the mesh; what is left of the processes shards data, weights and optimiser."""

    replicate: int = Field(default=1, ge=1)
    """Groups that each hold the whole model, sharded inside (HSDP)."""
    tensor: int = Field(default=1, ge=1)
    """Processes that share every matrix product, with sequence parallelism between them."""
    expert: int = Field(default=1, ge=1)
    """Processes, among those that hold a stage together, that share the experts of a mixture."""
    pipeline: int = Field(default=1, ge=1)
    """Stages of layers, run one forward, one backward (1F1B); best with at least twice as many
    micro-batches: of m + p - 1 turns of p stages p - 1 are idle."""
    recompute: Literal["none", "selective", "full"] = "none"
    """Activations computed again in the backward pass, to save memory; `selective` keeps attention
    and every second matrix product."""
    compile: Literal["auto", "on", "off"] = "auto"
    """`torch.compile` block by block; `auto`: on GPUs only (on a CPU it takes over a minute)."""
    fp8: bool = False
    """Matrix products of the blocks in float8 where the GPU has it."""
