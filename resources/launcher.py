"""Starts the training program, watches over its attempts, and leaves no process behind.

Works from a script and inside a Dagster asset (through Pipes: progress and log lines of rank 0
reach the run live). `torch.distributed.run` starts the ranks of one host and starts them again
after a failure; several hosts meet at an address of the one that launches.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, GristmillError
from resources.attempts import Attempts, failure
from resources.command import GRACE_SECONDS, Ended, Say, run_command, say_here
from resources.hardware import this_device
from training.config import RunConfig, load_run
from training.planning.footprint import check_fit
from training.ranks.watchdog import VARIABLE as BEATS
from training.settings.launch import LaunchConfig
from training.vocabulary import Vocabulary

PROJECT = Path(__file__).parents[1]
CPU_PROCESSES = 2
PORT = 29400
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Each attempt's first rank serves a store of its own. With the agents' an agent publishes its
address in its first round only, and a host that joins later waits for it until all fail."""
KEEP_ALIVE = "keep_alive_interval=2,keep_alive_max_attempt=3"
"""A host that is silent for 6 s has left: with these it took 32 s to go on without it."""


def process_count(wanted: int | None, device: str = "auto") -> int:
    """Processes of a run: as wanted, else one a GPU, else two on the CPU.

    Raises ConfigError where GPUs are demanded and there are not enough.
    """
    gpus = gpu_count()
    if device == "cuda" and gpus < (wanted or 1):
        message = f"device is cuda with {wanted or 1} processes, and this machine has {gpus} GPUs"
        hint = "set device: cpu (or auto), or run where `nvidia-smi -L` lists them"
        raise ConfigError(message, hint=hint)
    return wanted or (gpus if gpus and device != "cpu" else CPU_PROCESSES)


def gpu_count() -> int:
    """GPUs the driver lists, without importing torch; CUDA_VISIBLE_DEVICES counts."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in {"", "-1"}])
    try:
        listed = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


def torchrun(
    module: str,
    arguments: Sequence[str],
    processes: int,
    *,
    restarts: int = 0,
    meeting: Sequence[str] = ("--standalone",),
) -> list[str]:
    """The command of an agent that runs a module on `processes` ranks of this machine."""
    agent = [sys.executable, "-m", "torch.distributed.run", *meeting]
    agent += [f"--max-restarts={restarts}", f"--nproc-per-node={processes}"]
    return [*agent, "-m", module, *arguments]


def meeting(name: str, settings: LaunchConfig, join: str | None = None) -> list[str]:
    """The options by which agents of several hosts meet; `join`: at another host's address.

    The host that launches keeps the list of members: it must survive, the others may go.
    """
    if settings.nodes == 1 and join is None:
        return ["--standalone"]
    address = join or settings.rendezvous or f"{socket.getfqdn()}:{PORT}"
    configuration = (
        f"is_host={join is None},join_timeout={settings.join_seconds:.0f},"
        f"last_call_timeout={settings.last_call_seconds},{KEEP_ALIVE}"
    )
    options = [
        f"--nnodes={settings.fewest}:{settings.nodes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={address}",
        f"--rdzv-id={name}",
        f"--rdzv-conf={configuration}",
    ]
    host = address.rpartition(":")[0]
    return [*options, f"--local-addr={host}"] if host in {"localhost", "127.0.0.1"} else options


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment and what training needs: the project's path, one thread a rank."""
    path = os.environ.get("PYTHONPATH")
    env = dict(os.environ) | {
        "PYTHONPATH": f"{PROJECT}{os.pathsep}{path}" if path else str(PROJECT),
        "PYTHONUNBUFFERED": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
    }
    env.setdefault("OMP_NUM_THREADS", "1")
    return env | dict(extra or {})


