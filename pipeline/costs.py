"""What work costs a process and its children: CPU time and peak memory, read from the kernel.

A page is read in a child process, so the CPU time of a worker alone would leave out most of what
extraction costs. Children that ended count with what the kernel kept of them, living ones with what
`/proc` says; where there is no `/proc`, living children are not seen.
"""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

PROC = Path("/proc")
CPU_FIELDS = slice(11, 15)
"""utime, stime, cutime, cstime in `/proc/PID/stat`, counted behind the name (proc(5))."""


def cpu_seconds() -> float:
    """CPU seconds of this process so far, with those of its children, ended and living.

    Living ones count in clock ticks of 10 ms.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    living = sum(_ticks(child) for child in descendants())
    own = time.process_time() + ended.ru_utime + ended.ru_stime
    return own + living / os.sysconf("SC_CLK_TCK")


def descendants(pid: int | None = None) -> list[int]:
    """Living children of a process (default: this one) and theirs."""
    own = children(pid)
    return own + [inner for child in own for inner in descendants(child)]


def children(pid: int | None = None) -> list[int]:
    """Living children of a process (default: this one)."""
    found: list[int] = []
    for path in (PROC / str(pid or os.getpid()) / "task").glob("*/children"):
        try:
            found += [int(child) for child in path.read_text().split()]
        except OSError:  # the thread ended meanwhile
            continue
    return found


def _ticks(pid: int) -> int:
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return 0
    fields = text.rpartition(")")[2].split()  # a name may hold blanks and brackets
    return sum(int(field) for field in fields[CPU_FIELDS])


def peak_mib(pid: int | None = None) -> float:
    """Peak resident memory of a living process (default: this one), of its present program.

    `ru_maxrss` outlives exec, so it is only used where there is no `/proc`.
    """
    try:
        lines = (PROC / str(pid or os.getpid()) / "status").read_text().splitlines()
    except OSError:
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return own / 1024 if pid is None else 0.0
    for line in lines:
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


def peak_of_ended_mib() -> float:
    """Peak resident memory of the largest child that ended and was waited for."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
