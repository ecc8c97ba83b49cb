"""`gristmill demo`: what a newcomer sees, what it made, and what the web UIs open on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.demo.poison import URL
from tests.e2e.command import gristmill
from tests.e2e.demo import Demo, command, environment, undisturbed

pytestmark = pytest.mark.e2e

SNAPSHOTS = ["CRAWL-DEMO-01", "CRAWL-DEMO-02"]
ASSETS = {"quality_labels", "quality_classifier", "snapshots", "extracted_text", "filtered_text"}
ASSETS |= {"scored_text", "deduped_corpus", "scrubbed_corpus", "source_texts", "tokenizer_sample"}
ASSETS |= {"tokenizer", "token_shards", "mixture", "checkpoints", "evaluation", "hf_model"}
LOAD = """
import sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer("The mill", return_tensors="pt").input_ids
assert torch.isfinite(model(ids).logits).all()
print(model.generate(ids, max_new_tokens=4, do_sample=False).shape[1] - ids.shape[1])
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return undisturbed(tmp_path_factory)


@pytest.fixture(scope="module")
def instance(demo: Demo) -> Iterator[dg.DagsterInstance]:
    """What the Dagster UI reads."""
    patch = pytest.MonkeyPatch()
    patch.setenv("DAGSTER_HOME", str(demo.root / "dagster"))
    with dg.DagsterInstance.get() as found:
        yield found
    patch.undo()


def test_sizes_and_shares_are_those_of_a_crawl_worth_looking_at(demo: Demo) -> None:
    result = demo.result
    reasons = {r for r in result["reasons"] if not r.startswith("record.")}
    assert result["pages"] >= 400
    assert 0.3 <= result["kept_by_the_rules"] <= 0.7
    assert len(reasons) >= 12
    assert result["web_text_bytes"] >= 600_000
    assert result["source_text_bytes"] >= 1_000_000


def test_the_numbers_are_those_of_the_manifests(demo: Demo) -> None:
    pages = kept = web = 0
    for snapshot in SNAPSHOTS:
        counts = content(demo.root / "filtered_text" / snapshot)["counts"]
        pages, kept = pages + counts["records_in"], kept + counts["kept"]
        sources = content(demo.root / "token_shards" / snapshot)["summary"]["sources"]
        web += sum(one["bytes"] for one in sources.values())
    assert demo.result["pages"] == pages
    assert demo.result["kept_by_the_rules"] == round(kept / pages, 3)
    assert demo.result["web_text_bytes"] == web


def content(folder: Path) -> dict[str, Any]:
    """The content block of a partition's current manifest."""
    name = (folder / "current").read_text().strip()
    found: dict[str, Any] = json.loads((folder / f"manifests/{name}.json").read_text())["content"]
    return found


def test_the_model_knows_more_than_how_often_each_token_occurs(demo: Demo) -> None:
    held_out = demo.result["training"]["held_out"]
    assert held_out["bits_per_byte"] < held_out["unigram_bits_per_byte"]
    assert held_out["bytes"] > 20_000
    groups = json.loads((demo.root / "evaluation/demo/evaluation.json").read_text())["groups"]
    assert {one["source"] for one in groups} == {"code", "web"}


def test_the_planted_document_is_refused_and_named(demo: Demo) -> None:
    spikes = demo.result["spikes"]
    assert URL in [one["highest loss"] for one in spikes]
    run = demo.root / "checkpoints/demo"
    lines = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    refused = [line["step"] for line in lines if line["skipped"]]
    assert [one["step"] for one in spikes] == refused
    assert {f"step-{step}.json" for step in refused} == {p.name for p in run.glob("spikes/*")}
    assert f"{URL}  (planted" in demo.told
    page = (demo.root / "report.html").read_text()
    assert "What hurt the model" in page
    assert URL in page


def test_transformers_loads_the_model_offline(demo: Demo) -> None:
    folder = demo.root / "hf_model/demo"
    offline = environment() | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)],
        env=offline,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert 1 <= int(done.stdout) <= 4
    assert json.loads((folder / "gristmill.json").read_text())["max_logit_difference"] <= 1e-4


def test_a_person_reads_plain_lines(demo: Demo) -> None:
    for noise in ("Warning", "Traceback", " INFO ", "DEBUG", "{'", "\x1b["):
        assert noise not in demo.told
    for said in ("extracted_text/CRAWL-DEMO-01: ", "damaged: ", "WARN gate non_english", "cure: "):
        assert said in demo.told
    assert re.search(r"step 20: held_out_bits_per_byte \d", demo.told)
    for verb in (" up --root ", " trace --root ", " try ", " plan --root ", "snapshots.files=4"):
        assert verb in demo.told
    assert re.search(r"about \d\.\d GB to download, then some \d+ minutes", demo.told)


