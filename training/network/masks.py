"""Who may look at whom in a micro-batch: causal, and only inside one's own document.

A mask is built once per micro-batch and used by every layer. Kinds:

causal   no documents given: `scaled_dot_product_attention`, causal
sdpa     `scaled_dot_product_attention` with a boolean mask; runs anywhere
blocks   own product by blocks of queries, on CPUs: see `training.network.blockwise`
varlen   flash attention over documents of different lengths, on GPUs in half precision
flex     FlexAttention with a block mask, on GPUs

`auto` takes varlen on a GPU in half precision (flex where it is missing), and on a CPU blocks up to
2,048 tokens, where the weights it keeps are a fraction of all activations, and sdpa above.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from training.errors import RunConfigError
from training.settings.model import AttentionKind

HALF = (torch.bfloat16, torch.float16)
LONGEST_BLOCKS = 2048


@dataclass(frozen=True)
class Mask:
    """What attention needs of the documents; which fields are set depends on `kind`."""

    kind: str
    seen: Tensor | None = None
    """sdpa: [B, 1, T, T], true where a query (third axis) may see a key. blocks: [B or 1, 1, 1, T,
    T] in the dtype of the scores, 0 there and -inf elsewhere."""
    blocks: BlockMask | None = None
    bounds: Tensor | None = None
    """varlen: int32, where documents begin in the flattened batch, then its length, repeated."""


def build_mask(kind: AttentionKind, documents_BT: Tensor | None, length: int, like: Tensor) -> Mask:
    """The mask of a micro-batch of sequences of `length` tokens.

    A token sees itself and earlier ones of the same value in `documents_BT`; without it a sequence
    is one document. `like`: any tensor with the dtype and device of the activations. Raises
    RunConfigError where the kind cannot run there.
    """
    chosen = choose(kind, like.device, like.dtype, length)
    if chosen == "blocks":
        return Mask("blocks", seen=_additive(documents_BT, length, like))
    if documents_BT is None:
        return Mask("causal")
    if chosen == "sdpa":
        return Mask("sdpa", seen=document_mask(documents_BT))
    if chosen == "varlen":
        return Mask("varlen", bounds=document_bounds(documents_BT))
    return Mask("flex", blocks=_block_mask(documents_BT))


def choose(kind: AttentionKind, device: torch.device, dtype: torch.dtype, length: int = 0) -> str:
    """The kind that `auto` means on this device, or `kind`; RunConfigError where it cannot run."""
    cuda = device.type == "cuda"
    if kind == "auto":
        if not cuda:
            return "blocks" if length <= LONGEST_BLOCKS else "sdpa"
        return "varlen" if dtype in HALF and varlen_call() is not None else "flex"
    if kind == "varlen" and (not cuda or dtype not in HALF or varlen_call() is None):
        message = f"attention is 'varlen', and it cannot run in {str(dtype)[6:]} on {device.type}"
        hint = "it needs a GPU, dtype: bfloat16 and torch.nn.attention.varlen; set attention: auto"
        raise RunConfigError(message, hint=hint)
    if kind == "flex" and not cuda and torch.is_grad_enabled():
        message = "attention is 'flex', which has no backward pass on a CPU"
        raise RunConfigError(message, hint="set attention: auto")
    return kind


def document_mask(documents_BT: Tensor) -> Tensor:
    """[B, 1, T, T]: true where query (third axis) may see key: same document, not later."""
    same = documents_BT[:, :, None] == documents_BT[:, None, :]
    return same.tril()[:, None]


def document_bounds(documents_BT: Tensor) -> Tensor:
    """Where documents begin in the flattened batch, then its length; a document ends with its row.

    Filled up with the length to a power of two, so that compiled kernels meet few shapes; a
    document of no tokens does nothing. Waits for the device once.
    """
    begins = torch.ones_like(documents_BT, dtype=torch.bool)
    begins[:, 1:] = documents_BT[:, 1:] != documents_BT[:, :-1]
    starts = begins.flatten().nonzero().flatten().to(torch.int32)
    padded = 1 << max(len(starts), 7).bit_length()
    bounds = starts.new_full((padded + 1,), documents_BT.numel())
    bounds[: len(starts)] = starts
    return bounds


def _additive(documents_BT: Tensor | None, length: int, like: Tensor) -> Tensor:
    if documents_BT is None:
        seen = torch.ones(1, 1, length, length, dtype=torch.bool, device=like.device).tril()
    else:
        seen = document_mask(documents_BT)
    scores = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
    return scores.masked_fill_(~seen, float("-inf"))[:, :, None]


def _block_mask(documents_BT: Tensor) -> BlockMask:
    def sees(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (documents_BT[b, query] == documents_BT[b, key]) & (query >= key)

    n_rows, length = documents_BT.shape
    make = compiled(create_block_mask) if documents_BT.is_cuda else create_block_mask
    mask: BlockMask = make(sees, n_rows, None, length, length, device=documents_BT.device)
    return mask


@functools.cache
def compiled(function: Any) -> Any:
    """The function through `torch.compile`, one compiled form a process."""
    return torch.compile(function)


@functools.cache
def varlen_call() -> tuple[Any, dict[str, Any], bool] | None:
    """(function, arguments that make it causal, whether it groups heads), or None without it.

    The argument was `is_causal` first and is `window_size` now; grouped heads came later.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = inspect.signature(varlen_attn).parameters
    causal = {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}
    return varlen_attn, causal, "enable_gqa" in known
