"""Faults of what a training needs: disk, MLflow, the number of processes; the curve stays the same.

As in `test_training_faults`, with which `python -m tests.faults.table` runs them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.tracking import Tracking
from tests.faults.training import (
    SECONDS,
    STEPS,
    Training,
    fault,
    free_port,
    largest_difference,
    row,
    tracking,
    write,
)
from tests.training.miniature import ROOT, result

pytestmark = pytest.mark.faults

UNSHARE = ("unshare", "--user", "--map-root-user", "--mount")
FILLING = """
set -e
mount -t tmpfs -o size={small} none {folder}
{python} -m assets.cli train {run} && exit 99 || true
ls {folder} > {listing}
mount -o remount,size=64m {folder}
exec {python} -m assets.cli train {run}
"""


def can_mount() -> bool:
    """Whether this user may mount something in a namespace of its own."""
    command = [*UNSHARE, "mount", "-t", "tmpfs", "none", "/mnt"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def test_disk_full_while_saving(
    tmp_path: Path, undisturbed_run: Path, undisturbed: list[float]
) -> None:
    """A file system that has room for one checkpoint and a half; then it gets more."""
    if not can_mount():
        pytest.skip("`unshare --user --mount` may not mount a small file system here")
    run = write(tmp_path)
    folder = run.parents[1] / "checkpoints/mini/checkpoints"
    folder.mkdir(parents=True)
    whole = size_of_a_checkpoint(undisturbed_run)
    script = FILLING.format(
        small=whole + whole // 2, folder=folder, python=sys.executable, run=run,
        listing=tmp_path / "listing",
    )  # fmt: skip
    opened = tracking(run).open_run("mini", parameters={}, configuration="")
    done = subprocess.run(
        [*UNSHARE, "bash", "-c", script],
        cwd=ROOT,
        env=dict(os.environ) | opened.environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-6000:]
    told = r"step-8 could not be saved: .*No space left on device"
    assert re.search(told, text), text[-6000:]
    assert "attempt 2" not in text, "a full disk is no reason to start again"
    assert "step-4\n" in (tmp_path / "listing").read_text(), "the good one stays"
    lost_steps = 8 - int(text.rpartition("resumed from step-")[2].split()[0])
    row("disk full while saving", None, lost_steps, largest_difference(run, undisturbed))


def size_of_a_checkpoint(run: Path) -> int:
    """Bytes on disk of the last checkpoint of a run."""
    folder = run.parents[1] / f"checkpoints/mini/checkpoints/step-{STEPS}"
    return sum(-(-p.stat().st_size // 4096) * 4096 for p in folder.iterdir())


def test_mlflow_gone(tmp_path: Path, undisturbed: list[float]) -> None:
    """A real server is killed in mid-run: training ends, its steps follow when it is back."""
    run, mark = write(tmp_path), tmp_path / "mark"
    file = tracking(run)
    file.open_run("mini", parameters={}, configuration="")
    with mlflow_server(file.uri) as server:
        opened = Tracking(server.url).open_run("mini", parameters={}, configuration="")
        env = opened.environment() | fault(mark, "pass", rank=0, GRISTMILL_FAULT_DELAY="2")
        training = Training(run, ["assets.cli", "train", str(run)], env)
        training.until(mark.exists)
        server.stop()
        training.succeeded()
        assert result(run)["step"] == STEPS
        assert result(run)["mlflow_problem"]
        server.start()
        env = opened.environment()
        Training(run, ["assets.cli", "train", str(run)], env).succeeded()
        assert result(run)["mlflow_problem"] is None
    row("MLflow server gone from step 10 on", None, 0, largest_difference(run, undisturbed))


class MlflowServer:
    """`mlflow server` over a store, as a process."""

    def __init__(self, store: str) -> None:
        self.store, self.port = store, free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = ["mlflow", "server", "--backend-store-uri", self.store, "--workers", "1"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command, "--host", "127.0.0.1", "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + SECONDS
        while not self._answers():
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self) -> None:
        """Kill it with its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def mlflow_server(store: str) -> Iterator[MlflowServer]:
    """A running server, which is gone afterwards."""
    server = MlflowServer(store)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def test_other_numbers_of_processes(tmp_path: Path, undisturbed: list[float]) -> None:
    """Stopped at a checkpoint and materialised again with 1, 2 and 4 processes in place of 2."""
    run = write(tmp_path)
    training = Training.asset(run, "mini:2:4", "mini:1:8", "mini:2:12", "mini:4").succeeded()
    runs = [json.loads(text) for _, text in training.said if text.startswith('{"success"')]
    assert [one["success"] for one in runs] == [False, False, False, True], training.text[-6000:]
    for step, one in zip((4, 8, 12), runs, strict=False):
        assert f"run mini was stopped at step {step} of {STEPS}" in "".join(one["failed"])
        assert "its checkpoint is saved; start it again to go on" in "".join(one["failed"])
    for step, one in zip((4, 8, 12), runs[1:], strict=True):
        assert any(f"resumed from step-{step}" in text for text in one["logs"])
    assert result(run)["processes"] == 4
    row("2, 1, 2, 4 processes", None, 0, largest_difference(run, undisturbed))
