"""Sharding: FSDP2 over the decoder.

Data parallelism with sharded weights, gradients and optimiser (`fully_shard`). The model file knows
nothing of it.
"""

from __future__ import annotations

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from training.model import Decoder
from training.world import World


def shard(model: Decoder, world: World, dtype: str) -> Decoder:
    """Shard the model over the mesh, block by block; arithmetic in `dtype`, reductions in float32.

    On a CPU gathered weights are kept until the backward pass: memory is plenty, messages are not.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, dtype) if dtype != "float32" else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    reshard = world.device.type == "cuda"
    for block in model.layers:
        fully_shard(block, mesh=world.mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=world.mesh, mp_policy=policy, reshard_after_forward=reshard)
    return model
