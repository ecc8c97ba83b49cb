"""The program itself, with real processes of torch.distributed.run and gloo."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.training.miniature import ROOT, lines, program, result, torchrun, write_run
from training.faults import POINTS

CHECKPOINT_POINTS = [n for n in POINTS if n.startswith(("training.checkpoint", "training.result"))]


def test_two_ranks_stop_resume_and_end_as_one_rank_would(tmp_path: Path) -> None:
    """5 steps, resumed for 5 more, on 2 ranks; against the in-process numbers of one file."""
    keys = {"checkpoint_every": 100, "eval_every": 5}
    run = write_run(tmp_path, "two", stop_after=5, **keys)
    first = torchrun(run, 2)
    assert first.returncode == 0, first.stderr
    assert result(run)["status"] == "stopped"
    assert result(run)["step"] == 5
    second = torchrun(write_run(tmp_path, "two", **keys), 2)
    assert second.returncode == 0, second.stderr
    assert "resumed from step-5" in second.stdout
    found = result(run)
    assert (found["status"], found["step"], found["processes"]) == ("complete", 10, 2)
    assert found["held_out"]["bits_per_byte"] > 0
    assert [line["step"] for line in lines(run)] == list(range(1, 11))
    assert {"loss", "grad_norm", "lr", "entropy", "batch_entropy", "tokens_per_second"} <= set(
        lines(run)[0]
    )


@pytest.mark.slow
@pytest.mark.long
def test_world_sizes_see_the_same_batches_and_losses(tmp_path: Path) -> None:
    runs = {world: write_run(tmp_path, f"w{world}", eval_every=0) for world in (1, 2, 4)}
    for world, run in runs.items():
        done = torchrun(run, world)
        assert done.returncode == 0, done.stderr
    batches = {w: [line["batch_checksum"] for line in lines(run)] for w, run in runs.items()}
    assert batches[1] == batches[2] == batches[4]
    losses = {w: [line["loss"] for line in lines(run)] for w, run in runs.items()}
    assert losses[2] == pytest.approx(losses[1], rel=1e-5)
    assert losses[4] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
def test_a_resumed_run_equals_an_undisturbed_one_bit_for_bit(tmp_path: Path) -> None:
    whole, parts = write_run(tmp_path, "whole"), write_run(tmp_path, "parts", checkpoint_every=3)
    assert torchrun(whole).returncode == 0
    killed = torchrun(parts, GRISTMILL_FAULT="training.step:5")
    assert killed.returncode != 0
    assert "fault: training.step" in killed.stderr
    assert torchrun(parts).returncode == 0
    assert result(parts)["checkpoint"]["identity"] == result(whole)["checkpoint"]["identity"]
    for name in ("loss", "batch_checksum"):
        assert [one[name] for one in lines(parts)] == [one[name] for one in lines(whole)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The identity that an undisturbed run of one process ends with."""
    run = write_run(tmp_path_factory.mktemp("whole"))
    assert program(run).returncode == 0
    return str(result(run)["checkpoint"]["identity"])


@pytest.mark.faults
@pytest.mark.parametrize("point", CHECKPOINT_POINTS)
def test_killed_around_a_checkpoint_nothing_half_done_is_seen(
    tmp_path: Path, undisturbed: str, point: str
) -> None:
    run = write_run(tmp_path, checkpoint_every=2)
    nth = 1 if point == "training.result.before" else 2
    killed = program(run, GRISTMILL_FAULT=f"{point}:{nth}")
    assert killed.returncode == -signal.SIGKILL
    assert f"fault: {point}" in killed.stderr
    again = program(run)
    assert again.returncode == 0, again.stderr
    expected = {"after_rename": 4, "after_pointer": 4, "after_purge": 4, "before": 10}
    assert f"resumed from step-{expected.get(point.split('.')[-1], 2)}" in again.stdout
    assert result(run)["checkpoint"]["identity"] == undisturbed
    left = [p.name for p in (tmp_path / "checkpoints/mini/checkpoints").iterdir()]
    assert not [name for name in left if name.endswith((".tmp", ".old"))]


