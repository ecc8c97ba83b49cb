from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pipeline.errors import ConfigError, GristmillError
from resources.attempts import failure
from resources.command import run_command
from resources.launcher import check_worlds, launch, meeting, process_count
from tests.training.miniature import ROOT, write_run
from training.config import load_run
from training.errors import RunConfigError
from training.settings.launch import LaunchConfig


def alive(marker: str) -> list[int]:
    """Processes whose command line holds `marker`, zombies and this test aside."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if marker in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return [pid for pid in found if pid != os.getpid()]


def wait_until(condition: object, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("child", ["sleep 300.25", "setsid sleep 300.25"])
def test_a_child_that_holds_the_pipe_is_ended_soon_after_the_job(child: str) -> None:
    said: list[str] = []
    began = time.monotonic()
    ended = run_command(["bash", "-c", f"echo done; {child} & exit 0"], say=said.append)
    assert time.monotonic() - began < 15
    assert (ended.code, said) == (0, ["done"])
    assert not alive("sleep 300.25")


def test_lines_arrive_while_the_job_runs() -> None:
    times: list[float] = []
    run_command(
        ["bash", "-c", "echo one; sleep 0.6; echo two"],
        say=lambda _: times.append(time.monotonic()),
    )
    assert times[1] - times[0] > 0.4


def test_exit_codes_and_signals_come_back() -> None:
    assert run_command(["bash", "-c", "exit 9"]).code == 9
    assert run_command(["bash", "-c", "kill -KILL $$"]).code == 137


LAUNCHER = """
import sys
from resources.command import run_command
print(run_command(["bash", "-c", {job!r}], grace_seconds={grace}).code)
"""


def start(job: str, grace: float = 3) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LAUNCHER.format(job=job, grace=grace)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_is_handed_on_and_the_job_may_save(tmp_path: Path, number: int) -> None:
    mark = tmp_path / "saved"
    job = f"trap 'touch {mark}; exit 0' TERM INT; echo up; while true; do sleep 0.1; done"
    launcher = start(job)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "up\n"
    launcher.send_signal(number)
    assert launcher.wait(15) != 0, "the launcher itself was interrupted"
    assert mark.exists()
    assert not alive(str(mark))
    launcher.communicate()


def test_who_does_not_stop_is_killed_with_all_its_children(tmp_path: Path) -> None:
    job = f"trap '' TERM INT; echo up; bash -c \"trap '' TERM; sleep 311.5; : {tmp_path}\""
    launcher = start(job, grace=1)
    assert launcher.stdout is not None
    launcher.stdout.readline()
    launcher.send_signal(signal.SIGTERM)
    launcher.wait(15)
    assert wait_until(lambda: not alive("311.5"), 5)
    launcher.communicate()


def test_sigkill_of_the_launcher_leaves_nothing_alive(tmp_path: Path) -> None:
    job = f"trap '' TERM; echo up; sleep 322.5 & setsid sleep 322.5 & sleep 322.5; : {tmp_path}"
    launcher = start(job, grace=1)
    assert launcher.stdout is not None
    launcher.stdout.readline()
    assert wait_until(lambda: len(alive("sleep 322.5")) >= 3, 5)
    launcher.kill()
    launcher.communicate()
    assert wait_until(lambda: not alive("322.5"), 15)


STOPS = """
import os, signal, sys, time
from training.ranks import watchdog
from training.settings.launch import LaunchConfig
watchdog.start(0, LaunchConfig(hang_seconds=5))
watchdog.beat(12)
time.sleep(0.1)
if sys.argv[1] == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(3.5)
"""


@pytest.mark.parametrize(("action", "code"), [("stop", 137), ("work", 0)])
def test_a_process_whose_beat_stopped_is_ended(tmp_path: Path, action: str, code: int) -> None:
    lines: list[str] = []
    env = dict(os.environ) | {"GRISTMILL_BEATS": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", STOPS, action]
    assert run_command(command, env=env, say=lines.append).code == code
    said = [line for line in lines if line.startswith("rank 0 is stopped: process ")]
    assert len(said) == (1 if action == "stop" else 0), lines
    assert all("s after step 12;" in line for line in said)


def options(**launch: object) -> list[str]:
    return meeting("r", LaunchConfig.model_validate(launch))


def test_where_agents_meet() -> None:
    assert options() == ["--standalone"]
    two = options(nodes=4, min_nodes=2, rendezvous="trainer-0:29500", last_call_seconds=9)
    assert two[:4] == [
        "--nnodes=2:4",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=trainer-0:29500",
        "--rdzv-id=r",
    ]
    assert "is_host=True,join_timeout=120,last_call_timeout=9,keep_alive_interval=2" in two[4]
    assert len(two) == 5
    joins = meeting("r", LaunchConfig(nodes=2), "trainer-0:29500")
    assert "--rdzv-endpoint=trainer-0:29500" in joins
    assert "is_host=False" in joins[4]
    assert options(nodes=2, rendezvous="127.0.0.1:29500")[5:] == ["--local-addr=127.0.0.1"]
    assert f"--rdzv-endpoint={socket.getfqdn()}:29400" in options(nodes=2)


@pytest.mark.parametrize(
    ("launch", "processes", "complaint"),
    [
        ({"nodes": 2}, 2, None),
        ({"nodes": 3}, 1, "global_batch 4 cannot be shared by 3 processes"),
        ({"nodes": 4, "min_nodes": 2}, 1, "cannot be shared by 3 processes"),
        ({"nodes": 2, "min_nodes": 1}, 2, None),
    ],
)
def test_every_number_of_hosts_must_be_able_to_train(
    tmp_path: Path, launch: dict[str, int], processes: int, complaint: str | None
) -> None:
    run = load_run(write_run(tmp_path, launch=launch))
    if complaint is None:
        check_worlds(run, processes)
        return
    with pytest.raises(RunConfigError, match=complaint):
        check_worlds(run, processes)


def test_a_recipe_that_does_not_fit_the_memory_is_refused_before_launch(tmp_path: Path) -> None:
    model = {"layers": 512, "dim": 16384, "ffn": 53248}
    file = write_run(tmp_path, recipe="dense_8b", model=model, nproc_per_node=2, device="cpu")
    said: list[str] = []
    with pytest.raises(RunConfigError, match=r"needs about .* GiB on 2 processes"):
        launch(file, say=said.append)
    assert said == []
    assert not (tmp_path / "checkpoints").exists()


def test_gpus_demanded_where_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert process_count(None) == 2
    assert process_count(3) == 3
    with pytest.raises(ConfigError, match="has 0 GPUs"):
        process_count(None, "cuda")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert process_count(None) == 3
    assert process_count(None, "cpu") == 2


DIES = """
import os, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
for step in range(100):
    print("rank", os.environ["RANK"], "step", step, flush=True)
    if os.environ["RANK"] == "1" and step == 5:
        os._exit(9)
    time.sleep(0.05)
