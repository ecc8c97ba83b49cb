"""Tokens a second, and the share of the hardware's peak that the model's arithmetic takes (MFU).

MFU = (operations of a token, `training.planning.flops`) x (tokens a second of the run) / (processes
x peak of one). The peak of a GPU is that of its data sheet. A CPU has none that could be looked up:
there the peak is what a matrix product reached in this process when it started, in the run's
arithmetic; that takes some 50 ms. Where a GPU is not in the table, MFU is left out and the reason
is told.
"""

from __future__ import annotations

import time

import torch

from training.config import RunConfig
from training.planning.flops import flops_per_token, peak_flops

SIZE, TRIES = 512, 8


class Speed:
    """What a step of some tokens and seconds comes to."""

    def __init__(self, config: RunConfig, vocab_size: int, device: torch.device, n: int) -> None:
        """`n`: processes of the run, each with a device like this one."""
        self.flops = flops_per_token(config.model, vocab_size, config.context)
        """Operations of one token, forward and backward."""
        self.peak: float | None
        """Operations a second of one process at most; None where it is not known."""
        if device.type == "cuda":
            name = torch.cuda.get_device_name(device)
            self.peak = peak_flops(name, "float8" if config.parallel.fp8 else config.dtype)
            self.told = f"MFU against the data sheet of {name}"
        else:
            name = str(device)
            self.peak = measured_peak(getattr(torch, config.dtype))
            rate = f"{self.peak / 1e9:,.0f} GFLOP/s"
            self.told = f"MFU against {rate} a process, a matrix product's rate measured now"
        if self.peak is None:
            self.told = f"MFU is left out: no peak is known for {name} in {config.dtype}"
        self._n = n

    def of(self, tokens: int, seconds: float) -> dict[str, float]:
        """`tokens_per_second`, and `mfu` where the peak is known."""
        rate = tokens / max(seconds, 1e-9)
        found = {"tokens_per_second": round(rate, 1)}
        if self.peak:
            found["mfu"] = round(self.flops * rate / (self._n * self.peak), 5)
        return found


def measured_peak(dtype: torch.dtype) -> float:
    """Operations a second of a square matrix product here, the best of a few."""
    left, right = (torch.randn(SIZE, SIZE).to(dtype) for _ in range(2))
    best = float("inf")
    for _ in range(TRIES):
        begin = time.perf_counter()
        torch.mm(left, right)
        best = min(best, time.perf_counter() - begin)
    return 2 * SIZE**3 / best
