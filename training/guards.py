"""What stands between a bad step and the weights: clipping, and refusing what stands out.

A step is refused where its loss or the norm of its gradient is not finite, or

    value - median > max(mads * 1.4826 * MAD, floor * |median|)

over the last `window` accepted values, once `armed_after` of them are there; before that, where it
is more than `early_factor` times the median. One-sided: a low value is no harm. Refused values
never enter the window: in a window of all values one NaN stops a gate by mean and deviation for 128
steps, and a burst hides its own end (see `allenai/OLMo-core`, `skip_step_optimizer.py`).

What stands out step after step is no matter of data: at unstable weights every batch has a large
gradient, and refusing keeps them there. So after `in_row` of them the next ones count, clipped, and
enter the window, until one is below the limit. (Seen in the demo's model with seed 1: from step 35
on every norm was 20 to 80 times the median, for as long as steps were refused; two clipped steps
ended it.)

The verdict is reached on the device and carried out by the optimiser itself (`found_inf`): weights,
moments and the step counter stay bit for bit as they were, with no copy to the host. Loss and norm
are sums over all ranks, so every rank takes the same decision.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from training.errors import TrainingError
from training.settings.spikes import TO_SIGMA, SpikeConfig


class Verdict(NamedTuple):
    """What the gate found of a step; device tensors."""

    refused: Tensor
    """0-dimensional float32: 1 where the step must not count."""
    median: Tensor
    """[2]: of accepted losses and of accepted norms; NaN where there are none."""
    limit: Tensor
    """[2]: the most that loss and norm may be."""


class Guard:
    """The gate of a run. Its state is a few hundred numbers on the device."""

    def __init__(self, settings: SpikeConfig, max_skips: int, device: torch.device) -> None:
        self.settings, self.max_skips = settings, max_skips
        self.values = torch.full((2, settings.window), torch.nan, device=device)
        """Accepted losses and norms, a ring."""
        self.accepted = torch.zeros(1, dtype=torch.int64, device=device)
        """How many were accepted since the gate was last set back."""
        self.floors = torch.tensor([settings.floor, settings.norm_floor], device=device)
        self.in_row = torch.zeros(1, device=device)
        """Steps refused in a row so far."""
        self.streak = torch.zeros(1, dtype=torch.int64, device=device)
        """Steps in a row so far that stood out, refused or not."""

    def judge(self, loss: Tensor, norm: Tensor) -> Verdict:
        """Whether a step with this loss and gradient norm counts; keeps them where it does.

        Both 0-dimensional, of the global batch, equal on all ranks.
        """
        new = torch.stack([loss.float(), norm.float()])
        median, limit = self._limits()
        # comparisons are false where the limit is NaN: nothing to go by
        finite, above = torch.isfinite(new).all(), (new > limit).any()
        refused = ~finite
        if self.settings.skip:
            refused = refused | (above & (self.streak < self.settings.in_row))[0]
        self.streak = (self.streak + 1) * (above | ~finite)
        place = self.accepted % self.settings.window
        kept = torch.where(refused, self.values.index_select(1, place)[:, 0], new)
        self.values.index_copy_(1, place, kept[:, None])
        self.accepted += (~refused).long()
        self.in_row = (self.in_row + 1) * refused
        return Verdict(refused.float(), median, limit)

    def _limits(self) -> tuple[Tensor, Tensor]:
        """[2], [2]: medians and limits of loss and norm."""
        settings = self.settings
        median = self.values.nanmedian(1).values
        mad = (self.values - median[:, None]).abs().nanmedian(1).values
        room = torch.maximum(settings.mads * TO_SIGMA * mad, self.floors * median.abs())
        armed = self.accepted >= settings.armed_after
        return median, torch.where(armed, median + room, settings.early_factor * median)

    def step(self, optimizer: torch.optim.Optimizer, loss: Tensor, norm: Tensor) -> Verdict:
        """Let the optimiser step, or refuse; gradients are clipped already."""
        verdict = self.judge(loss, norm)
        flags: Any = optimizer  # read by the fused kernel, unknown to the class's type
        flags.grad_scale, flags.found_inf = None, verdict.refused
        optimizer.step()
        return verdict

    def set_back(self) -> None:
        """Begin anew: what comes is another kind of data, of which the window says nothing."""
        self.values.fill_(torch.nan)
        self.accepted.zero_()
        self.streak.zero_()

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        names = ("values", "accepted", "in_row", "streak")
        return {name: getattr(self, name) for name in names}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """As it was at the checkpoint."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])

    def check(self, step: int) -> None:
        """TrainingError where `max_skips` steps in a row were refused. Reads from the device."""
        if int(self.in_row.item()) >= self.max_skips:
            message = (
                f"{self.max_skips} steps in a row up to step {step} were refused: loss or gradient "
                f"not finite or far above what went before; the last checkpoint is untouched"
            )
            hint = "lower lr or raise warmup_steps in a new run, or raise max_skips"
            raise TrainingError(message, hint=hint)
