"""What happens to a training in a month, done to real processes; then the curve is compared.

After every fault: the losses of a run that was left alone (1e-5), one value a step in the MLflow
run in force, no process left. `python -m tests.faults.table` prints what each cost.
"""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.faults.training import (
    FAULT_STEP,
    STEPS,
    Training,
    fault,
    free_port,
    largest_difference,
    left_over,
    row,
    write,
)
from tests.training.miniature import result

pytestmark = pytest.mark.faults

AGAIN = "attempt 2 of 101 begins, because"
HANG = {"launch": {"hang_seconds": 10, "slow_seconds": 60}}


def resumed_from(training: Training, attempt: int = -1) -> int:
    """The step from which an attempt went on; the last one's if not said otherwise."""
    steps = [
        int(line.rpartition("step-")[2])
        for _, line in training.said
        if line.startswith("resumed from step-")
    ]
    return steps[attempt]


def lost(training: Training) -> int:
    """Steps that were done twice."""
    return FAULT_STEP - resumed_from(training)


def test_sigkill_of_a_rank(tmp_path: Path, undisturbed: list[float]) -> None:
    run, mark = write(tmp_path), tmp_path / "mark"
    training = Training.launch(run, **fault(mark, "kill", rank=1)).succeeded()
    found = training.when(
        "attempt 2 of 101 begins, because rank 1 ended with exit code -9 (SIGKILL)"
    )
    row("SIGKILL of a rank", found - training.when("fault: training.step"), lost(training),
        largest_difference(run, undisturbed))  # fmt: skip
    assert f"(SIGKILL) after step {FAULT_STEP}; newest checkpoint: step " in training.text


def test_sigkill_of_the_agent(tmp_path: Path, undisturbed: list[float]) -> None:
    run, mark = write(tmp_path), tmp_path / "mark"
    training = Training.launch(run, **fault(mark, "sleep", rank=0))
    training.until(mark.exists)
    training.agent().kill()
    at = time.monotonic()
    training.succeeded()
    found = training.when(
        "attempt 2 of 101 begins, because the agent of torch.distributed.run ended"
    )
    row("SIGKILL of the torchrun agent", found - at, lost(training),
        largest_difference(run, undisturbed))  # fmt: skip


def test_sigkill_of_the_dagster_worker(tmp_path: Path, undisturbed: list[float]) -> None:
    """The step's process dies: its ranks save and end; materialised again, the run goes on."""
    run, mark = write(tmp_path), tmp_path / "mark"
    training = Training.asset(run, **fault(mark, "pass", rank=1, GRISTMILL_FAULT_DELAY="3"))
    training.until(mark.exists)
    training.process.kill()
    at = time.monotonic()
    training.wait()
    while left_over(run):
        assert time.monotonic() < at + 60
        time.sleep(0.1)
    gone = time.monotonic() - at
    assert result(run)["status"] == "stopped"
    again = Training.asset(run).succeeded()
    found = json.loads(again.said[-1][1])
    assert found["success"], again.text
    assert any(f"resumed from step-{result(run)['resumed_from_step']}" in t for t in found["logs"])
    row("SIGKILL of the Dagster worker (its processes are gone after)", gone,
        max(0, FAULT_STEP - result(run)["resumed_from_step"]),
        largest_difference(run, undisturbed))  # fmt: skip


def test_a_node_that_joins_late_and_is_lost(tmp_path: Path, undisturbed: list[float]) -> None:
    """Two agents with a rank each: the first trains alone, with the second, and alone again."""
    address = f"127.0.0.1:{free_port()}"
    settings = {"nodes": 2, "min_nodes": 1, "rendezvous": address, "last_call_seconds": 4}
    run = write(tmp_path, nproc_per_node=1, launch=settings, sigterm_seconds=29)
    waits, mark = tmp_path / "waits", tmp_path / "mark"
    early, late = ({"GRISTMILL_FAULT": f"training.step:{n}"} for n in (5, FAULT_STEP - 6))
    first = Training.launch(run, **fault(waits, "pass", GRISTMILL_FAULT_DELAY="25") | early)
    first.until(waits.exists)
    assert f"gristmill train {run} --join {address}" in first.text
    second = Training.launch(run, "--join", address, **fault(mark, "sleep") | late)
    first.until(mark.exists)
    node = psutil.Process(second.process.pid)
    at = time.monotonic()
    for process in [node, *node.children(recursive=True)]:
        process.kill()
    second.wait()
    first.succeeded()
    both = first.text + second.text
    assert "run mini stopped at step 6 (asked to stop)" in both, "saved for the one that joins"
    assert "resumed from step-6" in both
    assert "on 2 x cpu" in both
    assert result(run)["processes"] == 1
    found = first.when(AGAIN, "because rank ") - at
    goes_on = [t for t, line in first.said if line.startswith("resumed from")][-1] - at
    row(f"SIGKILL of a node of two (the other goes on alone after {goes_on:.0f} s)", found,
        lost(first), largest_difference(run, undisturbed))  # fmt: skip


