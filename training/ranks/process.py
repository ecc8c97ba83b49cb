"""This rank as a process: it ends with its parent, and stops when asked, within a deadline.

The agent of `torch.distributed.run` starts the ranks; when it is killed by SIGKILL they would go on
for ever. Linux sends a signal at the parent's death (PR_SET_PDEATHSIG); a poll of the parent's id
covers the rest.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import os
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO

PR_SET_PDEATHSIG = 1


def end_with_parent(poll_seconds: float = 1.0) -> None:
    """SIGKILL for this process as soon as the process that started it is gone."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(poll_seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True, name="parent-watch").start()


_held: list[IO[str]] = []  # locks live as long as the process


def hold(path: Path, seconds: float) -> str | None:
    """Take the lock of a run's folder, waiting for an earlier process to end; returns why not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.open("a+", encoding="utf-8")
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                with lock:
                    lock.seek(0)
                    holder = lock.read().strip() or "unknown"
                return f"process {holder} is training in {path.parent}"
            time.sleep(0.5)
        else:
            break
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    _held.append(lock)
    return None


def print_line(text: str) -> None:
    """A line on standard output, at once; none where nobody reads it any more.

    When the launcher was killed, the ranks still have to save, and a broken pipe must not end them.
    """
    try:
        print(text, flush=True)
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class StopRequest:
    """SIGTERM or SIGINT asks for a stop at the end of the step; a second deadline makes it sure."""

    def __init__(self, seconds: float) -> None:
        """Take over both signals. `seconds` after the first the process ends, saved or not."""
        self.seconds = seconds
        self._deadline = math.inf
        self.reason = ""
        """Name of the signal; empty where none came."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._asked)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if not self.reason:
            self.reason = signal.Signals(number).name
            self._deadline = time.monotonic() + self.seconds
            timer = threading.Timer(self.seconds, self._too_late)
            timer.daemon = True
            timer.start()

    @property
    def left(self) -> float:
        """Seconds until the process ends, saved or not; infinite where nobody asked."""
        return self._deadline - time.monotonic()

    def _too_late(self) -> None:
        os.write(2, f"not saved and ended within {self.seconds:g} s of {self.reason}\n".encode())
        os._exit(1)
