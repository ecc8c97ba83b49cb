"""Numbers of every step: to `metrics.jsonl`, and to Dagster as progress. Rank 0 alone writes.

Values stay on the device until `log_every` steps are together, then they come over in one copy: a
step never waits for the log. From the file they go on to MLflow (`training.watching.tracker`).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.ranks.process import print_line
from training.saving.files import write_text
from training.watching.loglines import LINES, cut_back

BEFORE_REWIND = "metrics-before-rewind-{}.jsonl"
Line = dict[str, Any]


class StepLog:
    """`metrics.jsonl` of a run: one line a step, cut back to the checkpoint on resume."""

    def __init__(self, folder: Path, step: int) -> None:
        """Open the file and cut lines after `step`, the step of the checkpoint."""
        self.path = folder / LINES
        self.cut = cut_back(self.path, step)
        """Lines that were taken back: steps done after the last checkpoint."""
        self._pending: list[tuple[Line, dict[str, Tensor]]] = []

    def add(self, line: Line, values: Mapping[str, Tensor]) -> None:
        """Keep a step's host values and its 0-dimensional device values, whichever it has."""
        at = {"at": round(time.time(), 3)}  # unix seconds
        self._pending.append((line | at, dict(values)))

    def tokens(self) -> list[int]:
        """`tokens` of the steps that were added and are not in the file."""
        return [int(line["tokens"]) for line, _ in self._pending]

    def flush(self, more: Sequence[Mapping[str, float]] = ()) -> list[Line]:
        """Write what was added, with `more` for each of the steps, if given; returns the lines."""
        if not self._pending:
            return []
        numbers = iter(to_host([value for _, values in self._pending for value in values.values()]))
        lines = [line | {name: next(numbers) for name in values} for line, values in self._pending]
        for line, extra in zip(lines, more, strict=False):
            line.update(extra)
        lines = [{k: v for k, v in line.items() if not absent(k, v)} for line in lines]
        self._pending.clear()
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(to_json(line))}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        return lines

    def rewind(self, step: int) -> None:
        """Cut the file back to `step`; what went is kept in `metrics-before-rewind-<n>.jsonl`."""
        self._pending.clear()
        number = len(list(self.path.parent.glob(BEFORE_REWIND.format("*")))) + 1
        keep_before(self.path, number, step)
        cut_back(self.path, step)


def keep_before(path: Path, rewind: int, step: int) -> None:
    """Keep the lines after `step` that the n-th rewind takes back, unless they are kept already."""
    kept = path.with_name(BEFORE_REWIND.format(rewind))
    if not kept.exists():
        lines = [json.dumps(line) for line in read_lines(path) if line["step"] > step]
        write_text(kept, "".join(f"{line}\n" for line in lines))


def to_host(values: Sequence[Tensor]) -> list[float]:
    """0-dimensional tensors of a device as numbers, in one copy a type."""
    out = [0.0] * len(values)
    for dtype in {value.dtype for value in values}:
        places = [n for n, value in enumerate(values) if value.dtype == dtype]
        found = torch.stack([values[n] for n in places]).cpu().tolist()
        for place, number in zip(places, found, strict=True):
            out[place] = float(number)
    return out


def absent(name: str, value: Any) -> bool:
    """Whether a number stands for nothing: the loss of a source that was not in the batch."""
    return name.startswith("loss/") and isinstance(value, float) and math.isnan(value)


def to_json(line: Line) -> Line:
    """Not-finite numbers as text: JSON has none."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in line.items()
    }


def read_lines(path: Path) -> list[Line]:
    """The steps of a `metrics.jsonl`; a half-written last line is left out."""
    if not path.exists():
        return []
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except ValueError:
            break
    return lines


class Progress:
    """Progress lines, one every few seconds: to the log, and to Dagster where it listens."""

    def __init__(self, steps: int, start: int, *, every_seconds: float = 5.0) -> None:
        self.steps, self.start, self.every = steps, start, every_seconds
        self._began = self._said = time.monotonic()
        self._pipes: Any = None
        if "DAGSTER_PIPES_CONTEXT" in os.environ:
            from dagster_pipes import open_dagster_pipes

            self._pipes = open_dagster_pipes()

    def say(self, text: str) -> None:
        """A line now."""
        print_line(text)
        if self._pipes:
            self._pipes.log.info(text)

    def step(self, line: Line) -> None:
        """The newest step; said if the last line is long enough ago, or it is the last step."""
        now, step = time.monotonic(), int(line["step"])
        if now - self._said < self.every and step < self.steps:
            return
        self._said = now
        left = (now - self._began) / max(step - self.start, 1) * (self.steps - step)
        share = f"step {step}/{self.steps}, {line['tokens']:,} tokens"
        rates = f"loss {line['loss']:.4f}, {line['tokens_per_second']:,.0f} tokens/s"
        self.say(f"{share}, {rates}, {left // 60:.0f}:{left % 60:02.0f} left")

    def close(self, result: Mapping[str, Any] | None) -> None:
        """Hand the result to Dagster and end the conversation."""
        if self._pipes:
            if result is not None:
                self._pipes.report_custom_message({"gristmill_result": dict(result)})
            self._pipes.close()
