"""A training as a process of its own, hurt at a chosen step, and compared with an undisturbed one.

training = Training.launch(run, fault=fault(tmp_path, "kill", rank=1))
training.wait()
training.check(undisturbed)
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from resources.tracking import Tracking
from tests.training.miniature import ROOT, lines, program, write_run

STEPS, CHECKPOINT_EVERY, FAULT_STEP = 16, 4, 10
TOLERANCE = 1e-5
SECONDS = 300
TABLE = "GRISTMILL_FAULT_TABLE"
"""Names a file to which the rows of the fault table are added, as lines of JSON."""
KEYS: dict[str, Any] = {
    "steps": STEPS,
    "checkpoint_every": CHECKPOINT_EVERY,
    "log_every": 1,
    "eval_every": 0,
    "nproc_per_node": 2,
}


@pytest.fixture(scope="session")
def undisturbed_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process that nothing happened to."""
    run = write(tmp_path_factory.mktemp("undisturbed"), nproc_per_node=1)
    assert program(run).returncode == 0
    return run


@pytest.fixture(scope="session")
def undisturbed(undisturbed_run: Path) -> list[float]:
    """Its losses."""
    return losses(undisturbed_run)


def write(root: Path, **keys: Any) -> Path:
    """The run file of every fault test."""
    return write_run(root, **(KEYS | keys))


def fault(mark: Path, action: str, *, rank: int | None = None, **more: str) -> dict[str, str]:
    """The environment in which a rank is hurt once, after `FAULT_STEP`; `mark` then exists."""
    env = {
        "GRISTMILL_FAULT": f"training.step:{FAULT_STEP}",
        "GRISTMILL_FAULT_ACTION": action,
        "GRISTMILL_FAULT_MARK": str(mark),
    }
    return env | ({} if rank is None else {"GRISTMILL_FAULT_RANK": str(rank)}) | more


class Training:
    """One command that trains, its lines with the times at which they came, and its processes."""

    def __init__(self, run: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
        self.run, self.said = run, [(time.monotonic(), "")]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "MLFLOW_"))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def launch(cls, run: Path, *options: str, **env: str) -> Training:
        """`gristmill train`, with an MLflow run in the root's file."""
        opened = tracking(run).open_run(run.stem, parameters={}, configuration=run.read_text())
        return cls(run, ["assets.cli", "train", str(run), *options], opened.environment() | env)

    @classmethod
    def asset(cls, run: Path, *runs: str, **env: str) -> Training:
        """The asset, materialised by Dagster."""
        root = run.parents[1]
        return cls(run, ["tests.faults.asset", str(root), *(runs or (run.stem,))], env)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as printed:
            for line in printed:
                self.said.append((time.monotonic(), line.rstrip("\n")))

    @property
    def text(self) -> str:
        """All it printed so far."""
        return "\n".join(line for _, line in self.said)

    def when(self, *parts: str) -> float:
        """The time of the first line that holds all these parts; it must be there."""
        found = [at for at, line in self.said if all(part in line for part in parts)]
        assert found, f"no line with {parts} in:\n{self.text[-6000:]}"
        return found[0]

    def until(self, condition: Callable[[], object], seconds: float = SECONDS) -> None:
        """Wait for a condition while the command lives."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"it has ended:\n{self.text[-6000:]}"
            assert time.monotonic() < deadline, f"not within {seconds} s:\n{self.text[-6000:]}"
            time.sleep(0.05)

    def wait(self) -> int:
        """Its exit code, and all its lines read."""
        code = self.process.wait(SECONDS)
        self._reader.join(10)
        return code

    def below(self, marker: str) -> list[psutil.Process]:
        """Processes that it started whose command line holds `marker`."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if marker in line_of(child)]

    def agent(self) -> psutil.Process:
        """The agent of `torch.distributed.run`."""
        [agent] = [
            child
            for child in self.below("torch.distributed.run")
            if "supervisor.py" not in line_of(child)
        ]
        return agent

    def ranks(self) -> list[psutil.Process]:
        """The processes of the ranks."""
        return [p for p in self.below("training.train") if "torch.distributed" not in line_of(p)]

    def succeeded(self) -> Training:
        """It must end well."""
        assert self.wait() == 0, self.text[-6000:]
        return self


def line_of(process: psutil.Process) -> str:
    """Its command line; empty for one that is gone or a zombie."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def tracking(run: Path) -> Tracking:
    """MLflow in a file of the run's storage root: a copy of an empty one, whose tables took 5 s."""
    file = run.parents[1] / "mlflow.db"
    if not file.exists():
        shutil.copyfile(_empty_store(), file)
    return Tracking.of_root(run.parents[1])


@cache
def _empty_store() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="gristmill-mlflow-"))
    atexit.register(shutil.rmtree, folder)
    assert Tracking.of_root(folder).find("none") is None
    return folder / "mlflow.db"


def free_port() -> int:
    """A port of this host that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def left_over(run: Path) -> list[str]:
    """Command lines of processes that still have to do with a run."""
    return [line for p in psutil.process_iter() if str(run) in (line := line_of(p))]


def losses(run: Path) -> list[float]:
    """The loss of each step, which must be there once, in order."""
    steps = lines(run)
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    return [line["loss"] for line in steps]


def largest_difference(run: Path, undisturbed: Sequence[float]) -> float:
    """The curve, MLflow's history and the processes of a run that has ended, as they must be.

    Returns the largest difference of a loss; AssertionError where it is above `TOLERANCE`, where
    the MLflow run in force has not exactly one value a step, or where a process is left.
    """
    assert left_over(run) == []
    ours = losses(run)
    largest = max(abs(a - b) for a, b in zip(ours, undisturbed, strict=True))
    assert largest <= TOLERANCE, f"{largest} at {ours} against {undisturbed}"
    store = tracking(run)
    client: Any = store._client()
    history = client.get_metric_history(store.find(run.stem), "loss")
    assert sorted((m.step, m.value) for m in history) == list(enumerate(ours, 1))
    return largest


def row(name: str, found_after: float | None, lost_steps: int | None, difference: float) -> None:
    """A row of the fault table: printed, and added to the file that `TABLE` names."""
    content = {
        "fault": name,
        "found_after_seconds": None if found_after is None else round(found_after, 1),
        "lost_steps": lost_steps,
        "largest_loss_difference": difference,
    }
    print(json.dumps(content))
    if place := os.environ.get(TABLE):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(json.dumps(content) + "\n")
