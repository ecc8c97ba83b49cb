"""`model`: the shape of the decoder. No torch here."""

from __future__ import annotations

from pydantic import Field, model_validator

from training.settings.section import Section


class ModelConfig(Section):
    """Shape of the decoder; the vocabulary comes from the tokenizer."""

    layers: int = Field(default=4, ge=1, le=512)
    dim: int = Field(default=128, ge=8, le=65_536)
    heads: int = Field(default=4, ge=1, le=1024)
    kv_heads: int = Field(default=2, ge=1, le=1024)
    """Key and value heads (grouped-query attention, arXiv:2305.13245); divides `heads`."""
    ffn: int = Field(default=352, ge=8, le=1_000_000)
    """Width of the SwiGLU block, about 8/3 of `dim`."""
    qk_norm: bool = True
    """RMSNorm on queries and keys per head: Qwen3's layout; without it the layout is Llama's."""
    tied_embeddings: bool = False
    rope_theta: float = Field(default=10_000.0, gt=1)
    norm_eps: float = Field(default=1e-6, gt=0, lt=1e-2)
    init_std: float = Field(default=0.02, gt=0, le=1)

    @property
    def head_dim(self) -> int:
        """Features of one head; even, as rotary embedding turns pairs."""
        return self.dim // self.heads

    @model_validator(mode="after")
    def _divides(self) -> ModelConfig:
        if self.dim % (2 * self.heads):
            message = f"dim {self.dim} must be a multiple of twice the heads ({self.heads})"
            raise ValueError(message)
        if self.heads % self.kv_heads:
            message = f"heads {self.heads} must be a multiple of kv_heads {self.kv_heads}"
            raise ValueError(message)
        return self
