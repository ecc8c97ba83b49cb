"""The steps of a run to MLflow, from the file they are in: `metrics.jsonl` is the queue.

A line counts as sent once the server has taken it. What it has not taken stays in the file, so
nothing is lost where MLflow does not answer, whatever happens to this process: the next start of
the run, or the asset at its end, sends the rest. Memory does not grow meanwhile. No torch here.

One value a step: requests hold whole steps, and a run at MLflow that already has steps after the
checkpoint, which cannot be taken back, gets a successor and the mark of a superseded one.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

MOST = 1000  # points a request, MLflow's limit
POINTS = 900  # about so many are put into one
MARK = "lr"
"""Every step has it, and it is sent last: a step of which it is there is there as a whole."""
LINES_AT_ONCE = 200  # read at a time
WAITS = (0, 1, 3)  # seconds before each try of the last delivery
CONFIGURATION = "configuration"  # artifact folder
SUPERSEDED = "gristmill.superseded_by"
NO_CURVE = frozenset({"step", "at", "batch_checksum", "first_sample", "samples"})
Line = dict[str, Any]


class Tracker:
    """Sends lines from a thread, if the environment names a server and a run."""

    def __init__(self, path: Path, step: int) -> None:
        """`path`: the run's `metrics.jsonl`, cut back to `step`, the step of the checkpoint."""
        self.uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        self.run_id = os.environ.get("GRISTMILL_MLFLOW_RUN_ID", "")
        self.problem = ""
        """Why points are missing at the server; empty where none is."""
        self._path, self._step = path, step
        self._wake, self._closing = threading.Event(), False
        self._lock = threading.Lock()
        self._files: list[tuple[Path, str]] = []
        self._delivery: Delivery | None = None
        self._thread: threading.Thread | None = None
        if self.uri and self.run_id:
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
            os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
            self._thread = threading.Thread(target=self._serve, daemon=True)
            self._thread.start()
            self._wake.set()  # what an earlier start could not send

    @property
    def delivered(self) -> int:
        """The last step that MLflow has taken; 0 before the first."""
        return self._delivery.last if self._delivery is not None else 0

    def more(self) -> None:
        """The file has new lines; returns at once."""
        self._wake.set()

    def file(self, path: Path, folder: str = "") -> None:
        """Send a file as an artifact, after the steps; it must stay until then. Returns at once."""
        if self._thread:
            self._files.append((path, folder))
            self._wake.set()

    def rewind(self, step: int, cut: Callable[[], object]) -> None:
        """Let `cut` take the file back to `step`; what follows goes to a successor."""
        with self._lock:  # nobody reads the file meanwhile
            cut()
            if self._delivery is not None:
                self._delivery.stale = True
            self._step, self._delivery = step, None
        self._wake.set()

    def close(self, seconds: float = 60) -> None:
        """Send what is left, waiting at most `seconds`; `problem` then says what is missing."""
        if self._thread:
            self._closing = True
            self._wake.set()
            self._thread.join(seconds)
            if self._thread.is_alive():
                self.problem = self.problem or f"MLflow did not answer within {seconds:.0f} s"

    def _serve(self) -> None:
        ended = False
        while not ended:
            self._wake.wait()
            self._wake.clear()
            ended = self._closing
            for wait in WAITS if ended else (0,):
                time.sleep(wait)
                if self._deliver():
                    break

    def _deliver(self) -> bool:
        try:
            delivery, step = self._delivery, self._step
            if delivery is None:
                delivery = Delivery(self.uri, self.run_id, self._path, step, self._lock)
                with self._lock:
                    delivery.stale = step != self._step
                    self.run_id = delivery.run_id
                    self._delivery = None if delivery.stale else delivery
            delivery.send()
            while self._files:
                path, folder = self._files[0]
                if path.exists():
                    delivery.client.log_artifact(delivery.run_id, str(path), folder or None)
                del self._files[0]
        except Exception as error:  # a server has many ways to fail, and none may end training
            first = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            self.problem = f"steps are not at MLflow yet: {first}"
            return False
        self.problem = ""
        return True


