"""The MLflow run around a training: with a server, and with one that is gone meanwhile."""

import json
import warnings
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.model_display import run_metadata
from assets.model_tracking import tracked
from assets.trainstore import TrainStore
from resources.mill import open_mill
from tests import miniature
from tests.training.miniature import write_run
from training.config import load_run
from training.watching.early import FILE, early_report


class Training:
    """A run whose steps are written as training writes them, inside a real Dagster run."""

    def __init__(self, root: Path) -> None:
        self.place = TrainStore(root, None, print)
        self.run = load_run(write_run(root))
        self.mill = open_mill(miniature.config(str(root), root))
        self.environment: dict[str, str] = {}
        self.link: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}

    def log(self, *steps: int) -> None:
        self.run.out.mkdir(parents=True, exist_ok=True)
        lines = [
            {"step": s, "at": 1e9 + s, "tokens": 10 * s, "lr": 1e-3, "loss": 5 - s / 50,
             "grad_norm": 1.0, "entropy": 4.5, "batch_entropy": 6.0, "skipped": 0.0,
             "time/step": 1.0} | {f"time/{p}": 0.2 for p in
             ("data", "forward", "backward", "optimiser", "other")}
            for s in steps
        ]  # fmt: skip
        with (self.run.out / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        (self.run.out / FILE).write_text(json.dumps(early_report(lines, steps=60)))

    def perform(self, *steps: int, fails: bool = False) -> bool:
        @dg.asset
        def checkpoints(context: dg.AssetExecutionContext) -> None:
            inside = tracked(context, self.mill, self.place, self.run, [])
            with inside as (self.environment, self.link):
                self.log(*steps)
                if fails:
                    message = "the training failed"
                    raise RuntimeError(message)
                folder = self.run.out / "checkpoints" / f"step-{steps[-1]}"
                folder.mkdir(parents=True)
                (folder / "checkpoint.json").write_text("{}")
                saved = {"step": steps[-1], "path": str(folder), "identity": f"id{steps[-1]}"}
                self.link["result"] = {
                    "checkpoint": saved,
                    "held_out": None,
                    "mfu": 0.5,
                    "skips": 2,
                }
            result = self.link["result"]
            self.metadata = run_metadata(self.mill, self.place, self.run, result, self.link)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return dg.materialize([checkpoints], raise_on_error=False).success


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Training(tmp_path)


def client(training: Training) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(f"sqlite:///{training.place.folder / 'mlflow.db'}")


def steps_at(training: Training) -> list[int]:
    return [m.step for m in client(training).get_metric_history(training.link["run_id"], "loss")]


def test_steps_reports_and_model_are_at_mlflow_in_the_end(training: Training) -> None:
    assert training.perform(*range(1, 51))
    assert training.environment["MLFLOW_TRACKING_URI"].startswith("sqlite:")
    assert steps_at(training) == list(range(1, 51)), "training itself sent none of them here"
    run = client(training).get_run(training.link["run_id"])
    assert run.info.status == "FINISHED"
    assert {a.path for a in client(training).list_artifacts(run.info.run_id)} == {
        "configuration", "early_report.html",
    }  # fmt: skip
    (output,) = run.outputs.model_outputs
    model = client(training).get_logged_model(output.model_id)
    assert model.tags["gristmill.checkpoint"] == "id50"
    assert model.tags["gristmill.config_hash"] == training.run.config_hash()
    shown = training.metadata
    assert {"curves", "loss_curve", "time_of_a_step", "early_curves", "early_checks"} <= set(shown)
    assert (shown["early_verdict"], shown["mfu"], shown["skips"]) == ("healthy", 0.5, 2)
    assert "mlflow_problem" not in shown
    assert [r.data["share"] for r in shown["time_of_a_step"].records] == ["20.0%"] * 5


def test_training_goes_on_without_mlflow_and_the_next_start_sends_it_all(
    training: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert training.perform(1, 2, 3), "no reason to fail"
    assert training.environment == {}
    assert "MLflow at http://127.0.0.1:9" in training.metadata["mlflow_problem"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert training.perform(4)
    assert steps_at(training) == [1, 2, 3, 4]
    assert "mlflow_problem" not in training.metadata


def test_a_training_that_fails_is_told_as_failed(training: Training) -> None:
    assert not training.perform(1, 2, fails=True)
    run = client(training).get_run(training.link["run_id"])
    assert run.info.status == "FAILED"
    assert run.outputs.model_outputs == []
    assert steps_at(training) == [1, 2]
