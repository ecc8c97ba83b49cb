"""The decoder: grouped-query attention, rotary positions, RMSNorm, SwiGLU, QK-norm. Pure torch.

Parameter names are those of Qwen3 and Llama in `transformers`, so that export is a change of
prefix. The model knows nothing of processes: `training.parallel` shards it from outside.

Shapes in names: B sequences, T tokens, D model width, H query heads, K key/value heads, E features
of a head, V vocabulary.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.settings.model import ModelConfig


class Attention(nn.Module):
    """Grouped-query attention (arXiv:2305.13245) with optional RMSNorm on queries and keys."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.head_dim = c.head_dim
        self.grouped = c.heads != c.kv_heads
        self.q_proj = nn.Linear(c.dim, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.dim, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.dim, bias=False)
        self.q_norm = nn.RMSNorm(c.head_dim, eps=c.norm_eps) if c.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(c.head_dim, eps=c.norm_eps) if c.qk_norm else nn.Identity()

    def forward(
        self, x_BTD: Tensor, cos_BTE: Tensor, sin_BTE: Tensor, mask_BTT: Tensor | None
    ) -> Tensor:
        """[B, T, D] to [B, T, D]; `mask_BTT` [B, 1, T, T] is true where a token may look."""
        heads = (*x_BTD.shape[:2], -1, self.head_dim)
        q_BHTE = self.q_norm(self.q_proj(x_BTD).view(heads)).transpose(1, 2)
        k_BKTE = self.k_norm(self.k_proj(x_BTD).view(heads)).transpose(1, 2)
        v_BKTE = self.v_proj(x_BTD).view(heads).transpose(1, 2)
        y_BHTE = F.scaled_dot_product_attention(
            rotate(q_BHTE, cos_BTE, sin_BTE),
            rotate(k_BKTE, cos_BTE, sin_BTE),
            v_BKTE,
            attn_mask=mask_BTT,
            is_causal=mask_BTT is None,
            enable_gqa=self.grouped,
        )
        return cast(Tensor, self.o_proj(y_BHTE.transpose(1, 2).flatten(2)))


class MLP(nn.Module):
    """SwiGLU (arXiv:2002.05202)."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(c.dim, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.dim, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.dim, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        return cast(Tensor, self.down_proj(F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD)))


class Block(nn.Module):
    """Attention and MLP, each behind a norm and added to the residual stream."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.dim, eps=c.norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.dim, eps=c.norm_eps)
        self.mlp = MLP(c)

    def forward(
        self, x_BTD: Tensor, cos_BTE: Tensor, sin_BTE: Tensor, mask_BTT: Tensor | None
    ) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        h_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), cos_BTE, sin_BTE, mask_BTT)
        return cast(Tensor, h_BTD + self.mlp(self.post_attention_layernorm(h_BTD)))


class Decoder(nn.Module):
    """Token ids to logits."""

    cos: Tensor
    sin: Tensor

    def __init__(self, c: ModelConfig, vocab_size: int, context: int) -> None:
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(vocab_size, c.dim)
        self.layers = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.dim, eps=c.norm_eps)
        self.lm_head = nn.Linear(c.dim, vocab_size, bias=False)
        if c.tied_embeddings:
            self.lm_head.weight = self.embed_tokens.weight
        self.register_buffer("cos", torch.empty(context, c.head_dim // 2), persistent=False)
        self.register_buffer("sin", torch.empty(context, c.head_dim // 2), persistent=False)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Normal(0, init_std), residual projections scaled by 1/sqrt(2 layers); a seed, one model.

        Every tensor is drawn from its own generator on the CPU, so that device, sharding and the
        order of modules do not shape it. Also fills the tables of rotary positions.
        """
        for number, (name, parameter) in enumerate(self.named_parameters()):
            if parameter.ndim == 1:
                parameter.fill_(1.0)
                continue
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            scale = 1 / math.sqrt(2 * self.config.layers) if residual else 1.0
            generator = torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**63)
            drawn = torch.empty(parameter.shape).normal_(generator=generator)
            parameter.copy_(drawn * self.config.init_std * scale)
        self.init_positions()

    @torch.no_grad()
    def init_positions(self) -> None:
        """Fill `cos` and `sin` [context, E/2]; they are no part of a checkpoint."""
        context, half = self.cos.shape
        inverse = self.config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        angles = torch.outer(torch.arange(context, dtype=torch.float32), inverse)
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())

    def forward(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor | None = None,
        documents_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, V]. A token sees earlier ones of the same value in `documents_BT` only.

        Without `documents_BT` a sequence is one document; without `positions_BT` it starts at 0.
        """
        if positions_BT is None:
            positions_BT = torch.arange(tokens_BT.shape[1], device=tokens_BT.device)[None]
        cos_BTE, sin_BTE = self.cos[positions_BT], self.sin[positions_BT]
        mask_BTT = None if documents_BT is None else document_mask(documents_BT)
        x_BTD = self.embed_tokens(tokens_BT)
        for block in self.layers:
            x_BTD = block(x_BTD, cos_BTE, sin_BTE, mask_BTT)
        return cast(Tensor, self.lm_head(self.norm(x_BTD)))


def document_mask(documents_BT: Tensor) -> Tensor:
    """[B, 1, T, T]: true where query (third axis) may see key: same document, not later."""
    same = documents_BT[:, :, None] == documents_BT[:, None, :]
    return same.tril()[:, None]


def rotate(x_BHTE: Tensor, cos_BTE: Tensor, sin_BTE: Tensor) -> Tensor:
    """Rotary positions (arXiv:2104.09864) on the two halves of a head, as `transformers` has it."""
    cos, sin = cos_BTE[:, None], sin_BTE[:, None]
    a, b = x_BHTE.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1).type_as(x_BHTE)