class Delivery:
    """The lines of a file that a run at MLflow lacks, sent in order."""

    def __init__(
        self, uri: str, run_id: str, path: Path, step: int, lock: threading.Lock | None = None
    ) -> None:
        """Open the run, or its successor where it has steps after `step`; MlflowException.

        `lock` is held while the file is read.
        """
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(uri)
        self.run_id, self._last = adopt(self.client, run_id, step)
        self._path, self._offset, self._lock = path, 0, lock or threading.Lock()
        self.stale = False
        """Set when the file was cut back: no more is sent from it."""

    @property
    def last(self) -> int:
        """The last step that the server has."""
        return self._last

    def send(self) -> int:
        """Send every whole line that is new; returns how many. MlflowException, OSError."""
        sent = 0
        while lines := self._read():
            for batch in batches([line for line, _ in lines if line["step"] > self._last]):
                numbers = [point for line in batch for point in points(line)]
                numbers.sort(key=lambda point: point.key == MARK)
                for at in range(0, len(numbers), MOST):  # more only where one step has more
                    self.client.log_batch(self.run_id, metrics=numbers[at : at + MOST])
                self._last = batch[-1]["step"]
                sent += len(batch)
            self._offset = lines[-1][1]
        return sent

    def _read(self) -> list[tuple[Line, int]]:
        """Some whole lines from the offset on, each with the offset behind it."""
        found: list[tuple[Line, int]] = []
        with self._lock:
            if self.stale or not self._path.exists():
                return found
            with self._path.open("rb") as file:
                end = file.seek(self._offset)
                for text in islice(file, LINES_AT_ONCE):
                    end += len(text)
                    if text.endswith(b"\n"):
                        found.append((json.loads(text), end))
        return found


def batches(lines: list[Line]) -> Iterator[list[Line]]:
    """Runs of lines that make one request each: whole steps, about `POINTS` numbers."""
    batch: list[Line] = []
    for line in lines:
        if batch and sum(map(len, batch)) + len(line) > POINTS:
            yield batch
            batch = []
        batch.append(line)
    if batch:
        yield batch


def points(line: Line) -> list[Any]:
    """MLflow's points of one step; numbers that are not finite are left out (they read back wrong),
    and what is for comparing two runs line by line and no curve.

    A skipped step shows as `skipped` = 1.
    """
    from mlflow.entities import Metric

    now = int(1000 * line.get("at", time.time()))
    return [
        Metric(key, float(value), now, int(line["step"]))
        for key, value in line.items()
        if key not in NO_CURVE and isinstance(value, int | float) and math.isfinite(value)
    ]


def adopt(client: Any, run_id: str, step: int) -> tuple[str, int]:
    """The run to write to after the checkpoint of `step`, and the last step that it has.

    That is `run_id` (or what an earlier attempt of this job has put in its place), or a successor
    where that one already has steps after the checkpoint.
    """
    while newer := client.get_run(run_id).data.tags.get(SUPERSEDED):
        run_id = newer
    last = max((m.step for m in client.get_metric_history(run_id, MARK)), default=0)
    return (run_id, last) if last <= step else (successor(client, run_id, step), 0)


def successor(client: Any, run_id: str, step: int) -> str:
    """A new run with tags, parameters and inputs of `run_id`, which is marked as superseded."""
    from mlflow.entities import DatasetInput, InputTag, Param

    old = client.get_run(run_id)
    tags = {k: v for k, v in old.data.tags.items() if not k.startswith("mlflow.")}
    tags |= {"gristmill.supersedes": run_id, "gristmill.resumed_at_step": str(step)}
    new = client.create_run(old.info.experiment_id, tags=tags, run_name=old.info.run_name)
    fresh = str(new.info.run_id)
    client.set_tag(run_id, SUPERSEDED, fresh)  # first: two in force would be worse than a bare one
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
    client.set_terminated(run_id, status="KILLED")
    return fresh
