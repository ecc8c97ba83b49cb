"""`torch.compile` block by block: equal blocks are compiled once, and FSDP2 stays outside.

A block with experts is compiled whole where torch can: in bfloat16 (compiled, it knows the grouped
product in no other type) and without expert parallelism (the sizes of its messages go through the
host). Elsewhere its attention and its shared experts are. So are attention and MLP of a block that
is both shared by tensor parallelism and computed again whole: as one it fails (torch 2.13).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from training.network.moe import MoE

BACKEND = "inductor"
"""What makes kernels of the graphs."""
SIDE_EFFECTS = "skip_fwd_side_effects_in_bwd_under_checkpoint"


def compile_block(
    block: nn.Module, dtype: torch.dtype, *, shared: bool = False, whole: bool = True
) -> list[nn.Module]:
    """Compile a block at its first pass; returns what is compiled of it.

    `shared`: its experts are on several ranks; `whole`: it may be compiled as one. Comes after
    `recompute_in_backward`.
    """
    import torch._dynamo  # takes a second

    # routers count tokens as they choose; a pass that is computed again need not count again
    dynamo: Any = torch._dynamo.config
    if hasattr(dynamo, SIDE_EFFECTS):
        setattr(dynamo, SIDE_EFFECTS, True)
    mlp = getattr(block, "mlp", None)
    parts = [block]
    if isinstance(mlp, MoE) and (shared or not whole or dtype != torch.bfloat16):
        parts = [block.get_submodule("self_attn"), mlp.shared_experts]
    elif not whole:
        parts = [block.get_submodule("self_attn"), block.get_submodule("mlp")]
    for part in parts:
        part.compile(backend=BACKEND)
    return parts


def compiles(wanted: str, device: torch.device) -> bool:
    """Whether blocks are compiled: `auto` is on GPUs only (on a CPU it takes over a minute)."""
    return wanted == "on" or (wanted == "auto" and device.type == "cuda")
