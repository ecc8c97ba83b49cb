"""What a run leaves behind: the numbers of every step, the early-run report, the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.miniature import lines, program, result, torchrun, write_run
from training.config import load_run
from training.planning.flops import flops_per_token
from training.report import Early, why_skipped
from training.watching.early import FILE
from training.watching.speed import Speed, measured_peak
from training.watching.stopwatch import PARTS

EVERY_STEP = {
    "loss", "loss/web", "loss/code", "grad_norm", "entropy", "batch_entropy", "lr", "skipped",
    "tokens", "tokens_per_second", "mfu", "time/step", "time/data_wait",
} | {f"time/{part}" for part in PARTS}  # fmt: skip
EVERY_FLUSH = {"memory/resident_mib", "gate/armed", "spikes/skips", "spikes/rewinds",
               "spikes/quarantines",
               "system/cpu_utilization_percentage", "system/process_cpu_percentage"}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve steps, written every fourth, with weights measured every third."""
    watch = {"weights_every": 3, "early_steps": 10}
    path = write_run(tmp_path_factory.mktemp("run"), steps=12, log_every=4, watch=watch)
    done = program(path)
    assert done.returncode == 0, done.stderr
    assert "early-run report over 10 steps: too few steps for a verdict" in done.stdout
    assert "MFU against" in done.stdout
    return path


def test_every_number_of_a_step_is_in_its_line(run: Path) -> None:
    found = lines(run)
    assert [line["step"] for line in found] == list(range(1, 13))
    seen = {name for line in found for name in line}
    assert EVERY_STEP | EVERY_FLUSH | {"param_norm", "update_ratio"} <= seen
    for line in found:
        assert EVERY_STEP - {"loss/web", "loss/code"} <= line.keys()
        assert line["time/step"] == pytest.approx(sum(line[f"time/{p}"] for p in PARTS), abs=1e-5)
        assert line["time/forward"] > 0
        assert line["time/backward"] > 0
        assert line["time/optimiser"] > 0
    assert [line["step"] for line in found if "update_ratio" in line] == [3, 6, 9, 12]
    assert [line["step"] for line in found if "memory/resident_mib" in line] == [4, 8, 12]
    assert all(0 < line["update_ratio"] < 0.5 for line in found if "update_ratio" in line)


@pytest.mark.slow
def test_sharded_weights_are_measured_as_whole_ones(run: Path, tmp_path: Path) -> None:
    watch = {"weights_every": 3, "early_steps": 10}
    two = write_run(tmp_path, steps=12, log_every=4, watch=watch)
    done = torchrun(two, 2)
    assert done.returncode == 0, done.stderr
    for one, other in zip(lines(run), lines(two), strict=True):
        names = [name for name in one if name.startswith(("param", "loss"))]
        assert [one[n] for n in names] == pytest.approx([other[n] for n in names], rel=1e-4)
        # Adam's first steps make much of gradients that are nearly nothing
        assert one.get("update_ratio", 1) == pytest.approx(other.get("update_ratio", 1), rel=1e-2)


def test_the_losses_of_sources_make_up_the_loss(run: Path) -> None:
    for line in lines(run):
        own = [line[name] for name in ("loss/web", "loss/code") if name in line]
        assert min(own) - 1e-6 <= line["loss"] <= max(own) + 1e-6


def test_the_result_tells_counters_and_verdict(run: Path) -> None:
    found = result(run)
    counters = {name: found[name] for name in ("skips", "rewinds", "quarantines")}
    assert counters == {"skips": 0, "rewinds": 0, "quarantines": 0}
    assert found["active_parameters"] == found["parameters"]
    assert found["early_report"] is None
    report = json.loads((load_run(run).out / FILE).read_text())
    assert (report["steps"], report["of_steps"]) == (10, 10)


def test_a_reference_that_is_not_there_stops_the_run_before_it_starts(tmp_path: Path) -> None:
    run = write_run(tmp_path, watch={"reference": "never"})
    done = program(run)
    assert done.returncode == 2
    assert "watch.reference is 'never'" in done.stderr
    assert not load_run(run).out.exists()


def test_the_early_report_is_written_once_and_compares(tmp_path: Path) -> None:
    other = tmp_path / "checkpoints" / "other"
    other.mkdir(parents=True)
    curve = [
        {"step": s, "tokens": 128 * s, "loss": 6 - s / 50, "grad_norm": 1.0, "skipped": 0.0,
         "entropy": 6 - s / 50} for s in range(1, 101)
    ]  # fmt: skip
    (other / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
    watch = {"early_steps": 60, "reference": "other"}
    config = load_run(write_run(tmp_path, steps=100, watch=watch))
    config.out.mkdir(parents=True)
    early = Early(config)
    assert not early.due(59)
    assert early.due(60)
    found: dict[str, Any] = early.write([dict(line, loss=line["loss"] * 1.08) for line in curve])
    assert (found["verdict"], found["steps"], found["reference"]) == ("watch", 60, "other")
    assert len(found["reasons"]) == 1
    assert not early.due(61)
    assert Early(config).done, "a resumed run does not judge again"
    assert Early(config).verdict == "watch"


def test_utilisation_is_operations_over_the_peak(tmp_path: Path) -> None:
    config = load_run(write_run(tmp_path))
    speed = Speed(config, 300, torch.device("cpu"), 2)
    speed.peak = 1e9
    operations = flops_per_token(config.model, 300, config.context)
    found = speed.of(1000, 0.5)
    assert found["tokens_per_second"] == 2000
    assert found["mfu"] == pytest.approx(operations * 2000 / 2e9, abs=1e-5)
    speed.peak = None
    assert speed.of(1000, 0.5) == {"tokens_per_second": 2000}
    assert measured_peak(torch.float32) > 1e8


def test_a_skip_says_what_stood_out() -> None:
    assert why_skipped({"loss": 7.25, "grad_norm": 51.0}) == "loss 7.25, gradient norm 51"
    assert why_skipped({"loss": "nan", "grad_norm": "nan"}) == "loss nan, gradient norm nan"
