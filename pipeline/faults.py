"""Named points at which a test can kill the process, to prove that nothing half-done is ever seen.

`GRISTMILL_FAULT=name` (or `name:n`) sends SIGKILL to the process that arrives at the point `name`
(for the n-th time in that process). Without the variable a point costs one comparison. `POINTS`
lists every name with what has happened so far when it is reached; a name outside it is a bug.
"""

from __future__ import annotations

import itertools
import os
import signal

from pipeline.errors import UsageError

VARIABLE = "GRISTMILL_FAULT"
TWIN = "training."
"""Points of the training program, which knows them itself (`training/faults.py`)."""

POINTS: dict[str, str] = {
    "stage.part.before_file": "a part is computed, none of its files is published",
    "stage.part.after_file": "a file of the part is published (count with `:n`), no receipt is",
    "stage.part.before_receipt": "all files of the part are published, its receipt is not",
    "stage.part.after_receipt": "the part is finished, the manifest is not written",
    "stage.file.before_upload": "a file that is an output as it stands is not yet published",
    "stage.file.after_upload": "that file is published, no receipt is",
    "stage.commit.before_manifest": "every part is finished, the manifest is not written",
    "stage.commit.before_pointer": "the manifest is written, the pointer names the one before",
    "stage.commit.after_pointer": "the pointer names the new manifest",
    "store.write.start": "folder: nothing of the object is on disk",
    "store.write.before_rename": "folder: the temporary file is complete and synced",
    "store.write.after_rename": "folder: the object is visible, its folder not yet synced",
    "store.upload.before_rename": "folder: the file was taken and synced, its key is not visible",
    "store.upload.after_rename": "folder: the object is visible under its key",
    "store.swap.before": "folder: the lock is held, the pointer still names the old value",
    "store.swap.before_rename": "folder: the new pointer is written under a temporary name",
    "store.swap.after": "folder: the pointer names the new value, the lock is still held",
    "s3.put.before": "S3: nothing was sent",
    "s3.put.after": "S3: the object is visible",
    "s3.upload.start": "S3: the multipart upload exists and has no part",
    "s3.upload.part": "S3: one part more was sent (count with `:n`)",
    "s3.upload.before_complete": "S3: all parts were sent, the object is not visible",
    "s3.upload.after_complete": "S3: the object is visible",
    "s3.swap.before": "S3: the old pointer was read, the conditional write was not sent",
    "s3.swap.after": "S3: the pointer names the new value",
}
"""Name -> the state of things when it is reached."""


def _parse(text: str) -> tuple[str, int]:
    """`name` or `name:n` as (name, n)."""
    name, _, count = text.partition(":")
    if name.startswith(TWIN):
        return "", 0
    if name not in POINTS or not (count or "1").isdigit() or int(count or 1) < 1:
        message = f"{VARIABLE}={text!r} names no fault point"
        raise UsageError(message, hint=f"name or name:n of {', '.join(sorted(POINTS))}")
    return name, int(count or 1)


_wanted = os.environ.get(VARIABLE, "")
_name, _nth = _parse(_wanted) if _wanted else ("", 0)
_arrivals = itertools.count(1)


def fault(name: str) -> None:
    """Die here by SIGKILL if `GRISTMILL_FAULT` says so; nothing otherwise."""
    if _name and name == _name and next(_arrivals) == _nth:
        os.write(
            2, f"fault: {name}\n".encode()
        )  # the harness checks that this point was the killer
        os.kill(os.getpid(), signal.SIGKILL)
