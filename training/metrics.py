"""Numbers of every step: to `metrics.jsonl`, to MLflow in batches, to Dagster as progress.

Rank 0 alone writes. Values stay on the device until `log_every` steps are together, then they come
over in one copy: a step never waits for the log. MLflow is served by a thread; where it does not
answer, the points wait and training goes on.
"""

from __future__ import annotations

import json
import math
import os
import queue
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.checkpoint import write_text

LINES = "metrics.jsonl"
BATCH = 900  # MLflow takes 1,000 points a request
RETRIES = 3
CONFIGURATION = "configuration"  # artifact folder, see resources.tracking
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
        """Keep a step's host values and its 0-dimensional device values."""
        self._pending.append((line, dict(values)))

    def flush(self) -> list[Line]:
        """Write what was added; returns the lines."""
        if not self._pending:
            return []
        names = list(self._pending[0][1])
        stacked = torch.stack([v[n].double() for _, v in self._pending for n in names])
        host = stacked.cpu().view(len(self._pending), len(names)).tolist()
        lines = [
            line | dict(zip(names, row, strict=True))
            for (line, _), row in zip(self._pending, host, strict=True)
        ]
        self._pending.clear()
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(to_json(line))}\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
        return lines


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


def cut_back(path: Path, step: int) -> int:
    """Keep the lines up to `step`; returns how many went."""
    lines = read_lines(path)
    kept = [line for line in lines if line["step"] <= step]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{json.dumps(line)}\n" for line in kept))
    return len(lines) - len(kept)


class Tracker:
    """MLflow, if the environment names a server and a run (see `resources.tracking`).

    Where the run already has points after the checkpoint, they cannot be taken back: a successor
    run is opened, gets the history up to the checkpoint, and the old one is marked as superseded.
    So the run in force has one value a step.
    """

    def __init__(self, step: int, history: list[Line]) -> None:
        self.uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        self.run_id = os.environ.get("GRISTMILL_MLFLOW_RUN_ID", "")
        self.problem = ""
        """Why points are missing at the server; empty where none is."""
        self._points: queue.Queue[tuple[int, Line] | None] = queue.Queue()
        self._waiting: list[Any] = []
        self._thread: threading.Thread | None = None
        if self.uri and self.run_id:
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
            self._thread = threading.Thread(target=self._serve, args=(step, history), daemon=True)
            self._thread.start()

    def add(self, lines: list[Line]) -> None:
        """Hand over lines of steps; returns at once."""
        if self._thread:
            now = int(time.time() * 1000)
            for line in lines:
                self._points.put((now, line))

    def close(self, seconds: float = 60) -> None:
        """Send what is left, waiting at most `seconds`; `problem` then says what is missing."""
        if self._thread:
            self._points.put(None)
            self._thread.join(seconds)
            if self._thread.is_alive():
                self.problem = self.problem or f"MLflow did not answer within {seconds:.0f} s"

    def _serve(self, step: int, history: list[Line]) -> None:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        failures = (MlflowException, OSError)
        client: Any = None
        ended = False
        while not ended:
            ended = self._collect()
            for wait in (0, 1, 3)[: RETRIES if ended else 1]:
                time.sleep(wait)
                try:
                    if client is None:
                        opened = MlflowClient(self.uri)
                        self.run_id, missing = adopt(opened, self.run_id, step, history)
                        now = int(time.time() * 1000)
                        self._waiting[:0] = [p for line in missing for p in points(now, line)]
                        client = opened
                    self._send(client)
                    self.problem = ""
                    break
                except failures as error:
                    first = str(error).strip().splitlines()[0][:200]
                    self.problem = f"{len(self._waiting)} points are not at MLflow: {first}"

    def _collect(self) -> bool:
        """Wait for points, take all there are; true at the end."""
        first = self._points.get()
        time.sleep(0 if first is None else 0.2)
        taken = [first]
        while not self._points.empty():
            taken.append(self._points.get())
        self._waiting += [p for pair in taken if pair for p in points(*pair)]
        return None in taken

    def _send(self, client: Any) -> None:
        while self._waiting:
            client.log_batch(self.run_id, metrics=self._waiting[:BATCH])
            del self._waiting[:BATCH]


def points(now: int, line: Line) -> list[Any]:
    """MLflow's points of one step; numbers that are not finite are left out (they read back wrong),
    and the batch's checksum, which is for comparing two runs line by line, not for a curve.

    A skipped step shows as `skipped` = 1 without a loss.
    """
    from mlflow.entities import Metric

    return [
        Metric(key, float(value), now, int(line["step"]))
        for key, value in line.items()
        if key not in ("step", "batch_checksum")
        and isinstance(value, int | float)
        and math.isfinite(value)
    ]


def adopt(client: Any, run_id: str, step: int, history: list[Line]) -> tuple[str, list[Line]]:
    """The run to write to from `step` on, and the lines of `history` that it lacks.

    That is `run_id`, or a successor where `run_id` already has steps after the checkpoint.
    """
    done = [line for line in history if line["step"] <= step]
    last = max((m.step for m in client.get_metric_history(run_id, "lr")), default=0)
    if last <= step:
        return run_id, [line for line in done if line["step"] > last]
    return successor(client, run_id, step), done


def successor(client: Any, run_id: str, step: int) -> str:
    """A new run with tags, parameters and inputs of `run_id`, which is marked as superseded."""
    from mlflow.entities import DatasetInput, InputTag, Param

    old = client.get_run(run_id)
    tags = {k: v for k, v in old.data.tags.items() if not k.startswith("mlflow.")}
    tags |= {"gristmill.supersedes": run_id, "gristmill.resumed_at_step": str(step)}
    new = client.create_run(old.info.experiment_id, tags=tags, run_name=old.info.run_name)
    fresh = str(new.info.run_id)
    client.log_batch(fresh, params=[Param(k, v) for k, v in old.data.params.items()])
    inputs = [
        DatasetInput(i.dataset, [InputTag(t.key, t.value) for t in i.tags])
        for i in old.inputs.dataset_inputs
    ]
    if inputs:
        client.log_inputs(fresh, inputs)
    with tempfile.TemporaryDirectory() as folder:
        if client.list_artifacts(run_id, CONFIGURATION):
            copied = client.download_artifacts(run_id, CONFIGURATION, folder)
            client.log_artifacts(fresh, copied, CONFIGURATION)
    client.set_tag(run_id, "gristmill.superseded_by", fresh)
    client.set_terminated(run_id, status="KILLED")
    return fresh


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
        print(text, flush=True)
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
