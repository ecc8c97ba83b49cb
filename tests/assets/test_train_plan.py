"""`gristmill train --plan`: for a run file and for a recipe, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assets.cli import main
from resources.hardware import host_memory, named_gpu, this_device
from tests.training.miniature import write_run
from training.planning.footprint import GIB

TINY = ("--plan", "--recipe", "tiny_cpu")


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main(["train", "--plan", "--json", *arguments]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_recipe_without_any_file(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--recipe", "dense_8b", "--gpus", "4096", "--tokens", "15e12")
    found = planned(capsys, *arguments)
    assert found["cost_per_day"] == 4096 * 24 * 3
    assert planned(capsys, *arguments, "--price", "2")["cost_per_day"] == 4096 * 24 * 2
    assert main(["train", "--plan", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "$294,912 a day" in shown
    assert "8.03B parameters" in shown


def test_a_run_file_with_its_sources(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path, device="cpu")
    found = planned(capsys, str(run))
    assert found["processes"] == 2
    assert [row["source"] for row in found["sources"]] == ["code", "web"]  # type: ignore[attr-defined]
    assert found["days"] is None
    log = tmp_path / "checkpoints" / "mini" / "metrics.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text('{"step": 1, "tokens_per_second": 100.0, "mfu": 0.3}\n{"step": 2, "tok')
    assert planned(capsys, str(run))["tokens_per_second"] == 100
    on_gpus = planned(capsys, str(run), "--gpu", "H200", "--gpus", "4")
    assert (on_gpus["mfu"], on_gpus["mfu_source"]) == (0.4, "assumed")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--plan"], "--plan needs a run"),
        ([], "no run was named"),
        (["--plan", "--recipe", "dense_8b"], "neither how long nor on how many GPUs"),
        (["--plan", "--recipe", "x", "--gpus", "1", "--tokens", "1e9"], "recipe 'x' is not known"),
        (["RUN", "--price", "2"], "--price goes with --plan"),
        (["RUN", "--plan", "--recipe", "dense_8b"], "are two runs"),
        (["RUN", "--plan", "--gpus", "3"], "global_batch 4 cannot be shared by 3 processes"),
        (["RUN", "--plan", "--mfu", "1.5"], "--mfu 1.5 is no share of the peak"),
        (
            ["--plan", "--recipe", "dense_8b", "--gpus", "2", "--tokens", "1e12"],
            "on 2 processes, and H100 has 79.6",
        ),
        (["RUN", "--plan", "--gpu", "H100", "--gpu-memory", "0.5"], "and H100 has 0.5"),
        (["RUN", "--plan", "--tokens", "1e9"], "--tokens goes with --recipe"),
        (["RUN", "--plan", "--vocab", "300"], "--vocab goes with --recipe"),
        (["RUN", "--plan", "--gpus", "0"], "--gpus 0 is outside of 1 to 1e+06"),
        (["RUN", "--plan", "--mfu", "nan"], "--mfu nan is no share of the peak"),
        (["RUN", "--plan", "--price", "nan"], "--price nan is outside of 0 to 1e+06"),
        (["RUN", "--plan", "--price", "-1"], "--price -1 is outside of"),
        (["RUN", "--plan", "--gpu-memory", "inf"], "--gpu-memory inf is outside of"),
        (["RUN", "--plan", "--checkpoint-seconds", "0"], "--checkpoint-seconds 0 is outside of"),
        ([*TINY, "--gpus", "1", "--tokens", "nan"], "--tokens nan is outside of 1 to 1e+18"),
        ([*TINY, "--gpus", "1", "--tokens", "1e18"], "and a run has 100,000,000"),
        ([*TINY, "--gpus", "-1", "--tokens", "1e9"], "--gpus -1 is outside of"),
        ([*TINY, "--gpus", "1", "--tokens", "1e9", "--vocab", "0"], "--vocab 0 is outside of 2"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(write_run(tmp_path, device="cpu"))
    assert main(["train", *(run if a == "RUN" else a for a in arguments)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "hint: " in error


def test_a_run_that_does_not_fit_this_host_is_refused_before_launch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = host_memory()
    assert memory
    assert this_device("cpu", 2).memory == memory // 2
    # 20 bytes a weight, and the processes share the host
    dim, layers = 8192, 16 * -(-memory // (20 * 8192 * 8192 * 13 * 8))
    model = {"layers": layers, "dim": dim, "heads": 64, "kv_heads": 64, "ffn": 3 * dim}
    run = write_run(tmp_path, device="cpu", model=model, nproc_per_node=2)
    assert main(["train", str(run)]) == 2
    assert "this host, shared by 2 has" in capsys.readouterr().err
    assert not (tmp_path / "checkpoints").exists()


def test_memory_of_gpus_by_name() -> None:
    assert named_gpu("NVIDIA H100 80GB HBM3").memory == round(79.6 * GIB)
    assert named_gpu("X1").memory is None
    assert named_gpu("X1", 10).memory == 10 * GIB
