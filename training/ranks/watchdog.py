"""Finds a rank that hangs: one that finishes no step within `launch.hang_seconds`. No torch here.

A thread of each rank looks at the time of its last step. Past the limit it writes every thread's
Python stack to the log and ends the process; the agent then starts all ranks again. A rank that
only waits for the others gets the whole limit, one that is stuck by itself four fifths of it, so
that the log names the one that is stuck. Starting (with compilation), evaluation and waiting for a
checkpoint are known to take long: they have the limit `launch.slow_seconds`.

Each rank has a small file besides, its beat: the step it finished, and when the thread last ran.
Where the thread stops too (SIGSTOP, a C call that never gives the interpreter back),
`resources/supervisor.py` ends the process. The launcher reads there how far a dead rank had come.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from training.errors import TrainingError
from training.settings.launch import LaunchConfig

VARIABLE = "GRISTMILL_BEATS"
"""Names the folder of this host's beats; the launcher makes it."""
HUNG = 3
"""Exit code of a rank that ended itself because it hung."""
ALONE = 0.8  # share of the limit for a rank that waits for nobody
BEAT = struct.Struct("<qqqdd")
"""rank, process, step, clock of the last life sign, seconds without one that are too many."""
STOPPED = 0.5  # share of the limit after which a process without a beat is ended
START, STEP = "start", "step"
COLLECTIVES = f"{os.sep}torch{os.sep}distributed{os.sep}"


@dataclass(frozen=True)
class Beat:
    """What a rank's file says."""

    rank: int
    pid: int
    step: int
    alive: float
    """`time.monotonic()`, which is one clock for all processes of a host."""
    silent_seconds: float


def read_beats(folder: Path) -> list[Beat]:
    """The beats of a host's ranks, those of dead ones too."""
    found = (file.read_bytes() for file in sorted(folder.glob("rank-*.beat")))
    return [Beat(*BEAT.unpack(data)) for data in found if len(data) == BEAT.size]


class Watchdog:
    """The watch over one rank's main thread."""

    def __init__(self, rank: int, limits: LaunchConfig, folder: Path | None) -> None:
        self.rank, self.limits = rank, limits
        self._file = folder / f"rank-{rank}.beat" if folder else None
        self._beat: mmap.mmap | None = None
        self.step, self.phase, self.since = 0, START, time.monotonic()
        self.tick = min(1.0, limits.hang_seconds / 10)
        self._main = threading.get_ident()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watchdog")

    def start(self) -> None:
        """Begin to watch; SIGUSR1 writes the stacks of this process to its log from now on."""
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        if self._file:
            aside = self._file.with_suffix(f".{os.getpid()}")
            aside.write_bytes(bytes(BEAT.size))
            with aside.open("r+b") as file:
                self._beat = mmap.mmap(file.fileno(), BEAT.size)
            self.write()
            aside.replace(self._file)
        self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        self._ended.set()
        self._thread.join()
        if self._file:
            self._file.unlink(missing_ok=True)

    @property
    def limit(self) -> float:
        """Seconds that the present phase may last."""
        return self.limits.hang_seconds if self.phase == STEP else self.limits.slow_seconds

    def _watch(self) -> None:
        while not self._ended.wait(self.tick):
            self.write()
            waited = time.monotonic() - self.since
            if waited > self.limit * ALONE:
                alone = not waits_for_others(sys._current_frames().get(self._main))
                if alone or waited > self.limit:
                    self._end(waited)

    def _end(self, waited: float) -> None:
        """Say so, show where, and end; nothing of this waits for the thread that hangs."""
        key = "hang_seconds" if self.phase == STEP else "slow_seconds"
        where = f"in {self.phase} " if self.phase != STEP else ""
        text = (
            f"rank {self.rank} hangs: no step finished {where}for {waited:.0f} s after step "
            f"{self.step} (launch.{key} {self.limit:g}); its stacks:\n"
        )
        os.write(2, text.encode())
        faulthandler.dump_traceback(file=2, all_threads=True)
        os._exit(HUNG)

    def write(self) -> None:
        """The beat, into memory that others see and that outlives this process."""
        if self._beat is not None:
            silent = self.limits.hang_seconds * STOPPED
            values = (self.rank, os.getpid(), self.step, time.monotonic(), silent)
            BEAT.pack_into(self._beat, 0, *values)


def waits_for_others(frame: FrameType | None) -> bool:
    """Whether a thread stands in a collective: one of its three innermost calls is torch's."""
    for _ in range(3):
        if frame is None:
            return False
        if COLLECTIVES in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


_watch: Watchdog | None = None


def start(rank: int, limits: LaunchConfig) -> None:
    """Watch this process's main thread, which calls, from now on.

    TrainingError where the launcher, and its folder for beats, are gone.
    """
    global _watch
    place = os.environ.get(VARIABLE)
    watch = Watchdog(rank, limits, Path(place) if place else None)
    try:
        watch.start()
    except FileNotFoundError as error:
        message = f"{VARIABLE} names the folder {place}, which is gone: the launcher has ended"
        hint = f"start the run anew; by hand, without the variable {VARIABLE}"
        raise TrainingError(message, hint=hint) from error
    _watch = watch  # only one whose thread runs can be stopped


def beat(step: int) -> None:
    """The main thread finished a step. Costs some microseconds; nothing without a watch."""
    if _watch is not None:
        _watch.step, _watch.phase, _watch.since = step, STEP, time.monotonic()
        _watch.write()


@contextlib.contextmanager
def slow(phase: str) -> Iterator[None]:
    """While the main thread is inside (`evaluation`, `checkpoint`), the longer limit holds."""
    if _watch is None:
        yield
        return
    before, _watch.phase, _watch.since = _watch.phase, phase, time.monotonic()
    try:
        yield
    finally:
        _watch.phase, _watch.since = before, time.monotonic()


def stop() -> None:
    """End the watch: what follows may take as long as it likes."""
    global _watch
    if _watch is not None:
        _watch.stop()
    _watch = None
