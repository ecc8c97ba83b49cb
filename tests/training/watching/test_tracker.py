from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest

from training.watching.tracker import POINTS, Delivery, Tracker, adopt, batches, points

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from mlflow.tracking import MlflowClient

    return MlflowClient(f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}")


@pytest.fixture
def experiment(client: Any, tmp_path: Path) -> str:
    return str(client.create_experiment(tmp_path.name, artifact_location=tmp_path.as_uri()))


def line(step: int, loss: float) -> dict[str, Any]:
    return {"step": step, "at": 1e9, "tokens": 128 * step, "lr": 1e-3, "loss": loss, "skipped": 0.0}


def write(path: Path, *lines: dict[str, Any], mode: str = "w") -> Path:
    with path.open(mode) as file:
        file.writelines(json.dumps(one) + "\n" for one in lines)
    return path


def history(client: Any, run_id: str, key: str = "loss") -> list[list[float]]:
    found = client.get_metric_history(run_id, key)
    return [[m.step, m.value] for m in sorted(found, key=lambda m: m.step)]


def test_numbers_that_are_not_finite_are_no_points() -> None:
    found = {p.key for p in points(line(3, math.inf) | {"grad_norm": math.nan, "samples": 8})}
    assert found == {"tokens", "lr", "skipped"}
    assert {p.timestamp for p in points(line(3, 1.0))} == {10**12}


def test_requests_hold_whole_steps() -> None:
    wide = [{"step": step} | {f"n{n}": 1.0 for n in range(99)} for step in range(20)]
    found = list(batches(wide))
    assert [one["step"] for batch in found for one in batch] == list(range(20))
    assert [len(batch) for batch in found] == [POINTS // 100, POINTS // 100, 2]
    assert list(batches([])) == []


def test_a_step_may_have_more_numbers_than_a_request_takes(
    client: Any, experiment: str, tmp_path: Path
) -> None:
    run_id = client.create_run(experiment).info.run_id
    wide = line(1, 3.0) | {f"held_out/s{n}": 1.0 for n in range(1100)}
    file = write(tmp_path / "metrics.jsonl", wide, line(2, 2.0))
    assert Delivery(client.tracking_uri, run_id, file, 2).send() == 2
    assert len(client.get_run(run_id).data.metrics) == 1104
    assert adopt(client, run_id, 2) == (run_id, 2)


@pytest.mark.shared
def test_the_run_in_force_has_one_value_a_step(
    shared: Path, client: Any, experiment: str, tmp_path: Path
) -> None:
    case = json.loads((shared / "cases/tracking/resume-metrics.json").read_text())
    wanted = json.loads(
        next(
            text
            for text in (shared / "cases/expected.jsonl").read_text().splitlines()
            if "resume-metrics" in text
        )
    )["expectation"]["final"]
    run = client.create_run(experiment, tags={"gristmill.run": "r"}, run_name="r")
    client.log_param(run.info.run_id, "ranks", "2")
    file = write(tmp_path / "metrics.jsonl", *(line(*pair) for pair in case["logged"]))
    uri = client.tracking_uri
    assert Delivery(uri, run.info.run_id, file, 0).send() == len(case["logged"])
    at = case["checkpoint_at"]
    write(file, *(line(*pair) for pair in [*case["logged"][:at], *case["resumed_logs"]]))
    delivery = Delivery(uri, run.info.run_id, file, at)
    delivery.send()
    assert delivery.run_id != run.info.run_id
    assert history(client, delivery.run_id) == wanted
    old = client.get_run(run.info.run_id)
    assert old.data.tags["gristmill.superseded_by"] == delivery.run_id
    assert old.info.status == "KILLED"
    new = client.get_run(delivery.run_id)
    assert new.data.tags["gristmill.supersedes"] == run.info.run_id
    assert new.data.tags["gristmill.run"] == "r"
    assert new.data.params == {"ranks": "2"}
    again = Delivery(uri, run.info.run_id, file, 4)  # a third attempt is still told the first name
    assert again.run_id == delivery.run_id
    assert again.send() == 0, "every step is there"


def test_a_run_that_stopped_at_its_checkpoint_is_kept_and_completed(
    client: Any, experiment: str, tmp_path: Path
) -> None:
    run_id = client.create_run(experiment).info.run_id
    client.log_batch(run_id, metrics=points(line(1, 3.0)))
    assert adopt(client, run_id, 2) == (run_id, 1)
    file = write(tmp_path / "metrics.jsonl", line(1, 3.0), line(2, 2.0))
    file.write_text(file.read_text() + '{"step": 3, "los')
    delivery = Delivery(client.tracking_uri, run_id, file, 2)
    assert delivery.send() == 1, "points lost on the way, and half a line"
    assert history(client, run_id) == [[1, 3.0], [2, 2.0]]


def test_steps_and_files_reach_the_server_from_a_thread(
    client: Any, experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = client.create_run(experiment).info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)
    monkeypatch.setenv("GRISTMILL_MLFLOW_RUN_ID", run_id)
    file = write(tmp_path / "metrics.jsonl", line(1, 5.0))
    tracker = Tracker(file, 0)
    write(file, *(line(step, 5.0 - step / 100) for step in range(2, 301)), mode="a")
    tracker.more()
    tracker.file(write(tmp_path / "spike.json", line(7, 9.0)), "spikes")
    deadline = time.monotonic() + 60
    while not client.list_artifacts(run_id, "spikes") and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(history(client, run_id)) == 300, "steps go before files"
    kept = [line(step, 1.0) for step in range(1, 202)]
    tracker.rewind(200, lambda: write(file, *kept))
    tracker.close()
    assert tracker.problem == ""
    assert tracker.run_id != run_id
    assert len(history(client, tracker.run_id)) == 201
    assert client.get_run(run_id).data.tags["gristmill.superseded_by"] == tracker.run_id


def test_what_no_server_took_is_sent_by_the_next_start(
    client: Any, experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = client.create_run(experiment).info.run_id
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("GRISTMILL_MLFLOW_RUN_ID", run_id)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    file = write(tmp_path / "metrics.jsonl", line(1, 3.0), line(2, 2.5))
    tracker = Tracker(file, 0)
    tracker.close(30)
    assert "not at MLflow" in tracker.problem
    monkeypatch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)
    later = Tracker(file, 2)
    later.close()
    assert later.problem == ""
    assert history(client, run_id) == [[1, 3.0], [2, 2.5]]


def test_nothing_is_sent_where_no_run_is_named(tmp_path: Path) -> None:
    tracker = Tracker(tmp_path / "none.jsonl", 0)
    tracker.more()
    tracker.file(tmp_path / "none.json")
    tracker.close()
    assert tracker.problem == ""
