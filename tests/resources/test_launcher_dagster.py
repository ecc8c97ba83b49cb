"""The launcher inside a Dagster run: progress reaches it; terminating it ends every rank."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.resources.test_launcher import alive, wait_until
from tests.training.miniature import ROOT, result, write_run

RUN = """
import sys, json
from pathlib import Path
import dagster as dg
from resources.launcher import launch

@dg.asset
def checkpoints(context: dg.AssetExecutionContext):
    found = launch(Path(sys.argv[1]), context=context)
    return dg.MaterializeResult(metadata={"step": found["step"]})

if __name__ == "__main__":
    instance = dg.DagsterInstance.ephemeral()
    done = dg.materialize([checkpoints], instance=instance, raise_on_error=False)
    logs = [e.user_message for e in instance.all_logs(done.run_id)]
    print(json.dumps({"success": done.success, "logs": logs}))
"""


def dagster_run(run: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(run)],
        cwd=ROOT,
        env=dict(os.environ) | {"DAGSTER_DISABLE_TELEMETRY": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_progress_of_rank_0_stands_in_the_run(tmp_path: Path) -> None:
    process = dagster_run(write_run(tmp_path, eval_every=5))
    output, errors = process.communicate(timeout=120)
    found = json.loads(output.splitlines()[-1])
    assert found["success"], errors[-2000:]
    said = "\n".join(found["logs"])
    assert "run mini: 37,856 parameters on 2 x cpu" in said
    assert "step 10/10" in said
    assert "tokens/s" in said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_terminating_the_run_saves_and_ends_every_process(tmp_path: Path, number: int) -> None:
    run = write_run(tmp_path, steps=100_000, eval_every=0, checkpoint_every=50_000)
    metrics = tmp_path / "checkpoints" / "mini" / "metrics.jsonl"
    process = dagster_run(run)
    assert wait_until(lambda: metrics.exists() and metrics.stat().st_size, 90)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert wait_until(lambda: not alive(str(run)), 10)
    assert result(run)["status"] == "stopped"
    assert result(run)["checkpoint"]["step"] > 0


@pytest.mark.slow
def test_sigkill_of_the_worker_leaves_no_rank_alive(tmp_path: Path) -> None:
    run = write_run(tmp_path, steps=100_000, eval_every=0)
    metrics = tmp_path / "checkpoints" / "mini" / "metrics.jsonl"
    process = dagster_run(run)
    assert wait_until(lambda: metrics.exists() and metrics.stat().st_size, 90)
    process.kill()
    process.communicate(timeout=60)
    assert wait_until(lambda: not alive(str(run)), 30)
