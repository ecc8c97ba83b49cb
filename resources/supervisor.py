"""Runs one command so that nothing of it survives its end, nor the death of who launched it.

Started as its own process and session: `python supervisor.py PARENT GRACE COMMAND...`; standard
library only, one thread. It ends the command

- when the launcher asks (SIGTERM, SIGINT: handed on, then SIGKILL to all after GRACE seconds),
- when the launcher is gone, however it died (parent-death signal and a poll of the parent's id);

and when the command has ended by itself, it ends the children it left behind, which would hold the
output pipe open. As reaper of orphans (PR_SET_CHILD_SUBREAPER) it finds them even in sessions of
their own. The exit code is the command's; 128 + n where signal n ended it.

Where GRISTMILL_BEATS names a folder, it also ends processes below it whose beat stopped: those that
were stopped by a signal or cannot run Python any more (see `training/ranks/watchdog.py`).
"""

import contextlib
import ctypes
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.2
LINGER_SECONDS = 1.0  # what a finished command's children get before SIGTERM
ORPHAN_SECONDS = 3.0  # and from there to SIGKILL
# as in training.ranks.watchdog: rank, process, step, alive, too long
BEAT = struct.Struct("<qqqdd")
LOOK_SECONDS = 1.0  # between two looks at the beats
STACK_SECONDS = 0.5  # what a process without a beat gets to write its stacks


def prctl(option: int, value: int) -> None:
    """`prctl` where there is one; elsewhere the poll of the parent does the work."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def own_group() -> None:
    """In the child, before the command: a group of its own, and a signal when this process dies."""
    os.setpgid(0, 0)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def descendants() -> list[int]:
    """All processes below this one, from /proc; those that end meanwhile are left out."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(entry.parent.name)] = int(fields[1])
    found, queue = [], [os.getpid()]
    while queue:
        parent = queue.pop()
        below = [pid for pid, of in parents.items() if of == parent]
        found += below
        queue += below
    return found


def send(number: int) -> None:
    """A signal to every process below this one."""
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def reap() -> None:
    """Collect ended orphans that became children of this process."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue


def clear(linger: float, seconds: float) -> None:
    """End what is below this process: `linger` seconds of patience, SIGTERM, then SIGKILL."""
    began, asked = time.monotonic(), False
    while descendants():
        waited = time.monotonic() - began
        if waited > linger + seconds:
            send(signal.SIGKILL)
        elif waited > linger and not asked:
            asked = True
            send(signal.SIGTERM)
        time.sleep(POLL_SECONDS / 4)
        reap()


def silent(folder: Path) -> dict[int, str]:
    """Processes below this one whose beat stopped too long ago -> what to say of them."""
    found = {}
    below = set(descendants())
    for file in folder.glob("rank-*.beat"):
        try:
            rank, pid, step, alive, seconds = BEAT.unpack(file.read_bytes())
        except (OSError, struct.error):  # just gone, or of another version
            continue
        waited = time.monotonic() - alive
        if waited > seconds and pid in below:
            who = f"rank {rank} is stopped: process {pid}"
            found[pid] = f"{who} did nothing for {waited:.0f} s after step {step}"
    return found


def end_silent(folder: Path) -> None:
    """End those, with their stacks in the log where they still can write them."""
    found = silent(folder)
    for pid, text in found.items():
        os.write(2, f"{text}; its stacks, if it can still write them:\n".encode())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    if found:
        time.sleep(STACK_SECONDS)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def supervise(parent: int, grace: float, command: list[str]) -> int:
    """Run `command` to its end or to that of `parent`; its exit code."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    child = subprocess.Popen(command, preexec_fn=own_group)  # one thread here, so it is safe
    deadline = handed = 0.0
    beats, looked = os.environ.get("GRISTMILL_BEATS"), time.monotonic()
    while (code := child.poll()) is None:
        if os.getppid() != parent and not asked:
            asked.append(signal.SIGTERM)
        now = time.monotonic()
        if asked and not handed:
            handed, deadline = now, now + grace
            os.kill(child.pid, asked[0])
        if handed and now > deadline:
            send(signal.SIGKILL)
        if beats and now - looked > LOOK_SECONDS:
            looked = now
            end_silent(Path(beats))
        time.sleep(POLL_SECONDS)
    clear(LINGER_SECONDS if not asked else 0.0, ORPHAN_SECONDS)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(supervise(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
