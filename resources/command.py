"""Runs a command, streams its lines, hands signals on, and leaves no process behind.

The command runs under `resources/supervisor.py`, in a session of its own.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

SUPERVISOR = Path(__file__).with_name("supervisor.py")
GRACE_SECONDS = 25.0
"""From asking a job to stop to killing it: its own deadline for a checkpoint is 20 s."""
WAIT_SECONDS = 0.5
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
    until: Callable[[], object] | None = None,
) -> Ended:
    """Run a command to its end, handing every line it prints to `say` as it comes.

    SIGTERM to this process, KeyboardInterrupt and Dagster's interruption stop the command: it gets
    the signal, after `grace_seconds` SIGKILL; then the interruption goes on. It is stopped too as
    soon as `until` (asked twice a second) is true. Children that the command leaves behind are
    ended, so this returns soon after it even if they hold its output.
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
    reader = threading.Thread(target=_stream, args=(process, tail, say or say_here), daemon=True)
    reader.start()
    with _handing_on(process, grace_seconds):
        code = _wait(process, grace_seconds, until)
    reader.join(5)
    return Ended(code, list(tail))


def say_here(line: str) -> None:
    """A line on this process's output, at once."""
    print(line, flush=True)


def _wait(
    process: "subprocess.Popen[str]", grace_seconds: float, until: Callable[[], object] | None
) -> int:
    """Its exit code. In short waits: Python handles a signal that reached another thread only when
    this one runs again, and Dagster's request to stop comes from a thread.
    """
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(WAIT_SECONDS)
        if until is not None and until():
            _stop(process, grace_seconds)


def _stream(process: "subprocess.Popen[str]", tail: "deque[str]", say: Say) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            tail.append(line.rstrip("\n"))
            say(line.rstrip("\n"))


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