def launch(
    run_file: Path,
    *,
    join: str | None = None,
    env: Mapping[str, str] | None = None,
    context: Any = None,
    say: Say | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> dict[str, Any]:
    """Train the run of `run_file` to its end and return its `result.json`.

    `join`: take part as a further host, at the `host:port` of the one that launched. `context`: a
    Dagster execution context, to which rank 0 then talks through Pipes, and whose log tells of
    every attempt. Raises ConfigError where GPUs are demanded and absent, RunConfigError where the
    run file is wrong or does not fit the processes; GristmillError naming rank, exit code and the
    last log lines where training fails, or where it was stopped before its end (a checkpoint is
    saved; run it again).
    """
    run = load_run(run_file)
    count = process_count(run.nproc_per_node, run.device)
    check_worlds(run, count)
    say = say or say_here
    tell = context.log.warning if context is not None else say
    if run.launch.nodes > 1 and join is None:
        tell(f"another host takes part with: {joining(run_file, run)}")
    before = _result(run)
    with _pipes(context) as variables, _beats() as beats:
        variables |= {BEATS: str(beats)}
        if run.launch.nodes > 1 or join is not None:
            variables |= OWN_STORE
        full = environment({**(env or {}), **variables})
        attempts = Attempts(run.out, beats, run.launch.restarts, tell)
        ended = _attempt(run, run_file, count, attempts, full, join, say, grace_seconds)
    result = _result(run)
    stopped = result != before and result.get("status") == "stopped"
    if ended.code and not stopped:
        what = f"training of {run.name}"
        raise attempts.failure(what, ended)
    if stopped or result.get("status") != "complete":
        message = f"run {run.name} was stopped at step {result.get('step')} of {run.steps}"
        raise GristmillError(message, hint="its checkpoint is saved; start it again to go on")
    return result


def _attempt(
    run: RunConfig,
    run_file: Path,
    processes: int,
    attempts: Attempts,
    env: Mapping[str, str],
    join: str | None,
    say: Say,
    grace_seconds: float,
) -> Ended:
    """Run an agent, and another one where it was killed itself; how the last one ended."""

    def hear(line: str) -> None:
        say(line)
        attempts.hear(line)

    while True:
        command = torchrun(
            "training.train",
            [str(run_file)],
            processes,
            restarts=attempts.left,
            meeting=meeting(run.name, run.launch, join),
        )
        ended = run_command(
            command, env=env, say=hear, grace_seconds=grace_seconds, until=lambda: attempts.enough
        )
        if not attempts.agent_gone(ended):
            return ended


def check_worlds(run: RunConfig, processes: int) -> None:
    """RunConfigError where a number of hosts that the run may have cannot share it, or hold it."""
    vocab_size = Vocabulary.open(run.tokenizer).size
    device = this_device(run.device, processes)
    for nodes in range(run.launch.fewest, run.launch.nodes + 1):
        check_fit(run, processes * nodes, vocab_size, device)


def joining(run_file: Path, run: RunConfig) -> str:
    """The command by which another host takes part; it needs the same storage root."""
    address = run.launch.rendezvous or f"{socket.getfqdn()}:{PORT}"
    return f"gristmill train {run_file} --join {address}"


def _result(run: RunConfig) -> dict[str, Any]:
    """`result.json` of the run as it is; empty where there is none."""
    file = run.out / "result.json"
    return dict(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}


@contextmanager
def _beats() -> Iterator[Path]:
    """A folder for the beats of this host's ranks."""
    folder = Path(tempfile.mkdtemp(prefix="gristmill-beats-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _pipes(context: Any) -> Iterator[dict[str, str]]:
    """The variables by which rank 0 finds the Dagster run; none without a context."""
    if context is None:
        yield {}
        return
    from dagster import PipesEnvContextInjector, PipesTempFileMessageReader, open_pipes_session

    injector, reader = PipesEnvContextInjector(), PipesTempFileMessageReader()
    with open_pipes_session(context, injector, reader) as session:
        yield dict(session.get_bootstrap_env_vars())


def run_program(
    module: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    say: Say | None = None,
) -> None:
    """Run one of training's single-process programs (`training.evaluate`, `training.export`).

    Raises GristmillError with its own sentence where it fails.
    """
    command = [sys.executable, "-m", module, *arguments]
    ended = run_command(command, env=environment(env), say=say)
    if ended.code:
        raise failure(module, ended)
