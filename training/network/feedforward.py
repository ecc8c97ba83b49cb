"""The dense feed-forward block of a layer, and that of the shared experts: SwiGLU."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn


class MLP(nn.Module):
    """SwiGLU (arXiv:2002.05202) of `width` features between two projections of `dim`."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, width, bias=False)
        self.up_proj = nn.Linear(dim, width, bias=False)
        self.down_proj = nn.Linear(width, dim, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        return cast(Tensor, self.down_proj(F.silu(self.gate_proj(x_BTD)) * self.up_proj(x_BTD)))
