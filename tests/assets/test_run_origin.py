"""Runs of a process that was killed: marked as failed, and their slots in the pools free again."""

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets.instance import prepare_home
from assets.run_origin import PROCESS_TAG, end_dead_runs, located, started, tags

RUNNING = dg.DagsterRunStatus.STARTED


@dg.asset(pool="dedup")
def one() -> None:
    """An asset in a pool."""


JOB = dg.Definitions(assets=[one], jobs=[dg.define_asset_job("mill", [one])]).resolve_job_def(
    "mill"
)


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dg.DagsterInstance:
    """An instance as a store has it: one slot a pool."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    prepare_home(tmp_path)
    return dg.DagsterInstance.get()


def dead_process() -> str:
    """The tag of a process that has ended, on this machine."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        host, _, _ = tags()[PROCESS_TAG].partition(":")
        return f"{host}:{process.pid}:1"


def running(instance: dg.DagsterInstance, process: str) -> dg.DagsterRun:
    """A run that stands as running and has the slot of the pool."""
    run = instance.create_run_for_job(JOB, status=RUNNING, tags={PROCESS_TAG: process})
    assert instance.event_log_storage.initialize_concurrency_limit_to_default("dedup")
    claim = instance.event_log_storage.claim_concurrency_slot("dedup", run.run_id, "one")
    assert claim.is_claimed
    return run


def status(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    found = instance.get_run_by_id(run.run_id)
    assert found
    return found.status


def test_a_killed_run_is_failed_and_holds_nobody_up(instance: dg.DagsterInstance) -> None:
    run = running(instance, dead_process())
    end_dead_runs(instance)
    assert status(instance, run) == dg.DagsterRunStatus.FAILURE
    assert JOB.execute_in_process(instance=instance).success


def test_a_run_that_lives_keeps_its_slot(instance: dg.DagsterInstance) -> None:
    run = running(instance, tags()[PROCESS_TAG])
    elsewhere = instance.create_run_for_job(JOB, status=RUNNING, tags={PROCESS_TAG: "far:1:1"})
    end_dead_runs(instance)
    assert status(instance, run) == status(instance, elsewhere) == RUNNING
    assert instance.event_log_storage.get_concurrency_info("dedup").active_run_ids == {run.run_id}


def test_another_process_with_the_same_id_is_another() -> None:
    assert started(os.getpid()).isdigit()
    assert started(2**22 + 1) == ""


def test_runs_belong_to_the_location_of_the_workspace(instance: dg.DagsterInstance) -> None:
    workspace = (Path(__file__).parents[2] / "workspace.yaml").read_text()
    with located(instance, "mill"):
        done = JOB.execute_in_process(instance=instance, tags=tags())
    origin = done.dagster_run.remote_job_origin
    assert origin
    assert f"location_name: {origin.location_name}\n" in workspace
    assert JOB.execute_in_process(instance=instance).dagster_run.remote_job_origin is None
