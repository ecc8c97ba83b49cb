"""MLflow runs of trainings: one per run name, found again on resume, linked with Dagster both ways.

The default store is a file in the storage root (`sqlite:///ROOT/mlflow.db`). Metrics are written by
rank 0 of the training program, in batches (`training.watching.tracker`); this class makes the run,
its parameters, inputs and artifacts, logs the model that came out, and closes it. Where a run was
taken back to an earlier checkpoint, training opens a successor and marks the old one; the run in
force has no such mark.
"""

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import StorageError
from training.watching.tracker import CONFIGURATION, SUPERSEDED

EXPERIMENT = "gristmill"
KIND = {"mlflow.experimentKind": "custom_model_development"}
TRAINING_PAGES = "?workflowType=machine_learning"
"""Or else MLflow's pages take the runs for those of an agent and show traces, not curves."""
LONGEST_PARAMETER = 500  # MLflow refuses 6,000 characters; the whole value is in the artifact
RUN_TAG = "gristmill.run"
ATTEMPTS = "gristmill.attempts"
IDENTITY = "gristmill.checkpoint"
NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that MLflow takes in no name of a model."""


@dataclass(frozen=True)
class DatasetInput:
    """A dataset that a run read: the name and hash of its manifest."""

    name: str
    digest: str
    source: str
    """Where it lies."""
    context: str = "training"


@dataclass(frozen=True)
class TrackedRun:
    """A run at MLflow."""

    run_id: str
    experiment_id: str
    uri: str
    resumed: bool

    def environment(self) -> dict[str, str]:
        """What the training program needs to write to it."""
        return {
            "MLFLOW_TRACKING_URI": self.uri,
            "GRISTMILL_MLFLOW_RUN_ID": self.run_id,
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }


class Tracking:
    """Makes, finds and closes the MLflow runs of trainings."""

    def __init__(self, uri: str, *, artifacts: str | None = None) -> None:
        """`uri` as MLflow has it; `artifacts`: where an sqlite store keeps its artifacts."""
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "1")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        # it tells of every table it creates in a new file
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
        self.uri = uri
        self.artifacts = artifacts

    @classmethod
    def of_root(cls, root: str | Path) -> "Tracking":
        """`MLFLOW_TRACKING_URI` if it is set, else the file in a storage root on this machine."""
        place = Path(root).absolute()
        if uri := os.environ.get("MLFLOW_TRACKING_URI"):
            return cls(uri)
        place.mkdir(parents=True, exist_ok=True)
        return cls(f"sqlite:///{place / 'mlflow.db'}", artifacts=(place / "mlartifacts").as_uri())

    def open_run(
        self,
        name: str,
        *,
        parameters: Mapping[str, Any],
        configuration: str,
        inputs: Sequence[DatasetInput] = (),
        tags: Mapping[str, str | None] | None = None,
    ) -> TrackedRun:
        """The run of this name, made or found again; `configuration` (YAML) becomes an artifact.

        Parameters that differ from those of the first attempt are added as `attempt-N/<key>`, as
        MLflow lets none change. A tag with the value None is removed where an earlier attempt has
        set it. Raises StorageError where MLflow cannot be reached.
        """
        client = self._client()
        with _reaching(self.uri):
            found = self._find(client, name)
            run = found or client.create_run(
                self._experiment(client), run_name=name, tags={RUN_TAG: name}
            )
            run_id = str(run.info.run_id)
            attempt = int(run.data.tags.get(ATTEMPTS, "0")) + 1
            client.update_run(run_id, status="RUNNING")
            _log_parameters(client, run_id, attempt, parameters, dict(run.data.params))
            for key, value in {**(tags or {}), ATTEMPTS: str(attempt)}.items():
                if value is not None:
                    client.set_tag(run_id, key, value)
                elif key in run.data.tags:
                    client.delete_tag(run_id, key)
            client.log_text(run_id, configuration, f"{CONFIGURATION}/attempt-{attempt}.yaml")
            _log_inputs(client, run, inputs)
        return TrackedRun(run_id, str(run.info.experiment_id), self.uri, found is not None)

    def close_run(
        self,
        run_id: str,
        *,
        status: str = "FINISHED",
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
        files: Sequence[Path] = (),
        texts: Mapping[str, str] | None = None,
    ) -> None:
        """End a run (`FINISHED, FAILED, KILLED`) with final numbers, tags, files and `texts`.

        `texts`: path of the artifact to what it holds.
        """
        client = self._client()
        with _reaching(self.uri):
            for key, value in (metrics or {}).items():
                client.log_metric(run_id, key, value)
            for key, text in (tags or {}).items():
                client.set_tag(run_id, key, text)
            for file in files:
                client.log_artifact(run_id, str(file))
            for path, text in (texts or {}).items():
                client.log_text(run_id, text, path)
            client.set_terminated(run_id, status=status)

    def complete(self, run_id: str, file: Path) -> str:
        """Send the steps of a `metrics.jsonl` that the run lacks; the id of the run they are in.

        That is `run_id`, or what training has put in its place.
        """
        from training.watching.loglines import last_line
        from training.watching.tracker import Delivery

        with _reaching(self.uri):
            delivery = Delivery(self.uri, run_id, file, last_line(file).get("step", 0))
            delivery.send()
            return delivery.run_id

    def log_model(
        self,
        run_id: str,
        name: str,
        *,
        step: int,
        identity: str,
        parameters: Mapping[str, Any],
        tags: Mapping[str, str],
        record: Path | None = None,
    ) -> str:
        """A logged model at MLflow that stands for a checkpoint; its id.

        The weights stay where they are: the model has their place and `identity` in its tags, and
        the checkpoint's `record` as its artifact. One for each identity, however often it is asked.
        """
        from mlflow.entities import LoggedModelOutput

        client = self._client()
        with _reaching(self.uri):
            experiment = client.get_run(run_id).info.experiment_id
            wanted = f"source_run_id = '{run_id}' AND tags.`{IDENTITY}` = '{identity}'"
            if found := client.search_logged_models([experiment], filter_string=wanted):
                return str(found[0].model_id)
            model = client.create_logged_model(
                experiment,
                name=NO_NAME.sub("-", f"{name}-step-{step}"),
                source_run_id=run_id,
                tags={**tags, IDENTITY: identity, "gristmill.step": str(step)},
                params={k: str(v)[:LONGEST_PARAMETER] for k, v in flatten(parameters).items()},
                model_type="decoder",
            )
            if record is not None:
                client.log_model_artifact(model.model_id, str(record))
            client.finalize_logged_model(model.model_id, "READY")
            client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step)])
            return str(model.model_id)

    def find(self, name: str) -> str | None:
        """Id of the run in force under a name."""
        client = self._client()
        with _reaching(self.uri):
            run = self._find(client, name)
        return str(run.info.run_id) if run else None

    def _client(self) -> Any:
        from mlflow.tracking import MlflowClient

        with _reaching(self.uri):
            return MlflowClient(self.uri)

    def _experiment(self, client: Any) -> str:
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is not None:
            return str(experiment.experiment_id)
        return str(
            client.create_experiment(EXPERIMENT, artifact_location=self.artifacts, tags=KIND)
        )

    def _find(self, client: Any, name: str) -> Any:
        experiment = client.get_experiment_by_name(EXPERIMENT)
        if experiment is None:
            return None
        runs = client.search_runs(
            [experiment.experiment_id],
            filter_string=f"tags.`{RUN_TAG}` = '{name}'",
            order_by=["attributes.start_time DESC"],
        )
        return next((run for run in runs if SUPERSEDED not in run.data.tags), None)


def run_url(server: str, experiment_id: str, run_id: str) -> str:
    """The page of a run in MLflow's web UI at `server`."""
    return f"{server.rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}{TRAINING_PAGES}"


