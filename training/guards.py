"""What stands between a bad step and the weights: clipping, and skipping what is not finite.

The skip is decided on the device and carried out by fused AdamW itself (`found_inf`): weights,
moments and the step counter stay bit for bit as they were, with no copy to the host. Loss and norm
are sums over all ranks, so every rank takes the same decision.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from training.errors import TrainingError


class Guard:
    """Clips every step, skips those that are not finite, ends the run after too many in a row."""

    def __init__(self, clip: float, max_skips: int, device: torch.device) -> None:
        self.clip = clip
        self.max_skips = max_skips
        self.in_row = torch.zeros((), device=device)
        """Steps skipped in a row so far, on the device."""

    def step(self, optimizer: torch.optim.Optimizer, loss: Tensor) -> tuple[Tensor, Tensor]:
        """Clip, then step or skip; returns (gradient norm before clipping, 1.0 if skipped).

        `loss` is that of the global batch, equal on all ranks.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        torch.nn.utils.clip_grads_with_norm_(parameters, self.clip, norm)
        bad = (~(torch.isfinite(norm) & torch.isfinite(loss))).to(torch.float32)
        flags: Any = optimizer  # read by the fused kernel, unknown to the class's type
        flags.grad_scale, flags.found_inf = None, bad
        optimizer.step()
        self.in_row = (self.in_row + 1) * bad
        return norm, bad

    def check(self, step: int) -> None:
        """TrainingError where `max_skips` steps in a row were skipped. Reads from the device."""
        if int(self.in_row.item()) >= self.max_skips:
            message = (
                f"{self.max_skips} steps in a row up to step {step} had a loss or gradient that is "
                f"not finite; the last checkpoint is untouched"
            )
            hint = "lower lr or raise warmup_steps in a new run, or raise max_skips"
            raise TrainingError(message, hint=hint)
