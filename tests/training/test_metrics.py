from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from training.metrics import StepLog, Tracker, adopt, points, read_lines

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}")


def line(step: int, loss: float) -> dict[str, Any]:
    return {"step": step, "tokens": 128 * step, "lr": 1e-3, "loss": loss, "skipped": 0.0}


def history(client: Any, run_id: str, key: str = "loss") -> list[list[float]]:
    found = client.get_metric_history(run_id, key)
    return [[m.step, m.value] for m in sorted(found, key=lambda m: m.step)]


def test_lines_are_written_in_one_go_and_cut_back_on_resume(tmp_path: Path) -> None:
    log = StepLog(tmp_path, 0)
    for step in (1, 2, 3):
        log.add({"step": step}, {"loss": torch.tensor(4.0 - step), "skipped": torch.tensor(0.0)})
    assert not log.path.read_text()
    assert [one["loss"] for one in log.flush()] == [3.0, 2.0, 1.0]
    assert log.flush() == []
    with log.path.open("a") as file:
        file.write('{"step": 4, "lo')
    assert [one["step"] for one in read_lines(log.path)] == [1, 2, 3]
    again = StepLog(tmp_path, 2)
    assert again.cut == 1
    again.add({"step": 3}, {"loss": torch.tensor(float("nan")), "skipped": torch.tensor(1.0)})
    again.flush()
    lines = [json.loads(text) for text in again.path.read_text().splitlines()]
    assert [one["step"] for one in lines] == [1, 2, 3]
    assert lines[2]["loss"] == "nan", "JSON has no NaN"


def test_numbers_that_are_not_finite_are_no_points() -> None:
    found = {p.key for p in points(0, line(3, math.inf) | {"grad_norm": math.nan})}
    assert found == {"tokens", "lr", "skipped"}


@pytest.mark.shared
def test_the_run_in_force_has_one_value_a_step(shared: Path, client: Any) -> None:
    case = json.loads((shared / "cases/tracking/resume-metrics.json").read_text())
    wanted = json.loads(
        next(
            text
            for text in (shared / "cases/expected.jsonl").read_text().splitlines()
            if "resume-metrics" in text
        )
    )["expectation"]["final"]
    run = client.create_run("0", tags={"gristmill.run": "r"}, run_name="r")
    client.log_param(run.info.run_id, "ranks", "2")
    before = [line(*pair) for pair in case["logged"]]
    for one in before:
        client.log_batch(run.info.run_id, metrics=points(1, one))
    at = case["checkpoint_at"]
    fresh, missing = adopt(client, run.info.run_id, at, before[:at])
    assert fresh != run.info.run_id
    for one in [*missing, *(line(*pair) for pair in case["resumed_logs"])]:
        client.log_batch(fresh, metrics=points(2, one))
    assert history(client, fresh) == wanted
    old = client.get_run(run.info.run_id)
    assert old.data.tags["gristmill.superseded_by"] == fresh
    assert old.info.status == "KILLED"
    new = client.get_run(fresh)
    assert new.data.tags["gristmill.supersedes"] == run.info.run_id
    assert new.data.tags["gristmill.run"] == "r"
    assert new.data.params == {"ranks": "2"}


def test_a_run_that_stopped_at_its_checkpoint_is_kept_and_completed(client: Any) -> None:
    run_id = client.create_run("0").info.run_id
    client.log_batch(run_id, metrics=points(1, line(1, 3.0)))
    lines = [line(1, 3.0), line(2, 2.0)]
    assert adopt(client, run_id, 2, lines) == (run_id, lines[1:]), "points lost on the way"


def test_points_reach_the_server_in_batches_from_a_thread(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = client.create_run("0").info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)
    monkeypatch.setenv("GRISTMILL_MLFLOW_RUN_ID", run_id)
    tracker = Tracker(0, [])
    tracker.add([line(step, 5.0 - step / 100) for step in range(1, 301)])
    tracker.close()
    assert tracker.problem == ""
    assert len(history(client, run_id)) == 300


def test_training_goes_on_where_no_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("GRISTMILL_MLFLOW_RUN_ID", "0" * 32)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = Tracker(0, [])
    tracker.add([line(1, 3.0)])
    tracker.close(30)
    assert "points are not at MLflow" in tracker.problem
