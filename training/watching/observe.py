"""What is seen of a step beside its loss: weights, updates, sources, memory, machine.

Everything here stays on the device until the log is flushed; nothing waits for it.

**Update/weight ratio.** `|Δw| / |w|`, about 1e-3 in a healthy run. The update is not computed from
the optimiser's moments, since that would need a formula for each optimiser and would not see a
skipped step. It is measured: some `SAMPLES` weights of each tensor, evenly spaced, are copied
before the step and compared after it,

    |Δw|² ≈ Σ_p (N_p / n_p) Σ_{i in sample of p} (w_i' - w_i)²,   |w|² = Σ_p |p|²  (all weights)

with N_p weights in tensor p and n_p of them in its sample. The cost does not grow with the model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from training.layouts.norms import copies, local
from training.world import World

SAMPLES = 4096
MIB = 1024 * 1024


class WeightWatch:
    """Parameter norm and update/weight ratio of a model, over all ranks, whatever its sharding."""

    def __init__(self, parameters: Iterable[Tensor], world: World) -> None:
        """`parameters`: those that this rank holds, plain or DTensor."""
        self._parameters = list(parameters)
        self._copies = [copies(p, world) for p in self._parameters]
        self._held: Tensor | None = None
        self._scales: Tensor | None = None

    def before(self) -> None:
        """Keep the sampled weights; call before the optimiser's step."""
        self._held = torch.cat(self._samples())

    def after(self) -> dict[str, Tensor]:
        """`param_norm`, `update_ratio`: 0-dimensional, equal on all ranks; one small reduction.

        Call after the optimiser's step; every rank must.
        """
        if self._held is None:
            message = "after() without before()"
            raise RuntimeError(message)
        locals_ = [local(p).detach() for p in self._parameters]
        samples = self._samples()
        scales = self._scale(locals_, samples)
        update = ((torch.cat(samples) - self._held).double().square() * scales).sum()
        share = torch.tensor([1 / c for c in self._copies], dtype=torch.float64).to(scales.device)
        norms = torch.stack(torch._foreach_norm(locals_)).double()
        sums = torch.stack([(norms.square() * share).sum(), update])
        dist.all_reduce(sums)
        self._held = None
        norm, moved = sums.sqrt().unbind()
        return {"param_norm": norm, "update_ratio": moved / norm}

    def _samples(self) -> list[Tensor]:
        """[samples] of every tensor of this rank, as float32; an empty shard has none."""
        return [_spaced(local(p).detach()).float() for p in self._parameters]

    def _scale(self, whole: Sequence[Tensor], samples: Sequence[Tensor]) -> Tensor:
        """[all samples]: weights that a sampled one stands for, over the copies of it."""
        if self._scales is None:
            numbers = [
                torch.full((len(s),), w.numel() / max(len(s), 1) / c, dtype=torch.float64)
                for w, s, c in zip(whole, samples, self._copies, strict=True)
            ]
            self._scales = torch.cat(numbers).to(samples[0].device)
        return self._scales


def _spaced(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    # an odd distance, as an even one would meet the same column of a matrix in every row
    return flat[:: max(1, flat.numel() // SAMPLES) | 1]


def by_source(per_sequence: Tensor, sources: Tensor, n_sources: int) -> Tensor:
    """Nats and targets of each source: [n_sources, 2], float64; add them up over data ranks.

    `per_sequence`: [sequences, 2] nats and targets; `sources`: [sequences] their source's number.
    """
    sums = torch.zeros(n_sources, 2, dtype=torch.float64, device=per_sequence.device)
    return sums.index_add_(0, sources.to(per_sequence.device), per_sequence.double())


def source_losses(sums: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """`loss/<source>` in nats a target, from the sums over all ranks: [sources, 2].

    NaN for a source that is not in the batch; the log leaves it out.
    """
    losses = sums[:, 0] / sums[:, 1]
    return {f"loss/{name}": losses[n] for n, name in enumerate(names)}


def expert_load(counts: Tensor) -> dict[str, Tensor]:
    """How even the load is: `experts/most` and `experts/least`, over the mean of their layer;
    `experts/idle`, the share of all experts that took no token.

    `counts`: [layers, experts], tokens of the global batch that each expert took. 1 is even; the
    worst layer is shown. (The measure of arXiv:2408.15664, which calls the excess MaxVio.)
    """
    share = counts.double() / counts.double().mean(-1, keepdim=True)
    idle = (counts == 0).double().mean()
    return {"experts/most": share.max(), "experts/least": share.min(), "experts/idle": idle}


class Machine:
    """Memory of this process and load of its host, read when the log is flushed.

    Names and units are those of MLflow's own system metrics, so its page of that name shows them;
    its sampling thread is not needed. Empty where there is no /proc.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._since = (time.monotonic(), sum(os.times()[:2]), _busy())

    def read(self) -> dict[str, float]:
        """Load since the last reading, and memory now."""
        now = (time.monotonic(), sum(os.times()[:2]), _busy())
        before, self._since = self._since, now
        seconds = max(now[0] - before[0], 1e-9)
        values = {"system/process_cpu_percentage": 100 * (now[1] - before[1]) / seconds}
        if now[2] and before[2] and now[2][1] > before[2][1]:
            busy = (now[2][0] - before[2][0]) / (now[2][1] - before[2][1])
            values["system/cpu_utilization_percentage"] = 100 * busy
        values |= _memory()
        if self.device.type == "cuda":
            values["memory/cuda_peak_mib"] = torch.cuda.max_memory_allocated(self.device) / MIB
            values["memory/cuda_reserved_mib"] = torch.cuda.memory_reserved(self.device) / MIB
        return {name: round(value, 2) for name, value in values.items()}


def _busy() -> tuple[int, int] | None:
    """(busy, all) ticks of all processors of the host."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except (OSError, IndexError):
        return None
    ticks = [int(f) for f in fields]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _memory() -> dict[str, float]:
    """Resident memory of this process and what the host has in use, MiB."""
    try:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        lines = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    except (OSError, IndexError):
        return {}
    total, free = (int(lines[k].split()[0]) / 1024 for k in ("MemTotal", "MemAvailable"))
    return {
        "memory/resident_mib": resident / MIB,
        "system/system_memory_usage_megabytes": total - free,
        "system/system_memory_usage_percentage": 100 * (total - free) / total,
    }
