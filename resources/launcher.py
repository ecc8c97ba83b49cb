"""Starts the training program, streams its log, hands signals on, and leaves no process behind.

Works from a script and inside a Dagster asset (through Pipes: progress and log lines of rank 0
reach the run live). The job runs under `resources/supervisor.py`, in a session of its own.
"""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, GristmillError

SUPERVISOR = Path(__file__).with_name("supervisor.py")
PROJECT = SUPERVISOR.parents[1]
GRACE_SECONDS = 25.0
"""From asking a job to stop to killing it: its own deadline for a checkpoint is 20 s."""
WAIT_SECONDS = 0.5
LAST_LINES = 20
CPU_PROCESSES = 2
FIRST_FAILURE = re.compile(
    r"Root Cause.*?rank\s*:\s*(?P<rank>\d+).*?exitcode\s*:\s*(?P<code>-?\d+)", re.DOTALL
)
OWN_ERROR = re.compile(r"(?P<name>TrainingError|RunConfigError|ShardError): (?P<text>.*)")
AGENT = "/torch/distributed/elastic/"  # in the agent's own report, which follows the ranks' lines
Say = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    code: int
    """Exit code; 128 + n where signal n ended it."""
    tail: list[str] = field(default_factory=list)
    """The last lines it printed."""


def run_command(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    say: Say | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> Ended:
    """Run a command to its end, handing every line it prints to `say` as it comes.

    SIGTERM to this process, KeyboardInterrupt and Dagster's interruption stop the command: it gets
    the signal, after `grace_seconds` SIGKILL; then the interruption goes on. Children that the
    command leaves behind are ended, so this returns soon after it even if they hold its output.
    """
    own = [sys.executable, str(SUPERVISOR), str(os.getpid()), str(grace_seconds)]
    process = subprocess.Popen(
        [*own, *command],
        env=dict(env) if env is not None else None,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    tail: deque[str] = deque(maxlen=200)
    reader = threading.Thread(target=_stream, args=(process, tail, say or _print), daemon=True)
    reader.start()
    with _handing_on(process, grace_seconds):
        code = _wait(process)
    reader.join(5)
    return Ended(code, list(tail))


def _wait(process: "subprocess.Popen[str]") -> int:
    """Its exit code. In short waits: Python handles a signal that reached another thread only when
    this one runs again, and Dagster's request to stop comes from a thread.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(WAIT_SECONDS)


def _stream(process: "subprocess.Popen[str]", tail: "deque[str]", say: Say) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            tail.append(line.rstrip("\n"))
            say(line.rstrip("\n"))


def _print(line: str) -> None:
    print(line, flush=True)


@contextmanager
def _handing_on(process: "subprocess.Popen[str]", grace_seconds: float) -> Iterator[None]:
    """While inside, whatever interrupts this process ends the job first."""
    main = threading.current_thread() is threading.main_thread()
    # Dagster has its own handler; but where SIGINT is ignored (a job in the background) it makes
    # SIGTERM ignored too, and nothing could end the training
    main = main and signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, signal.SIG_IGN)

    def interrupted(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupted) if main else None
    try:
        yield
    except BaseException:  # KeyboardInterrupt, or whatever Dagster raises for it
        _stop(process, grace_seconds)
        raise
    finally:
        if main and before is not None:
            signal.signal(signal.SIGTERM, before)


def _stop(process: "subprocess.Popen[str]", grace_seconds: float) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(grace_seconds + 10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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


def torchrun(module: str, arguments: Sequence[str], processes: int) -> list[str]:
    """The command that runs a module on `processes` ranks of this machine."""
    agent = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=0"]
    return [*agent, f"--nproc-per-node={processes}", "-m", module, *arguments]


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
    out: Path,
    processes: int | None = None,
    device: str = "auto",
    env: Mapping[str, str] | None = None,
    context: Any = None,
    say: Say | None = None,
    grace_seconds: float = GRACE_SECONDS,
) -> dict[str, Any]:
    """Train the run of `run_file` to its end and return its `result.json` (in `out`).

    `context`: a Dagster execution context, to which rank 0 then talks through Pipes. Raises
    ConfigError where GPUs are demanded and absent, or the run file is wrong; GristmillError naming
    rank, exit code and the last log lines where training fails, or where it was stopped before its
    end (a checkpoint is saved; run it again).
    """
    count = process_count(processes, device)
    command = torchrun("training.train", [str(run_file)], count)
    with _pipes(context) as variables:
        full = environment({**(env or {}), **variables})
        ended = run_command(command, env=full, say=say, grace_seconds=grace_seconds)
    if ended.code:
        what = f"training of {run_file.stem}"
        raise failure(what, ended)
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    if result["status"] != "complete":
        message = f"run {run_file.stem} was stopped at step {result['step']} of {result['steps']}"
        raise GristmillError(message, hint="its checkpoint is saved; start it again to go on")
    return result


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


def failure(what: str, ended: Ended) -> GristmillError:
    """The error for a failed job: the rank that failed first, its exit code, the last lines."""
    first = FIRST_FAILURE.search("\n".join(ended.tail))
    rank, code = (first["rank"], int(first["code"])) if first else ("0", ended.code)
    own = list(itertools.takewhile(lambda line: AGENT not in line, ended.tail))
    kind, said, hint = _said(own, rank)
    killed = f" ({signal.Signals(-code).name})" if code < 0 else ""
    message = f"{what} failed: rank {rank} ended with exit code {code}{killed}"
    hint = hint or "the last lines of its log stand below"
    last = "\n".join(own[-LAST_LINES:])
    return kind(f"{message}: {said}" if said else message, hint=f"{hint}\n{last}")


def _said(lines: Sequence[str], rank: str) -> tuple[type[GristmillError], str, str]:
    """(kind, sentence, hint) of the error that the job itself reported; empty where it did not."""
    for number, line in enumerate(lines):
        if match := OWN_ERROR.match(line):
            after = lines[number + 1] if number + 1 < len(lines) else ""
            hint = after.removeprefix("hint: ") if after.startswith("hint: ") else ""
            kind = ConfigError if match["name"] == "RunConfigError" else GristmillError
            return kind, match["text"], hint
    python = re.compile(rf"\[rank{rank}\]: (?P<text>[A-Za-z_.]+(?:Error|Exception)\b.*)")
    found = [match["text"] for line in lines if (match := python.match(line))]
    return GristmillError, found[-1] if found else "", ""
