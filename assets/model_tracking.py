"""The MLflow run around a training: opened before it, completed and closed after it.

Where MLflow does not answer, training goes on: its steps are in `metrics.jsonl` and are sent when
it answers again, at the latest by the next materialisation of the run.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.model_display import artifacts
from assets.trainstore import TrainStore
from pipeline.errors import StorageError
from pipeline.mill import Mill
from training.config import RunConfig
from training.verify import RECORD as CHECKPOINT
from training.watching.loglines import LINES

if TYPE_CHECKING:
    from resources.tracking import DatasetInput, TrackedRun

DAGSTER_URL = "GRISTMILL_DAGSTER_URL"
"""Where Dagster's web UI is; set by `gristmill up`."""


@contextlib.contextmanager
def tracked(
    context: dg.AssetExecutionContext,
    mill: Mill,
    place: TrainStore,
    run: RunConfig,
    inputs: list["DatasetInput"],
) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """The environment that the program needs, and a mapping into which the caller puts `result`.

    The mapping gets `run_id` and `experiment_id` at the end, or `problem` where MLflow is gone.
    """
    training = Tracked(context, mill, place, run, inputs)
    link: dict[str, Any] = {}
    opened = training.attempt(training.open, link)
    status = "FAILED"
    try:
        yield opened.environment() if opened else {}, link
        status = "FINISHED"
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        opened = opened or training.attempt(training.open, link)
        if opened:
            training.attempt(lambda: training.close(opened, status, link), link)


class Tracked:
    """What MLflow is told of one training."""

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        mill: Mill,
        place: TrainStore,
        run: RunConfig,
        inputs: list["DatasetInput"],
    ) -> None:
        from resources.tracking import Tracking

        self.context, self.mill, self.place, self.run = context, mill, place, run
        self.inputs = inputs
        self.tracking = Tracking.of_root(place.folder)

    def attempt(self, do: Any, link: dict[str, Any]) -> Any:
        """What `do` returns; None where MLflow cannot be reached, with a warning in the log."""
        try:
            found = do()
        except StorageError as error:
            link["problem"] = error.message
            self.context.log.warning(f"{error.message}; training goes on, {LINES} has every step")
            return None
        link.pop("problem", None)
        return found

    def tags(self) -> dict[str, str]:
        """What leads from the MLflow run to Dagster."""
        name, run_id = self.run.name, self.context.run.run_id
        tags = {
            "dagster.asset": "checkpoints",
            "dagster.partition": name,
            "dagster.run_id": run_id,
            "gristmill.config_hash": self.run.config_hash(),
        }
        if address := os.environ.get(DAGSTER_URL):
            tags["dagster.url"] = f"{address}/runs/{run_id}"
            tags["mlflow.note.content"] = f"Dagster run: {tags['dagster.url']}"
        else:
            found = f"Runs, {run_id.partition('-')[0]}"
            tags["mlflow.note.content"] = (
                f"Asset checkpoints, partition {name}. In Dagster: {found}"
            )
        return tags

    def open(self) -> "TrackedRun":
        """Make or find the run. StorageError."""
        return self.tracking.open_run(
            self.run.name,
            parameters=self.run.identity(),
            configuration=self.place.run_file(self.run.name).read_text(encoding="utf-8"),
            inputs=self.inputs,
            tags={"dagster.url": None, **self.tags()},  # not that of an earlier attempt
        )

    def close(self, opened: "TrackedRun", status: str, link: dict[str, Any]) -> None:
        """Send the steps that are missing, the reports and the model; end the run. StorageError."""
        result = link.get("result") or {}
        link["experiment_id"] = opened.experiment_id
        run_id = self.tracking.complete(opened.run_id, self.run.out / LINES)
        link["run_id"] = run_id
        if result:
            self._log_model(run_id, result["checkpoint"])
        self.tracking.close_run(
            run_id,
            status=status,
            metrics=final(result),
            texts=artifacts(self.mill, self.run) if status != "KILLED" else {},
        )

    def _log_model(self, run_id: str, checkpoint: Mapping[str, Any]) -> None:
        told = {f"gristmill.input.{one.name}": one.digest for one in self.inputs}
        path = Path(checkpoint["path"])
        self.tracking.log_model(
            run_id,
            self.run.name,
            step=checkpoint["step"],
            identity=checkpoint["identity"],
            parameters={"model": self.run.model.model_dump(mode="json"), "recipe": self.run.recipe},
            tags=self.tags() | told | {"gristmill.checkpoint_path": self.place.address(path)},
            record=path / CHECKPOINT,
        )


def final(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of the whole run that are compared between runs."""
    held_out = result.get("held_out") or {}
    names = ("bits_per_byte", "unigram_bits_per_byte")
    return {f"final_{name}": float(held_out[name]) for name in names if name in held_out}
