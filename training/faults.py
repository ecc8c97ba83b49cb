"""Named points at which a test can hurt this rank; the twin of `pipeline.faults` for training.

`GRISTMILL_FAULT=name` (or `name:n`) sends SIGKILL to the process that arrives at the point for the
n-th time; names of other packages are ignored here.

GRISTMILL_FAULT_RANK      picks one rank
GRISTMILL_FAULT_DELAY     waits some seconds first
GRISTMILL_FAULT_ACTION    in place of `kill`: `stop` (SIGSTOP), `sleep` (for ever), `raise`, `exit`
                          (code 9), `pass` (go on, after the delay)
GRISTMILL_FAULT_MARK      a file: made when the fault happens, which then happens only once
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

POINTS: dict[str, str] = {
    "training.step": "one optimiser step more is done",
    "training.checkpoint.start": "nothing of the checkpoint is on disk",
    "training.checkpoint.written": "all shards lie in step-N.tmp, no checksums yet",
    "training.checkpoint.before_rename": "checksums are written and verified, still step-N.tmp",
    "training.checkpoint.after_rename": "step-N is complete, `latest` names the one before",
    "training.checkpoint.after_pointer": "`latest` names step-N, older ones not yet removed",
    "training.checkpoint.after_purge": "older checkpoints are removed",
    "training.rewind.entered": "a rewind is in the ledger, nothing of it is done",
    "training.rewind.discarded": "later checkpoints are removed, the run is not taken back yet",
    "training.rewind.loaded": "the run is taken back, the lines of its steps are not",
    "training.skip.entered": "a refused step is in the ledger, its report is not written",
    "training.result.before": "the last checkpoint is committed, result.json is not written",
}
"""Name -> the state of things when it is reached."""

_name, _, _count = os.environ.get("GRISTMILL_FAULT", "").partition(":")
_here = os.environ.get("GRISTMILL_FAULT_RANK", os.environ.get("RANK", "0"))
_mark = os.environ.get("GRISTMILL_FAULT_MARK", "")
_done = bool(_mark) and Path(_mark).exists()
_armed = _name in POINTS and _here == os.environ.get("RANK", "0") and not _done
_arrivals = itertools.count(1)


def fault(name: str) -> None:
    """Die here by SIGKILL if the environment says so; nothing otherwise."""
    if _armed and name == _name and next(_arrivals) == int(_count or "1"):
        os.write(2, f"fault: {name}\n".encode())
        if _mark:
            Path(_mark).touch()
        time.sleep(float(os.environ.get("GRISTMILL_FAULT_DELAY", "0")))  # threads go on meanwhile
        _hurt(os.environ.get("GRISTMILL_FAULT_ACTION", "kill"))


def _hurt(action: str) -> None:
    if action == "sleep":
        while True:
            time.sleep(3600)
    if action == "raise":
        message = "a fault that was asked for"
        raise RuntimeError(message)
    if action == "exit":
        os._exit(9)
    if action != "pass":
        os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[action])
