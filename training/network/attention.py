"""Grouped-query attention with rotary positions and QK-norm, over one of several kernels.

Which kernel runs follows from the mask of the micro-batch; see `training.network.masks`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention

from training.network.blockwise import Blockwise
from training.network.masks import Mask, compiled, varlen_call
from training.settings.model import ModelConfig


class Attention(nn.Module):
    """Grouped-query attention (arXiv:2305.13245) with optional RMSNorm on queries and keys."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.head_dim = c.head_dim
        self.q_proj = nn.Linear(c.dim, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        self.q_norm = nn.RMSNorm(c.head_dim, eps=c.norm_eps) if c.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(c.head_dim, eps=c.norm_eps) if c.qk_norm else nn.Identity()

    def forward(self, x_BTD: Tensor, cos_BTE: Tensor, sin_BTE: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] to [B, T, D]; `cos_BTE` and `sin_BTE` hold half a head's features."""
        heads = (*x_BTD.shape[:2], -1, self.head_dim)
        q_BHTE = self.q_norm(self.q_proj(x_BTD).view(heads)).transpose(1, 2)
        k_BKTE = self.k_norm(self.k_proj(x_BTD).view(heads)).transpose(1, 2)
        v_BKTE = self.v_proj(x_BTD).view(heads).transpose(1, 2)
        y_BHTE = attend(
            rotate(q_BHTE, cos_BTE, sin_BTE), rotate(k_BKTE, cos_BTE, sin_BTE), v_BKTE, mask
        )
        return cast(Tensor, self.o_proj(y_BHTE.transpose(1, 2).flatten(2)))


def attend(q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor, mask: Mask) -> Tensor:
    """Weighted values [B, H, T, E] of what each query may see; H is a multiple of K."""
    grouped = q_BHTE.shape[1] != k_BKTE.shape[1]
    if mask.kind == "blocks":
        return cast(Tensor, Blockwise.apply(q_BHTE, k_BKTE, v_BKTE, mask.seen))  # type: ignore[no-untyped-call]
    if mask.kind == "varlen":
        assert mask.bounds is not None
        return _varlen(q_BHTE, k_BKTE, v_BKTE, mask.bounds)
    if mask.kind == "flex":
        attend_flex = compiled(flex_attention) if q_BHTE.is_cuda else flex_attention
        y = attend_flex(q_BHTE, k_BKTE, v_BKTE, block_mask=mask.blocks, enable_gqa=grouped)
        return cast(Tensor, y)
    return F.scaled_dot_product_attention(
        q_BHTE,
        k_BKTE,
        v_BKTE,
        attn_mask=mask.seen,
        is_causal=mask.kind == "causal",
        enable_gqa=grouped,
    )


def _varlen(q_BHTE: Tensor, k_BKTE: Tensor, v_BKTE: Tensor, bounds: Tensor) -> Tensor:
    """Flash attention over the documents of the whole micro-batch laid end to end."""
    call = varlen_call()
    assert call is not None
    attend_documents, arguments, groups = call
    n_rows, heads, length, _ = q_BHTE.shape
    if k_BKTE.shape[1] != heads:
        if groups:
            arguments = arguments | {"enable_gqa": True}
        else:
            times = heads // k_BKTE.shape[1]
            k_BKTE, v_BKTE = (x.repeat_interleave(times, 1) for x in (k_BKTE, v_BKTE))
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q_BHTE, k_BKTE, v_BKTE))
    y = attend_documents(q, k, v, bounds, bounds, length, length, **arguments)
    return cast(Tensor, y.view(n_rows, length, heads, -1).transpose(1, 2))


def rotate(x_BHTE: Tensor, cos_BTE: Tensor, sin_BTE: Tensor) -> Tensor:
    """Rotary positions (arXiv:2104.09864) on the two halves of a head, as `transformers` has it."""
    cos, sin = cos_BTE[:, None], sin_BTE[:, None]
    if x_BHTE.device.type == "cpu" and not torch.compiler.is_compiling():
        turn: Any = _Turn
        return cast(Tensor, turn.apply(x_BHTE, cos, sin))
    a, b = x_BHTE.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).type_as(x_BHTE)


class _Turn(torch.autograd.Function):
    """`rotate` with half of the passes over memory, where no compiler joins them: 2.5 -> 1.4 ms for
    4 x 6 x 256 x 64, forward and backward on one core. The gradient is the turn backwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _turned(gradients[0], cos, -sin), None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    whole = x.float()
    out = torch.empty_like(whole)
    (a, b), (left, right) = whole.chunk(2, dim=-1), out.chunk(2, dim=-1)
    torch.mul(a, cos, out=left).addcmul_(b, sin, value=-1)
    torch.mul(b, cos, out=right).addcmul_(a, sin)
    return out.type_as(x)
