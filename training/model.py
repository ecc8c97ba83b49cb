"""The decoder: attention and feed-forward blocks on a residual stream. Pure torch.

Parameter names are those of Qwen3, Llama and Dots1 in `transformers`, so that export is a change of
prefix. The model knows nothing of processes: `training.parallel` shards it from outside.

Shapes in names: B sequences, T tokens, D model width, H query heads, K key/value heads, E features
of a head, V vocabulary.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from training.network.attention import Attention
from training.network.feedforward import MLP
from training.network.initial import draw
from training.network.masks import Mask, build_mask
from training.network.moe import MoE, routers
from training.settings.model import AttentionKind, ModelConfig, RopeScaling


class Block(nn.Module):
    """Attention and MLP or experts, each behind a norm and added to the residual stream."""

    def __init__(self, c: ModelConfig, layer: int) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.dim, eps=c.norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.dim, eps=c.norm_eps)
        self.mlp = MoE(c) if c.is_moe(layer) else MLP(c.dim, c.ffn)

    def forward(self, x_BTD: Tensor, cos_BTE: Tensor, sin_BTE: Tensor, mask: Mask) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        h_BTD = x_BTD + self.self_attn(self.input_layernorm(x_BTD), cos_BTE, sin_BTE, mask)
        return cast(Tensor, h_BTD + self.mlp(self.post_attention_layernorm(h_BTD)))


class Decoder(nn.Module):
    """Token ids to logits.

    A big model is built under `torch.device("meta")`, sharded, given storage with `to_empty`, and
    filled by `init_weights`: no process ever holds it whole.
    """

    cos: Tensor
    sin: Tensor

    def __init__(
        self, c: ModelConfig, vocab_size: int, context: int, attention: AttentionKind = "auto"
    ) -> None:
        super().__init__()
        self.config, self.attention = c, attention
        self.embed_tokens = nn.Embedding(vocab_size, c.dim)
        self.layers = nn.ModuleList(Block(c, layer) for layer in range(c.layers))
        self.norm = nn.RMSNorm(c.dim, eps=c.norm_eps)
        self.lm_head = nn.Linear(c.dim, vocab_size, bias=False)
        self.register_buffer("cos", torch.empty(context, c.head_dim // 2), persistent=False)
        self.register_buffer("sin", torch.empty(context, c.head_dim // 2), persistent=False)
        self._tie()

    def _tie(self) -> None:
        """One table for input and output; `to_empty` parts them."""
        if self.config.tied_embeddings:
            self.lm_head.weight = self.embed_tokens.weight

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Normal(0, init_std) cut at 3 deviations, residual projections times 1/sqrt(2 layers).

        A tensor's values follow from the seed and its name: device, sharding and the modules that
        are there do not shape them, the version of torch does (2.11 and 2.13 differ). GPT-2's
        initialisation; torchtitan cuts at 3 too. Also fills the buffers.
        """
        self._tie()
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)
                continue
            residual = name.endswith(("o_proj.weight", "down_proj.weight", "experts.down_proj"))
            scale = 1 / math.sqrt(2 * self.config.layers) if residual else 1.0
            draw(parameter, f"{seed} {name}", self.config.init_std * scale)
        for router in routers(self):
            router.e_score_correction_bias.zero_()
        self.init_positions()

    @torch.no_grad()
    def init_positions(self) -> None:
        """Fill what no checkpoint holds: `cos` and `sin` [context, E/2], the loads of experts."""
        context, half = self.cos.shape
        inverse = self.config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
        if self.config.rope_scaling is not None:
            inverse = stretched(inverse, self.config.rope_scaling)
        angles = torch.outer(torch.arange(context, dtype=torch.float32), inverse)
        self.cos.copy_(angles.cos())
        self.sin.copy_(angles.sin())
        for router in routers(self):
            router.load.zero_()

    def prepare(
        self, x_BTD: Tensor, positions_BT: Tensor | None, documents_BT: Tensor | None
    ) -> tuple[Tensor, Tensor, Mask]:
        """(cos, sin, mask) for the layers, built once per micro-batch; `x_BTD` enters them."""
        length = x_BTD.shape[1] if documents_BT is None else documents_BT.shape[1]
        if positions_BT is None:
            positions_BT = torch.arange(length, device=x_BTD.device)[None]
        mask = build_mask(self.attention, documents_BT, length, x_BTD)
        return self.cos[positions_BT], self.sin[positions_BT], mask

    def forward(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor | None = None,
        documents_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits [B, T, V]. A token sees earlier ones of the same value in `documents_BT` only.

        Without `documents_BT` a sequence is one document; without `positions_BT` it starts at 0.
        """
        x_BTD = self.embed_tokens(tokens_BT)
        cos_BTE, sin_BTE, mask = self.prepare(x_BTD, positions_BT, documents_BT)
        for block in self.layers:
            x_BTD = block(x_BTD, cos_BTE, sin_BTE, mask)
        return cast(Tensor, self.lm_head(self.norm(x_BTD)))


def stretched(inverse: Tensor, scaling: RopeScaling) -> Tensor:
    """Rotary frequencies of Llama 3.1: long waves are `factor` times longer, short ones stay."""
    turns = scaling.original_context * inverse / (2 * math.pi)
    share = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0, 1)
    return inverse * (share + (1 - share) / scaling.factor)
