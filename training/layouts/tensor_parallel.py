"""Tensor and sequence parallelism of the decoder: who holds which part of which matrix.

Column-parallel products come before row-parallel ones (Megatron-LM, arXiv:1909.08053), so a block
needs one gathering of its input and one scattered sum of its output, for attention and MLP each.
Between them, where norms and the residual stream are, every rank holds a part of the sequence
(arXiv:2205.05198). Embedding and head are shared along the vocabulary; logits stay so, and the loss
is taken where they are (`training.network.losses`).
"""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from training.model import Decoder
from training.network.moe import MoE

BLOCK_INPUTS = 4  # of attention: the hidden state, then what all blocks share


def split_matrices(model: Decoder, mesh: DeviceMesh) -> None:
    """Share the matrices of a decoder, or of a stage of it, over a mesh of one dimension."""
    # the shared logits are a view of a DTensor; nothing is done to them in place behind autograd
    warnings.filterwarnings("ignore", message=".*returned a view tensor. An in-place op")
    ends: dict[str, ParallelStyle] = {
        "embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "lm_head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1)),
    }
    _apply(model, mesh, ends)
    if isinstance(model.embed_tokens, nn.Embedding):
        model.embed_tokens.register_forward_hook(_arrived)
    if model.config.tied_embeddings and isinstance(model.embed_tokens, nn.Embedding):
        model.lm_head.weight = model.embed_tokens.weight  # both are cut along the vocabulary
    for block in model.layers:
        dense = not isinstance(block.mlp, MoE)
        _apply(block, mesh, _attention() | (_mlp() if dense else _mixture()))


def _arrived(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    """The scattered embeddings, waited for: a compiled block sends no gradient into a tensor that
    is still on its way (torch 2.13)."""
    return output.clone()


def _attention() -> dict[str, ParallelStyle]:
    others = (None,) * (BLOCK_INPUTS - 1)
    return {
        "input_layernorm": SequenceParallel(),
        "self_attn": PrepareModuleInput(
            input_layouts=(Shard(1), *others), desired_input_layouts=(Replicate(), *others)
        ),
        "self_attn.q_proj": ColwiseParallel(),
        "self_attn.k_proj": ColwiseParallel(),
        "self_attn.v_proj": ColwiseParallel(),
        # every rank norms its own heads [B, T, H, E]; the weights' gradients are added up
        "self_attn.q_norm": SequenceParallel(sequence_dim=2, use_local_output=True),
        "self_attn.k_norm": SequenceParallel(sequence_dim=2, use_local_output=True),
        "self_attn.o_proj": RowwiseParallel(output_layouts=Shard(1)),
    }


def _mixture() -> dict[str, ParallelStyle]:
    """A mixture of experts works on tokens one by one: each rank takes its part of the sequence."""
    return {"post_attention_layernorm": SequenceParallel(use_local_output=True)}


def _mlp() -> dict[str, ParallelStyle]:
    return {
        "post_attention_layernorm": SequenceParallel(),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "mlp.gate_proj": ColwiseParallel(),
        "mlp.up_proj": ColwiseParallel(),
        "mlp.down_proj": RowwiseParallel(output_layouts=Shard(1)),
    }


def _apply(module: nn.Module, mesh: DeviceMesh, plan: dict[str, ParallelStyle]) -> None:
    """What of the plan the module has: a stage lacks ends, and some models norm no queries."""
    there = {
        name: style
        for name, style in plan.items()
        if not isinstance(module.get_submodule(name), nn.Identity)
    }
    parallelize_module(module, mesh, there)
