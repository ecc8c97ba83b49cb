"""Kill a command at a named point, then let it finish: the pattern of every fault test.

killed = run_until_killed(command, "store.swap.before")
run_undisturbed(command)
assert result == the result of a run that never died
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pipeline.faults import VARIABLE

SECONDS = 300


def run_until_killed(
    command: Sequence[str],
    point: str,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    by_worker: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `command`, which must die by SIGKILL at `point` (`name` or `name:n`).

    `by_worker`: the point is met by a worker process; the command itself must fail and say so.
    """
    done = _run(command, cwd, {**(env or {}), VARIABLE: point})
    name = point.partition(":")[0]
    assert f"fault: {name}\n" in done.stderr, f"{point} was not reached: {_tail(done)}"
    if by_worker:
        assert done.returncode == 1, f"{point}: exit {done.returncode}: {_tail(done)}"
        assert "its worker process died (SIGKILL)" in done.stderr, _tail(done)
    else:
        assert done.returncode == -signal.SIGKILL, f"{point}: exit {done.returncode}: {_tail(done)}"
    return done


def run_undisturbed(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `command` without a fault; it must succeed."""
    done = _run(command, cwd, {**(env or {}), VARIABLE: ""})
    assert done.returncode == 0, _tail(done)
    return done


def _run(
    command: Sequence[str], cwd: Path | None, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=SECONDS
    )


def _tail(done: subprocess.CompletedProcess[str]) -> str:
    return f"stdout {done.stdout[-1000:]!r} stderr {done.stderr[-3000:]!r}"