def test_sigterm_to_the_ranks(tmp_path: Path, undisturbed: list[float]) -> None:
    """What a cluster does before it takes a machine away: every rank saves and ends with 0."""
    run, mark = write(tmp_path, checkpoint_every=100), tmp_path / "mark"
    env = fault(mark, "pass", rank=0, GRISTMILL_FAULT_DELAY="2")
    training = Training.launch(run, **env)
    training.until(mark.exists)
    for rank in (ranks := training.ranks()):
        rank.send_signal(signal.SIGTERM)
    at = time.monotonic()
    assert len(ranks) == 2
    assert training.wait() == 1
    stopped = result(run)
    assert (stopped["status"], stopped["reason"]) == ("stopped", "asked to stop")
    assert stopped["checkpoint"]["step"] == stopped["step"] >= FAULT_STEP
    assert f"run mini was stopped at step {stopped['step']} of {STEPS}" in training.text
    assert "attempt 2" not in training.text
    again = Training.launch(run).succeeded()
    assert resumed_from(again) == stopped["step"]
    row("SIGTERM to the ranks (saved and ended after)", training.said[-1][0] - at, 0,
        largest_difference(run, undisturbed))  # fmt: skip


@pytest.mark.parametrize(
    ("action", "name", "told", "because"),
    [
        ("sleep", "a rank that hangs in Python", "rank 1 hangs: no step finished for", "code 3"),
        ("stop", "SIGSTOP of a rank", "rank 1 is stopped: process ", "code -9 (SIGKILL)"),
    ],
    ids=["sleep", "stop"],
)
def test_a_rank_that_hangs(
    tmp_path: Path, undisturbed: list[float], action: str, name: str, told: str, because: str
) -> None:
    """Found within `launch.hang_seconds`, 10 here; the log shows where it hung."""
    run, mark = write(tmp_path, **HANG), tmp_path / "mark"
    training = Training.launch(run, **fault(mark, action, rank=1)).succeeded()
    found = training.when(told) - training.when("fault: training.step")
    assert f"{AGAIN} rank 1 ended with exit {because} after step {FAULT_STEP}" in training.text
    assert ("in _hurt" in training.text) == (action == "sleep")
    row(f"{name} (bound: 10 s)", found, lost(training), largest_difference(run, undisturbed))


def test_a_rank_that_dies_at_each_attempt(tmp_path: Path) -> None:
    """Restarts that bring nothing end soon, and the Dagster run says what happened, each time."""
    run = write(tmp_path, checkpoint_every=100)
    env = {"GRISTMILL_FAULT": "training.step:5", "GRISTMILL_FAULT_RANK": "1"}
    training = Training.asset(run, **env, GRISTMILL_FAULT_ACTION="exit").succeeded()
    found = json.loads(training.said[-1][1])
    assert not found["success"]
    failure = "".join(found["failed"])
    assert "training of mini failed: rank 1 ended with exit code 9" in failure
    assert "2 attempts in a row ended alike, without a checkpoint between them" in failure
    assert "fault: training.step" in failure, "the last lines of the log"
    because = f"{AGAIN} rank 1 ended with exit code 9 after step 5; newest checkpoint: none"
    assert because in "\n".join(found["logs"])
    assert left_over(run) == []
    ended = training.said[-1][0] - training.when("fault: training.step")
    assert ended < 60, "so the case rank-dies has it"