def _log_parameters(
    client: Any, run_id: str, attempt: int, parameters: Mapping[str, Any], before: dict[str, str]
) -> None:
    from mlflow.entities import Param

    logged = []
    for key, value in flatten(parameters).items():
        text = str(value)
        if len(text) > LONGEST_PARAMETER:
            text = f"{text[:LONGEST_PARAMETER]}… ({len(text)} characters, see {CONFIGURATION}/)"
        if key not in before:
            logged.append(Param(key, text))
        elif before[key] != text:
            logged.append(Param(f"attempt-{attempt}/{key}", text))
    for start in range(0, len(logged), 100):  # MLflow takes 100 a request
        client.log_batch(run_id, params=logged[start : start + 100])


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as `a.b` keys; null values are left out."""
    out: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            out |= flatten(value, f"{name}.")
        elif value is not None:
            out[name] = value
    return out


def _log_inputs(client: Any, run: Any, inputs: Sequence[DatasetInput]) -> None:
    from mlflow.entities import Dataset, InputTag
    from mlflow.entities import DatasetInput as Logged

    there = {(i.dataset.name, i.dataset.digest) for i in run.inputs.dataset_inputs}
    new = [i for i in inputs if (i.name, i.digest[:36]) not in there]
    if new:
        # MLflow keeps 36 characters of a digest; the whole hash stands in the source
        datasets = [
            Logged(
                Dataset(i.name, i.digest[:36], "gristmill", f"{i.source}#{i.digest}"),
                [InputTag("mlflow.data.context", i.context)],
            )
            for i in new
        ]
        client.log_inputs(run.info.run_id, datasets)


class _reaching:
    """Turns MLflow's failures inside into one sentence."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None or not type(error).__module__.startswith(("mlflow.", "sqlalchemy.")):
            return
        message = f"MLflow at {self.uri} refused: {str(error).strip().splitlines()[0][:300]}"
        raise StorageError(
            message, hint="start `gristmill up`, or unset MLFLOW_TRACKING_URI"
        ) from error
