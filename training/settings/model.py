"""`model`: the shape of the decoder, and of its mixture of experts. No torch here."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from training.settings.section import Section

AttentionKind = Literal["auto", "sdpa", "varlen", "flex", "blocks"]
"""How attention is computed (`training.network.masks`); the result is the same but for rounding."""


class MoeConfig(Section):
    """Fine-grained experts with shared ones (arXiv:2401.06066), balanced as in DeepSeek-V3.

    The router scores experts by a sigmoid; a bias that follows the load takes part in the choice
    only, so no loss has to pull experts level (arXiv:2408.15664, arXiv:2412.19437).
    """

    n_experts: int = Field(default=8, ge=2, le=4096)
    """Experts of a layer that tokens are sent to."""
    top_k: int = Field(default=2, ge=2, le=256)
    """Experts of one token, the shared ones not counted. The weight of a single one would be 1
    whatever its score, as weights are normalised, and the router would have no gradient."""
    expert_ffn: int = Field(default=64, ge=8, le=1_000_000)
    """Width of one expert's SwiGLU block."""
    shared: int = Field(default=1, ge=1, le=64)
    """Experts that every token passes, held as one block of `shared * expert_ffn`."""
    first_dense: int = Field(default=1, ge=0, le=512)
    """Layers at the bottom that keep one dense block of width `ffn`."""
    scaling: float = Field(default=1.0, gt=0, le=100)
    """Factor on the gate weights after they were normalised to a sum of 1. Other than 1 it is not
    portable: `transformers` applies it to the routed experts alone, vLLM to the shared ones too."""
    bias_rate: float | None = Field(default=None, ge=0, le=1)
    """Step of the bias that levels the load; default: from the length of the run, see `rate`."""
    aux_loss: float = Field(default=0.0, ge=0, le=1)
    """Weight of the balance loss of each sequence; 0: the bias alone (DeepSeek-V3 has 1e-4)."""
    router_z_loss: float = Field(default=0.0, ge=0, le=1)
    """Weight of the squared log-sum-exp of the router's logits (arXiv:2202.08906)."""

    def rate(self, steps: int) -> float:
        """Step of the bias in a run of `steps` steps, before it decays with the learning rate.

        4/steps between 1e-3 and 1e-2. Measured on 16 experts over 400 steps (largest load over
        mean): 1e-3 1.84, 1e-2 1.22, 1e-1 2.05; 1e-3 is what runs of 10^4 steps and more have.
        """
        return self.bias_rate if self.bias_rate is not None else min(1e-2, max(1e-3, 4 / steps))

    @model_validator(mode="after")
    def _fits(self) -> MoeConfig:
        if self.top_k > self.n_experts:
            message = f"moe.top_k {self.top_k} is more than moe.n_experts {self.n_experts}"
            raise ValueError(message)
        if self.expert_ffn % 8:
            # grouped products need rows of 16 bytes in bfloat16
            message = f"moe.expert_ffn {self.expert_ffn} must be a multiple of 8"
            raise ValueError(message)
        return self


class RopeScaling(Section):
    """Rotary frequencies stretched for long contexts, as Llama 3.1 has them (arXiv:2407.21783)."""

    factor: float = Field(default=8.0, ge=1)
    """Wave lengths above `original_context / low` are this much longer."""
    low: float = Field(default=1.0, gt=0)
    high: float = Field(default=4.0, gt=0)
    """Wave lengths below `original_context / high` stay; between the two it is interpolated."""
    original_context: int = Field(default=8192, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> RopeScaling:
        if self.high <= self.low:
            message = f"rope_scaling.high {self.high} must be above rope_scaling.low {self.low}"
            raise ValueError(message)
        return self


class ModelConfig(Section):
    """Shape of the decoder; the vocabulary comes from the tokenizer."""

    layers: int = Field(default=4, ge=1, le=512)
    dim: int = Field(default=128, ge=8, le=65_536)
    heads: int = Field(default=4, ge=1, le=1024)
    kv_heads: int = Field(default=2, ge=1, le=1024)
    """Key and value heads (grouped-query attention, arXiv:2305.13245); divides `heads`."""
    head_size: int | None = Field(default=None, ge=2, le=1024)
    """Features of one head; default: `dim / heads`."""
    ffn: int = Field(default=352, ge=8, le=1_000_000)
    """Width of the SwiGLU block, about 8/3 of `dim`."""
    qk_norm: bool = True
    """RMSNorm on queries and keys per head: Qwen3's layout; without it the layout is Llama's."""
    tied_embeddings: bool = False
    rope_theta: float = Field(default=10_000.0, gt=1)
    rope_scaling: RopeScaling | None = None
    norm_eps: float = Field(default=1e-6, gt=0, lt=1e-2)
    init_std: float = Field(default=0.02, gt=0, le=1)
    moe: MoeConfig | None = None
    """A mixture of experts in place of the dense blocks; default: none."""

    @property
    def head_dim(self) -> int:
        """Features of one head; even, as rotary embedding turns pairs."""
        return self.head_size or self.dim // self.heads

    def is_moe(self, layer: int) -> bool:
        """Whether the layer of this number (from 0) holds experts."""
        return self.moe is not None and layer >= self.moe.first_dense

    @model_validator(mode="after")
    def _divides(self) -> ModelConfig:
        if self.head_size is None and self.dim % (2 * self.heads):
            message = f"dim {self.dim} must be a multiple of twice the heads ({self.heads})"
            raise ValueError(message)
        if self.head_dim % 2:
            message = f"head_size {self.head_size} must be even: positions turn pairs of features"
            raise ValueError(message)
        if self.heads % self.kv_heads:
            message = f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}"
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _mixes(self) -> ModelConfig:
        if self.moe is None:
            return self
        if self.moe.first_dense >= self.layers:
            message = f"moe.first_dense {self.moe.first_dense} leaves no layer of {self.layers}"
            raise ValueError(message)
        if self.dim % 8:
            message = f"dim {self.dim} must be a multiple of 8 for a mixture of experts"
            raise ValueError(message)
        if not self.qk_norm:
            message = (
                "qk_norm false does not go with moe: its exported layout (Dots1) has the norms"
            )
            raise ValueError(message)
        return self
