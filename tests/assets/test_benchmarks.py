"""Scores on local task files by the real harness, where it is installed."""

import json
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from assets.automation import JOB_ASSETS
from assets.benchmarks import benchmark_scores
from assets.millwork import MillResource
from assets.partitions import RUNS, set_name
from pipeline.config import load_config
from tests.training.miniature import write_run

MULTIPLE_CHOICE = {
    "task": "local_choice",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "choice.jsonl"}},
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": "{{question}}",
    "doc_to_choice": "{{choices}}",
    "doc_to_target": "{{answer}}",
    "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
}
ROLLING = {
    "task": "local_text",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "text.jsonl"}},
    "test_split": "test",
    "output_type": "loglikelihood_rolling",
    "doc_to_text": "",
    "doc_to_target": "{{text}}",
    "metric_list": [{"metric": "bits_per_byte"}],
}
TEXTS = ["the snow sat on the hat", "an ant is on the stone", "so it is"]


def write_tasks(folder: Path) -> None:
    folder.mkdir()
    for task in (MULTIPLE_CHOICE, ROLLING):
        (folder / f"{task['task']}.yaml").write_text(yaml.safe_dump(task))
    questions = [
        {"question": f"{n} is", "choices": ["one", "not one"], "answer": n % 2} for n in range(6)
    ]
    for name, rows in (("choice", questions), ("text", [{"text": text} for text in TEXTS])):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)


def export_untrained(root: Path) -> Any:
    """The model of a run file with its first weights, as `hf_model` leaves it; our own model."""
    from training.config import load_run
    from training.export import export
    from training.model import Decoder
    from training.sampling import OpenedRun
    from training.vocabulary import Vocabulary

    config = load_run(write_run(root))
    vocabulary = Vocabulary.open(config.tokenizer)
    model = Decoder(config.model, vocabulary.size, config.context)
    model.init_weights(config.seed)
    opened = OpenedRun(config, vocabulary, model.eval(), Path("step-0"), "identity")
    (root / "hf_model").mkdir()
    export(opened, root / "hf_model/mini")
    return opened


def score(root: Path, evaluation: dict[str, Any]) -> dg.ExecuteInProcessResult:
    settings = load_config(
        overrides={"storage": {"root": str(root)}, "evaluation": evaluation}
    ).model_dump_json()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(set_name(RUNS), ["mini"])
        return dg.materialize(
            [benchmark_scores],
            instance=instance,
            partition_key="mini",
            resources={"mill": MillResource(settings=settings)},
            raise_on_error=False,
        )


def told(result: dg.ExecuteInProcessResult) -> str:
    failure = result.failure_data_for_node("benchmark_scores")
    assert failure is not None
    assert failure.error is not None
    return str(failure.error.to_string())


def test_only_its_own_job_makes_it() -> None:
    jobs = [name for name, assets in JOB_ASSETS.items() if "benchmark_scores" in assets]
    assert jobs == ["mill_benchmarks"]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    assert "evaluation.tasks is not set" in told(score(tmp_path, {}))
    write_tasks(tmp_path / "tasks")
    said = told(score(tmp_path, {"tasks": str(tmp_path / "tasks"), "names": ["local_chioce"]}))
    assert "no task 'local_chioce'" in said


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lm_eval") is None, reason="the extra `eval` is not installed")
def test_the_harness_scores_the_exported_model_on_local_files(tmp_path: Path) -> None:
    import torch

    write_tasks(tmp_path / "tasks")
    wanted = {"tasks": str(tmp_path / "tasks")}
    assert "hf_model of mini is not there" in told(score(tmp_path, wanted))
    opened = export_untrained(tmp_path)
    result = score(tmp_path, wanted)
    assert result.success
    found = json.loads((tmp_path / "benchmark_scores/mini/scores.json").read_text())
    rows = {(row["task"], row["metric"]): row for row in found["scores"]}
    assert rows["local_choice", "acc"]["examples"] == 6
    assert 0 <= rows["local_choice", "acc"]["value"] <= 1
    assert found["identity"] == "identity"

    nats = 0.0
    for text in TEXTS:
        ids = [opened.vocabulary.end_id, *encode(tmp_path, text)]
        with torch.no_grad():
            log_p = opened.model(torch.tensor([ids])).log_softmax(-1)[0]
        nats -= float(log_p[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].sum())
    ours = nats / math.log(2) / sum(len(text.encode()) for text in TEXTS)
    assert rows["local_text", "bits_per_byte"]["value"] == pytest.approx(ours, rel=1e-4)


def encode(root: Path, text: str) -> list[int]:
    from tokenizers import Tokenizer

    return list(Tokenizer.from_file(str(root / "tokenizer.json")).encode(text).ids)
