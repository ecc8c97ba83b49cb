"""A training launched in the web UI: ended by its button, and by the death of its Dagster process.

A real webserver, daemon and code server; the run goes the way of a click: queue, launcher, a
process for the run, torchrun, two ranks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.training.miniature import write_run

pytestmark = pytest.mark.faults

START_SECONDS = 180
GONE_SECONDS = 30
LAUNCH = """
mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
TERMINATE = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"
STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
SELECTOR = {
    "repositoryLocationName": "gristmill",
    "repositoryName": "__repository__",
    "jobName": "mill_run",
    "assetSelection": [{"path": ["checkpoints"]}],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store with a run that would train for an hour."""
    write_run(tmp_path, steps=100_000, eval_every=0, checkpoint_every=50_000)
    return tmp_path


@pytest.fixture
def ui(root: Path) -> Iterator[str]:
    """The address of the Dagster UI of the store."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "MLFLOW_"))}
    command = [sys.executable, "-m", "assets.cli", "up", "--root", str(root), "--port", "3800"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=kept) as process:
        assert process.stdout is not None
        found = ""
        for line in process.stdout:
            if line.startswith("Dagster: "):
                found = line.split()[1]
            if line.startswith("Ctrl-C"):
                break
        yield found
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def ask(url: str, query: str, **variables: Any) -> Any:
    """The answer of the UI's own interface."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["data"]


def wait_until(condition: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def launch(ui: str, root: Path) -> str:
    """Start the run as a click does; its id, once both ranks train."""
    tags = [{"key": "dagster/partition", "value": "mini"}]
    params = {"selector": SELECTOR, "runConfigData": {}, "executionMetadata": {"tags": tags}}
    made = ask(ui, LAUNCH, params=params)["launchRun"]
    assert made["__typename"] == "LaunchRunSuccess", made
    metrics = root / "checkpoints/mini/metrics.jsonl"
    assert wait_until(lambda: metrics.exists() and metrics.stat().st_size, START_SECONDS)
    assert ranks(root), "both ranks are processes of their own"
    return str(made["run"]["runId"])


def ranks(root: Path) -> list[psutil.Process]:
    """Processes of the training, agent and supervisor included."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        ended = process.info["status"] == psutil.STATUS_ZOMBIE
        if f"{root}/runs/mini.yaml" in line and not ended:
            found.append(process)
    return found


def status(ui: str, run: str) -> str:
    return str(ask(ui, STATUS, id=run)["runOrError"]["status"])


def test_terminating_in_the_ui_saves_and_ends_every_process(ui: str, root: Path) -> None:
    run = launch(ui, root)
    assert ask(ui, TERMINATE, id=run)["terminateRun"]["__typename"] == "TerminateRunSuccess"
    assert wait_until(lambda: not ranks(root), 60)
    assert wait_until(lambda: status(ui, run) == "CANCELED", 60)
    result = json.loads((root / "checkpoints/mini/result.json").read_text())
    assert result["status"] == "stopped"
    assert result["checkpoint"]["step"] > 0


def test_sigkill_of_the_process_of_the_run_leaves_no_rank(ui: str, root: Path) -> None:
    run = launch(ui, root)
    dagster_worker(root).kill()
    assert wait_until(lambda: not ranks(root), GONE_SECONDS)
    assert wait_until(lambda: status(ui, run) == "FAILURE", 90)


def dagster_worker(root: Path) -> psutil.Process:
    """The process in which Dagster runs the step: the parent of all that belongs to training."""
    training = ranks(root)
    inside = {process.pid for process in training}
    [worker] = {p.ppid() for p in training} - inside
    return psutil.Process(worker)
