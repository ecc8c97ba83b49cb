from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from tests.training.miniature import ROOT, write_run
from training.config import load_run
from training.errors import RunConfigError
from training.ranks.watchdog import HUNG, VARIABLE, waits_for_others

PROGRAM = """
import sys, time
from training.ranks import watchdog
from training.settings.launch import LaunchConfig

def waits_in_vain():
    time.sleep({sleeps})

watchdog.start(2, LaunchConfig(hang_seconds=5, slow_seconds=30))
{body}
watchdog.stop()
time.sleep(1)
print("done")
"""
BODIES = {
    "hangs": "watchdog.beat(7); waits_in_vain()",
    "starts": "waits_in_vain()",
    "evaluates": "watchdog.beat(7)\nwith watchdog.slow('evaluation'): waits_in_vain()",
    "steps": "for step in range(16):\n    watchdog.beat(step); time.sleep(0.5)",
    "ended": "watchdog.beat(7); watchdog.stop(); waits_in_vain()",
}


def test_only_a_rank_that_finishes_no_step_is_ended_and_shows_where() -> None:
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(body=body, sleeps=8)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, body in BODIES.items()
    }
    outputs = {name: process.communicate(timeout=60) for name, process in processes.items()}
    codes = {name: process.returncode for name, process in processes.items()}
    assert codes == {name: HUNG if name == "hangs" else 0 for name in BODIES}
    told = outputs["hangs"][1]
    assert told.startswith("rank 2 hangs: no step finished for 4 s after step 7 ")
    assert "(launch.hang_seconds 5)" in told
    assert "in waits_in_vain" in told
    assert {outputs[name] for name in BODIES if name != "hangs"} == {("done\n", "")}


def test_a_launcher_that_is_gone_is_named(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "training.train", str(write_run(tmp_path))],
        cwd=ROOT,
        env=os.environ | {VARIABLE: str(tmp_path / "gone"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"TrainingError: {VARIABLE} names the folder {tmp_path}/gone")
    assert "Traceback" not in ended.stderr


def frame_in(path: str, calls: int) -> FrameType:
    """A frame `calls` calls above one of a file of that name."""
    code = "import sys\ndef up(n): return up(n - 1) if n else sys._getframe()\nfound = up(0)"
    space: dict[str, FrameType] = {}
    exec(compile(code.replace("up(0)", f"up({calls})"), path, "exec"), space)
    return space["found"]


def test_a_wait_for_others_is_told_by_the_innermost_calls() -> None:
    own, torch = "/x/training/data.py", "/x/torch/distributed/distributed_c10d.py"
    assert waits_for_others(frame_in(torch, 0))
    assert not waits_for_others(frame_in(own, 0))
    assert not waits_for_others(None)


@pytest.mark.parametrize(
    ("launch", "complaint"),
    [
        ({"nodes": 62}, None),
        ({"nodes": "1:2"}, "launch.nodes is '1:2'"),
        ({"nodes": 2, "min_nodes": 3}, "launch.min_nodes 3 must not exceed launch.nodes 2"),
        ({"nodes": 2, "min_nodes": 2}, None),
        ({"hang_seconds": 4}, "launch.hang_seconds is 4"),
        ({"hang_seconds": 60, "slow_seconds": 59}, "launch.slow_seconds 59 must not be below"),
        ({"hang_seconds": 60, "slow_seconds": 60}, None),
        ({"rendezvous": "trainer:29400"}, None),
        ({"rendezvous": "trainer"}, "launch.rendezvous is 'trainer'"),
        ({"restarts": -1}, "launch.restarts is -1"),
    ],
)
def test_limits_of_a_job(tmp_path: Path, launch: dict[str, object], complaint: str | None) -> None:
    from tests.training.miniature import write_run

    run = write_run(tmp_path, launch=launch)
    if complaint is None:
        assert load_run(run).launch
        return
    with pytest.raises(RunConfigError, match=complaint):
        load_run(run)
