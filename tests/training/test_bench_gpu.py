from __future__ import annotations

import json
from pathlib import Path

import pytest

from training import bench_gpu
from training.benching import Bench


def test_a_part_that_fails_is_told_and_the_next_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, tmp_path / "out.json", dry=True)
    with bench.part("bad") as figures:
        figures["before"] = 1
        message = "no such kernel"
        raise RuntimeError(message)
    with bench.part("good") as figures:
        figures["seconds"] = 2
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["bad"] == {"before": 1, "error": "RuntimeError: no such kernel"}
    assert told["good"] == {"seconds": 2}
    assert bench.failed


def test_a_stage_without_time_is_left_out_and_an_unknown_one_refused(tmp_path: Path) -> None:
    assert bench_gpu.run_stage("loss", tmp_path, 1.0, dry=True)["status"] == "left out"
    with pytest.raises(SystemExit):
        bench_gpu.main(["--out", str(tmp_path / "x.json"), "--stages", "ceiling,all"])
    assert sum(bench_gpu.STAGES.values()) < 640, "what is over the deadline is cut off"


@pytest.mark.slow
@pytest.mark.long
def test_dry_run_fills_every_stage(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    assert bench_gpu.main(["--dry-run", "--out", str(out)]) == 0, out.read_text()
    found = json.loads(out.read_text())
    assert found["dry_run"] is True
    stages = found["stages"]
    assert {name: stage["status"] for name, stage in stages.items()} == dict.fromkeys(
        bench_gpu.STAGES, "done"
    )
    parts = {name: stage.keys() - {"status", "seconds"} for name, stage in stages.items()}
    assert parts == {
        "ceiling": {"matmul", "copy"},
        "dense": {"adamw", "gate", "loader", "checkpoint"},
        "mask": {"sdpa", "causal", "blocks"},
        "loss": {"ours", "cross_entropy", "linear_cross_entropy"},
        "muon": {"muon"},
        "moe": {"moe"},
    }
    assert stages["dense"]["adamw"]["mfu_of_measured_peak"] > 0
    assert stages["moe"]["moe"]["mfu_of_dense"] > 0
    assert "cost_share" in stages["dense"]["gate"]


@pytest.mark.slow
def test_without_a_gpu_the_full_run_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(bench_gpu, "FULL", bench_gpu.DRY)
    out = tmp_path / "gpu.json"
    assert bench_gpu.main(["--out", str(out), "--stages", "ceiling"]) == 1
    stage = json.loads(out.read_text())["stages"]["ceiling"]
    assert stage["status"] == "failed"
    assert "no GPU is visible to this process" in stage["log"][-1]
