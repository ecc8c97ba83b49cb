"""Activations computed again in the backward pass, to save memory (arXiv:1604.06174).

`full`: a block keeps its input alone, and is run twice. `selective` (arXiv:2205.05198, per
operation as torchtitan does): it also keeps what is dear to compute, that is attention, messages
between ranks and every second matrix product.

The block's `forward` is wrapped, not the block: a wrapper module would rename its parameters, and a
checkpoint made with it would not load without it.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

MATRIX_PRODUCTS = ("aten.mm", "aten._scaled_mm", "aten._grouped_mm")
KEPT = (
    "aten._scaled_dot_product_flash_attention",
    "aten._scaled_dot_product_efficient_attention",
    "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_fused_attention_overrideable",
    "torch_attn._varlen_attn",
    "_c10d_functional.reduce_scatter_tensor",
    "_c10d_functional.all_to_all_single",
)
"""Operations whose result is kept, by name: some builds of torch lack some of them."""


def recompute_in_backward(block: nn.Module, mode: Literal["selective", "full"]) -> None:
    """Let a block compute its activations again in the backward pass."""
    inner: Any = block.forward
    extra: dict[str, Any] = {"context_fn": _selective} if mode == "selective" else {}

    def forward(*inputs: Any) -> Any:  # `partial(checkpoint, ...)` would be left out of compiling
        return checkpoint(
            inner,
            *inputs,
            use_reentrant=False,
            preserve_rng_state=False,  # nothing in a block is drawn at random
            **extra,
        )

    block.forward = forward


def _selective() -> tuple[Any, Any]:
    products = {False: 0, True: 0}  # met in the first pass, met in the second

    def policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        name = str(getattr(operation, "overloadpacket", operation))
        keep = name in KEPT
        if name in MATRIX_PRODUCTS:
            products[context.is_recompute] += 1
            keep = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    make: Any = create_selective_checkpoint_contexts  # it has no types
    contexts: tuple[Any, Any] = make(policy)
    return contexts