time.sleep(333)
"""


@pytest.mark.slow
def test_a_rank_that_dies_is_named_with_its_exit_code(tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    began = time.monotonic()
    ended = run_command([*command, "--nproc-per-node=2", str(script)], say=lambda line: None)
    assert time.monotonic() - began < 60
    error = failure("training of r", ended)
    assert error.message == "training of r failed: rank 1 ended with exit code 9"
    assert "rank 1 step 5" in str(error.hint)
    assert not alive(str(script))


@pytest.mark.slow
def test_a_killed_rank_and_a_killed_launcher_end_the_training(tmp_path: Path) -> None:
    run = write_run(tmp_path, steps=100_000, eval_every=0)
    out = tmp_path / "checkpoints" / "mini"
    fault = {"GRISTMILL_FAULT": "training.step:3", "GRISTMILL_FAULT_RANK": "1"}
    with pytest.raises(GristmillError, match=r"rank 1 ended with exit code -9 \(SIGKILL\)"):
        launch(run, env=fault, say=lambda line: None)
    assert not alive(str(run))
    code = (
        "import sys; from pathlib import Path; from resources.launcher import launch\n"
        "launch(Path(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(run)]
    launcher = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    assert wait_until(lambda: (out / "metrics.jsonl").exists() and len(alive(str(run))) >= 4, 90)
    launcher.kill()
    launcher.wait()
    assert wait_until(lambda: not alive(str(run)), 30)


@pytest.mark.slow
def test_the_agent_alone_killed_leaves_no_rank(tmp_path: Path) -> None:
    run = write_run(tmp_path, steps=100_000, eval_every=0)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    agent = subprocess.Popen(
        [*command, "--nproc-per-node=2", "-m", "training.train", str(run)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    metrics = tmp_path / "checkpoints" / "mini" / "metrics.jsonl"
    assert wait_until(lambda: metrics.exists() and metrics.stat().st_size, 90)
    agent.kill()
    agent.wait()
    assert wait_until(lambda: not alive(str(run)), 30)
