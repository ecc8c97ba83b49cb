from __future__ import annotations

import time

import pytest
import torch

from training.watching import stopwatch
from training.watching.stopwatch import PARTS, Stopwatch, mark


def test_every_second_of_a_step_counts_for_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([t for t in (0.0, 1.0, 3.0, 6.0, 8.0, 13.0, 14.0, 15.0) for _ in range(2)])
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    watch = Stopwatch(torch.device("cpu"))
    watch.begin()
    for part in ("data", "forward", "backward", "forward", "backward", "optimiser"):
        mark(part)
    watch.end()
    (line,) = watch.flush()
    assert [line[f"time/{part}"] for part in PARTS] == [1.0, 4.0, 8.0, 1.0, 1.0]
    assert line["time/step"] == 15.0
    assert line["time/data_wait"] == 1.0
    assert watch.flush() == []


def test_nothing_is_timed_where_no_step_runs() -> None:
    watch = Stopwatch(torch.device("cpu"))
    mark("forward")
    watch.begin()
    watch.end()
    mark("forward")
    (line,) = watch.flush()
    assert line["time/forward"] == 0
    assert not stopwatch._running


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_is_timed_by_its_own_events() -> None:
    device = torch.device("cuda")
    watch = Stopwatch(device)
    matrix = torch.randn(4096, 4096, device=device)
    torch.cuda.synchronize()
    for _ in range(2):
        watch.begin()
        mark("data")
        for _ in range(20):
            matrix @ matrix
        mark("forward")
        watch.end()
    lines = watch.flush()
    assert len(lines) == 2
    assert all(line["time/forward"] > line["time/data"] for line in lines)