def test_the_report_is_one_page_that_asks_for_nothing(demo: Demo) -> None:
    page = (demo.root / "report.html").read_text("utf-8")
    assert demo.result["report"] == str(demo.root / "report.html")
    for tag in re.findall(r"<[a-z][^>]*>", page):
        for value in re.findall(r"(?:src|href|action|data)\s*=\s*[\"']?([^\"'\s>]*)", tag):
            assert value.startswith(("#", "data:")), tag
    assert not re.search(r"url\((?!['\"]?(?:data:|#))|@import|<script|<link|<iframe", page)
    shard, _, offset = demo.result["token"].partition(":")
    assert f"{shard}:{offset}" in page
    for part in ("near.minhash", "unigram entropy", "Cure: "):
        assert part in page
    # the traced page carries a licence mark; which one depends on what is installed
    assert re.search(r"\bCC(?:0|-BY)", page)


def test_the_traced_token_and_url_are_found_by_the_command(demo: Demo) -> None:
    place = ("--token", demo.result["token"], "--json")
    [found] = gristmill("trace", "--root", demo.root, *place).json["found"]
    assert found["url"] in (demo.root / "report.html").read_text("utf-8")
    url = re.search(r"--url (\S+)", demo.told)
    assert url
    assert "near.minhash" in gristmill("trace", "--root", demo.root, "--url", url[1]).out


def test_runs_and_partitions_are_there_when_the_ui_opens(instance: dg.DagsterInstance) -> None:
    runs = instance.get_runs()
    assert {run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}
    assert {"mill_snapshot", "mill_tokens", "mill_mixture", "mill_run"} <= {
        run.job_name for run in runs
    }
    # the timeline shows what belongs to the code location
    origins = [run.remote_job_origin for run in runs]
    assert {origin.location_name for origin in origins if origin} == {"gristmill"}
    assert None not in origins
    assert {run.tags[".dagster/repository"] for run in runs} == {"__repository__@gristmill"}
    assert list(instance.get_dynamic_partitions("snapshots")) == SNAPSHOTS
    assert list(instance.get_dynamic_partitions("runs")) == ["demo"]
    made = {key.to_user_string() for key in instance.get_asset_keys()}
    assert made == ASSETS
    for asset in ASSETS:
        assert instance.get_latest_materialization_event(dg.AssetKey(asset))


def test_one_check_warns_on_purpose_and_names_its_cure(instance: dg.DagsterInstance) -> None:
    found = [
        entry.dagster_event.asset_check_evaluation_data
        for run in instance.get_runs()
        for entry in instance.all_logs(run.run_id, dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        if entry.dagster_event
    ]
    assert len(found) > 60
    failed = [one for one in found if not one.passed]
    assert {(one.asset_key.to_user_string(), one.check_name) for one in failed} == {
        ("scrubbed_corpus", "non_english")
    }
    assert [one.partition for one in reversed(failed)] == SNAPSHOTS
    for one in failed:
        assert one.severity == dg.AssetCheckSeverity.WARN
        assert "Cure: " in (one.description or "")
        assert "filter.language.keep" in (one.description or "")


def test_mlflow_has_curves_inputs_and_the_configuration(demo: Demo) -> None:
    # a process of its own: MLflow's import warns, and warnings are errors here
    code = (
        "import json, sys\n"
        "from mlflow.tracking import MlflowClient\n"
        "client = MlflowClient('sqlite:///' + sys.argv[1])\n"
        "experiment = client.get_experiment_by_name('gristmill')\n"
        "[run] = client.search_runs([experiment.experiment_id])\n"
        "steps = {k: [m.step for m in client.get_metric_history(run.info.run_id, k)]\n"
        "         for k in ('loss', 'grad_norm', 'entropy', 'batch_entropy', 'lr')}\n"
        "files = [f.path for f in client.list_artifacts(run.info.run_id, 'configuration')]\n"
        "inputs = [i.dataset.name for i in run.inputs.dataset_inputs]\n"
        "print(json.dumps([run.info.status, steps, files, inputs, run.data.tags]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(demo.root / "mlflow.db")],
        env=environment() | {"MLFLOW_DISABLE_TELEMETRY": "true"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    status, steps, files, inputs, tags = json.loads(done.stdout)
    last = demo.result["training"]["step"]
    assert status == "FINISHED"
    assert all(found == list(range(1, last + 1)) for found in steps.values())
    assert files == ["configuration/attempt-1.yaml"]
    assert {"mixture", "tokenizer"} <= set(inputs)
    assert {f"token_shards/{name}" for name in [*SNAPSHOTS, "code"]} <= set(inputs)
    assert tags["dagster.asset"] == "checkpoints"


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    done = subprocess.run(
        command(tmp_path), env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"error: {tmp_path} is not empty")
    assert "hint: give another folder with --root" in done.stderr
    assert thesis.read_text() == "years of work"