@pytest.mark.slow
def test_mlflow_has_one_value_a_step_after_a_kill(tmp_path: Path) -> None:
    from resources.tracking import Tracking

    tracking = Tracking(f"sqlite:///{tmp_path / 'mlflow.db'}", artifacts=tmp_path.as_uri())
    run = write_run(tmp_path, checkpoint_every=4, log_every=2, eval_every=5)
    kinds: dict[str, Any] = {"parameters": {"lr": 3e-3}, "configuration": run.read_text()}
    first = tracking.open_run("mini", **kinds)
    # at the second arrival there step 8 is logged, and its checkpoint is not committed
    fault = {"GRISTMILL_FAULT": "training.checkpoint.start:2", "GRISTMILL_FAULT_DELAY": "120"}
    process = subprocess.Popen(
        [sys.executable, "-m", "training.train", str(run)],
        cwd=ROOT,
        env=dict(os.environ) | first.environment() | fault | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    client: Any = tracking._client()
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if any(m.step == 8 for m in client.get_metric_history(first.run_id, "loss")):
            break
        time.sleep(0.5)
    process.kill()
    process.wait()
    second = tracking.open_run("mini", **kinds)
    assert second.run_id == first.run_id
    done = program(run, **second.environment())
    assert done.returncode == 0, done.stderr
    found = result(run)
    assert found["mlflow_problem"] is None
    history = client.get_metric_history(found["mlflow_run_id"], "loss")
    ours = {line["step"]: line["loss"] for line in lines(run)}
    assert sorted((m.step, m.value) for m in history) == sorted(ours.items())
    assert found["mlflow_run_id"] == tracking.find("mini") != first.run_id
    names = set(client.get_run(found["mlflow_run_id"]).data.metrics)
    assert {"grad_norm", "lr", "entropy", "batch_entropy", "tokens_per_second"} <= names
    assert "held_out_bits_per_byte" in names
    assert client.list_artifacts(found["mlflow_run_id"], "configuration")


@pytest.mark.slow
def test_sigterm_saves_and_leaves_with_success(tmp_path: Path) -> None:
    run = write_run(tmp_path, steps=100_000, checkpoint_every=50_000, eval_every=0)
    process = subprocess.Popen(
        [sys.executable, "-m", "training.train", str(run)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ) | {"OMP_NUM_THREADS": "1"},
    )
    metrics = run.parents[1] / "checkpoints/mini/metrics.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 0, output
    found = result(run)
    assert found["status"] == "stopped"
    assert found["checkpoint"]["step"] == found["step"] > 0


@pytest.mark.slow
def test_a_run_may_end_where_it_beats_the_frequencies_of_tokens(tmp_path: Path) -> None:
    keys = {"until": "unigram", "eval_every": 20, "steps": 2000, "lr": 1e-2, "global_batch": 16}
    run = write_run(tmp_path, micro_batch=16, **keys)
    assert program(run).returncode == 0
    found = result(run)
    assert (found["status"], found["reason"]) == ("complete", "below unigram entropy")
    assert found["step"] < 2000
    assert found["held_out"]["bits_per_byte"] < found["held_out"]["unigram_bits_per_byte"]
    again = program(run)
    assert "resumed from" in again.stdout
    assert result(run) | {"seconds": 0, "resumed_from_step": 0} == found | {
        "seconds": 0,
        "resumed_from_step": 0,
    }, "a finished run is not trained on"


@pytest.mark.slow
def test_without_held_out_shards_there_is_no_score(tmp_path: Path) -> None:
    run = write_run(tmp_path, shards=["shards/web-0"], steps=2)
    done = program(run)
    assert done.returncode == 0, done.stderr
    assert "no shard is held out" in done.stdout
    assert result(run)["held_out"] is None


@pytest.mark.slow
def test_wrong_files_end_with_2_before_anything_is_written(tmp_path: Path) -> None:
    done = torchrun(write_run(tmp_path, lr=99), 2)
    assert "RunConfigError" in done.stderr
    assert "lr is 99" in done.stderr
    assert "exitcode  : 2" in done.stderr
    assert not (tmp_path / "checkpoints").exists()


def test_what_the_system_refuses_is_one_sentence(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (tmp_path / "checkpoints").write_text("a file where a folder must be")
    ended = program(run)
    assert ended.returncode == 1
    told = [line for line in ended.stderr.splitlines() if "cannot go on" in line]
    assert told == [
        f"TrainingError: the run cannot go on: Not a directory ({tmp_path}/checkpoints/mini)"
    ]
    assert "hint: make room" in ended.stderr
    assert "Traceback" not in ended.stderr
