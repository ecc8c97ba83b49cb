"""Reading and cutting `metrics.jsonl`, which has a line for each of what may be millions of steps.

Nothing here holds the whole file: a run of a month has a gigabyte of it. A line that is half
written, or no JSON, ends the file. No torch here.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.errors import TrainingError

LINES = "metrics.jsonl"
"""The file of a run's steps, in its folder."""

STEP = re.compile(rb'\{"step": (\d+)[,}]')
KEPT = (b'"skipped": 1.0', b'"held_out_bits_per_byte"')
"""What a line has that is never left out."""
TAIL = 65_536
Line = dict[str, Any]


def whole_lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Each whole line of a file, with the offset behind it; none where there is no file."""
    if not path.exists():
        return
    end = 0
    with path.open("rb") as file:
        for text in file:
            if not text.endswith(b"\n"):
                return
            end += len(text)
            yield text, end


def step_of(text: bytes) -> int | None:
    """The step of a line, mostly without reading the rest of it; None where it is no line."""
    if found := STEP.match(text):
        return int(found.group(1)) if text.rstrip().endswith(b"}") else None
    try:
        return int(json.loads(text)["step"])
    except (ValueError, KeyError, TypeError):
        return None


def cut_back(path: Path, step: int) -> int:
    """Keep the lines up to `step`; returns how many went. Makes the file where there is none.

    TrainingError where a line of a step up to that is damaged: those are not written again.
    """
    keep, cut, last = 0, 0, 0
    for number, (text, end) in enumerate(whole_lines(path), start=1):
        at = step_of(text)
        if at is None and last < step:
            message = f"{path} is damaged: line {number} is none of a step"
            hint = "mend the line, or move the file away to go on without the lines so far"
            raise TrainingError(message, hint=hint)
        if at is None:
            break
        if cut or at > step:
            cut += 1
        else:
            keep, last = end, at
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(keep)
        os.fsync(file.fileno())
    return cut


def last_line(path: Path) -> Line:
    """The last whole line; empty where there is none."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        whole = file.read().rpartition(b"\n")[0]
    return dict(json.loads(whole.rpartition(b"\n")[2])) if whole else {}


def first_lines(path: Path, step: int) -> list[Line]:
    """The lines up to a step."""
    found: list[Line] = []
    for text, _ in whole_lines(path):
        at = step_of(text)
        if at is None or at > step:
            break
        found.append(json.loads(text))
    return found


def some_lines(path: Path, most: int) -> list[Line]:
    """About `most` lines, evenly spaced; first, last, refused and evaluated steps always.

    Every n-th step, counted from 0, so that those with numbers of every tenth step are among them.
    """
    count = sum(1 for _ in whole_lines(path))
    every = max(1, -(-count // most))
    return [
        json.loads(text)
        for n, (text, _) in enumerate(whole_lines(path), start=1)
        if (n % every == 0 or n in (1, count) or any(mark in text for mark in KEPT))
        and step_of(text) is not None
    ]
