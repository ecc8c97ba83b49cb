from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import StorageError
from resources.tracking import DatasetInput, Tracking, flatten, run_url


@pytest.fixture(scope="module")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> Tracking:
    patch = pytest.MonkeyPatch()
    patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = Tracking.of_root(tmp_path_factory.mktemp("root"))
    patch.undo()
    return made


@pytest.mark.shared
def test_parameters_may_differ_on_resume_and_be_long(
    shared: Path, tracking: Tracking, tmp_path: Path
) -> None:
    case = json.loads((shared / "cases/tracking/params-again.json").read_text())
    long = {"note": "x" * case["long_value_chars"]}
    first = tracking.open_run(
        "again", parameters=case["first"] | long, configuration=f"note: {long['note']}\n"
    )
    assert not first.resumed
    second = tracking.open_run(
        "again", parameters=case["resumed"] | long, configuration="ranks: 4\n"
    )
    assert (second.run_id, second.resumed) == (first.run_id, True)
    client: Any = tracking._client()
    run = client.get_run(first.run_id)
    assert run.data.params["ranks"] == "2"
    assert run.data.params["attempt-2/ranks"] == "4"
    assert "attempt-2/lr" not in run.data.params, "only what differs"
    assert "7000 characters" in run.data.params["note"]
    names = [a.path for a in client.list_artifacts(first.run_id, "configuration")]
    assert names == ["configuration/attempt-1.yaml", "configuration/attempt-2.yaml"]
    whole = client.download_artifacts(first.run_id, names[0], str(tmp_path))
    assert long["note"] in Path(whole).read_text()


def test_a_tag_of_an_earlier_attempt_goes_where_it_has_no_value(tracking: Tracking) -> None:
    given: dict[str, Any] = {"parameters": {}, "configuration": "a: 1\n"}
    tracking.open_run("tagged", tags={"url": None, "other": "x"}, **given)
    made = tracking.open_run("tagged", tags={"url": "http://one/"}, **given)
    client: Any = tracking._client()
    assert client.get_run(made.run_id).data.tags["url"] == "http://one/"
    tracking.open_run("tagged", tags={"url": None}, **given)
    tags = client.get_run(made.run_id).data.tags
    assert "url" not in tags
    assert tags["other"] == "x"


def test_inputs_tags_and_the_end_are_recorded(tracking: Tracking, tmp_path: Path) -> None:
    inputs = [DatasetInput("token_shards/web", "ab" * 32, "/data/token_shards/web")]
    kinds: Any = {"parameters": {"model": {"dim": 8}}, "configuration": "a: 1\n", "inputs": inputs}
    run = tracking.open_run("ends", tags={"dagster.run_id": "d1"}, **kinds)
    tracking.open_run("ends", **kinds)
    report = tmp_path / "report.json"
    report.write_text("{}")
    tracking.close_run(run.run_id, metrics={"final_loss": 2.5}, tags={"x": "y"}, files=[report])
    found = tracking._client().get_run(run.run_id)
    assert found.info.status == "FINISHED"
    assert found.data.params == {"model.dim": "8"}
    assert found.data.metrics["final_loss"] == 2.5
    assert found.data.tags["dagster.run_id"] == "d1"
    (logged,) = found.inputs.dataset_inputs
    assert logged.dataset.source.endswith("ab" * 32)
    assert tracking.find("ends") == run.run_id
    assert tracking.find("never") is None
    page = f"http://h:1/#/experiments/1/runs/{run.run_id}?workflowType=machine_learning"
    assert run_url("http://h:1/", run.experiment_id, run.run_id) == page


def test_a_model_points_at_its_checkpoint_and_is_logged_once(
    tracking: Tracking, tmp_path: Path
) -> None:
    run = tracking.open_run("with.model", parameters={}, configuration="")
    record = tmp_path / "checkpoint.json"
    record.write_text("{}")
    told: Any = {"step": 80, "identity": "sha256:ab", "parameters": {"model": {"dim": 8}},
                 "tags": {"dagster.run_id": "d1"}, "record": record}  # fmt: skip
    model = tracking.log_model(run.run_id, "with.model", **told)
    assert tracking.log_model(run.run_id, "with.model", **told) == model
    client: Any = tracking._client()
    found = client.get_logged_model(model)
    assert found.name == "with-model-step-80"
    assert found.tags["gristmill.checkpoint"] == "sha256:ab"
    assert found.tags["dagster.run_id"] == "d1"
    assert found.params == {"model.dim": "8"}
    assert str(found.status) == "READY"
    (output,) = client.get_run(run.run_id).outputs.model_outputs
    assert (output.model_id, output.step) == (model, 80)
    assert [a.path for a in client.list_logged_model_artifacts(model)] == ["checkpoint.json"]
    tracking.close_run(run.run_id, texts={"spikes/spike-step-7.md": "what happened"})
    assert [a.path for a in client.list_artifacts(run.run_id, "spikes")] == [
        "spikes/spike-step-7.md"
    ]


def test_a_superseded_run_is_not_found_again(tracking: Tracking) -> None:
    run = tracking.open_run("old", parameters={}, configuration="")
    tracking._client().set_tag(run.run_id, "gristmill.superseded_by", "other")
    assert tracking.find("old") is None


def test_a_server_that_is_not_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracking = Tracking("http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"MLflow at http://127\.0\.0\.1:9 refused") as caught:
        tracking.open_run("r", parameters={}, configuration="")
    assert "MLFLOW_TRACKING_URI" in str(caught.value.hint)


def test_flatten() -> None:
    assert flatten({"a": {"b": 1, "c": None}, "d": [1]}) == {"a.b": 1, "d": [1]}
