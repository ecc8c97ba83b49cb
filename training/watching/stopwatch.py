"""Where the time of a step goes: data, forward, backward, optimiser, other.

The step says `mark("forward")` when a part has just ended; the time since the mark before it counts
for that part. On a CPU the clock is the wall clock. On a GPU an event is put into the stream and
nothing waits for it: the differences are read at `flush`, when the values of the steps come over
anyway. A GPU that idles while the host reads data shows as `data` on both.

One process runs one step at a time, so the running watch is found by the module's `mark`; the
gradients and the model need not be handed one. Where no step runs, `mark` does nothing.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch

PARTS = ("data", "forward", "backward", "optimiser", "other")
_running: list[Stopwatch] = []


class Stopwatch:
    """Times of the parts of steps; parts may come several times a step and in any order."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._spare: list[Any] = []
        self._steps: list[list[tuple[str, Any]]] = []
        self._waited: list[float] = []
        self._host = 0.0

    def begin(self) -> None:
        """A step starts now. What passed since the last one counts for neither."""
        _running[:] = [self]
        self._host = time.perf_counter()
        self._steps.append([("", self._now())])
        self._waited.append(0.0)

    def mark(self, part: str) -> None:
        """`part` (one of `PARTS`) ends here."""
        self._steps[-1].append((part, self._now()))
        host = time.perf_counter()
        if part == "data":
            self._waited[-1] += host - self._host
        self._host = host

    def end(self) -> None:
        """The step ends here; the rest of it is `other`."""
        self.mark("other")
        _running.clear()

    def flush(self) -> list[dict[str, float]]:
        """For each step since the last flush: `time/<part>`, `time/step`, `time/data_wait`.

        Seconds. `data_wait` is what the host waited for data, on a GPU too. Waits for the last
        event on a GPU.
        """
        if self._on_gpu and self._steps:
            self._steps[-1][-1][1].synchronize()
        lines = []
        for marks, waited in zip(self._steps, self._waited, strict=True):
            seconds = dict.fromkeys(PARTS, 0.0)
            for (_, before), (part, after) in pairwise(marks):
                seconds[part] += self._between(before, after)
            line = {f"time/{part}": value for part, value in seconds.items()}
            lines.append(line | {"time/step": sum(seconds.values()), "time/data_wait": waited})
        if self._on_gpu:
            self._spare += [event for marks in self._steps for _, event in marks]
        self._steps, self._waited = [], []
        return lines

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        new: Any = torch.cuda.Event
        event = self._spare.pop() if self._spare else new(enable_timing=True)
        event.record()
        return event

    def _between(self, before: Any, after: Any) -> float:
        return float(before.elapsed_time(after) / 1000 if self._on_gpu else after - before)


def mark(part: str) -> None:
    """`part` of the running step ends here; nothing where no step is timed."""
    if _running:
        _running[0].mark(part)
