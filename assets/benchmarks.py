"""Group model: scores of the exported model on benchmarks, by the lm-eval harness.

Only a job of its own makes it: the harness is an extra, and the task files are the user's.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import dagster as dg

from assets import display
from assets.materialise import TRAINING, guarded, options
from assets.millwork import MillResource
from assets.model import hf_model
from assets.partitions import RUNS
from assets.trainstore import TrainStore, open_trainstore
from pipeline.config.evaluation import EvaluationConfig
from pipeline.errors import UsageError

REPORT = "gristmill.json"  # of hf_model; see training.export


@dg.asset(
    **options("model", None, "huggingface", owner=TRAINING, partitions=RUNS),
    deps=[hf_model],
    pool="training",
)
def benchmark_scores(context: dg.AssetExecutionContext, mill: MillResource) -> dg.MaterializeResult:
    """Scores on benchmarks of your own, by the lm-eval harness, without network.

    **In:** the folder of `hf_model`, and task files of the harness with their data in the folder
    `evaluation.tasks`. It needs the extra `eval`, and has a job of its own. **Next:** compare runs
    whose `tasks_checksum` is equal; keep the same files in `references.benchmark_sets`, so that no
    training text holds them.
    """
    with guarded(context), mill.open() as opened:
        from resources.harness import check_installed, find_tasks, run_harness, score_rows

        wanted = opened.config.evaluation
        tasks = find_tasks(folder_of(wanted))
        names = tasks.chosen(wanted.names)
        harness = check_installed()
        run = context.partition_key
        place = open_trainstore(opened, context.log.info)
        model, report = bring_model(place, run)
        found = run_harness(
            model,
            tasks,
            names,
            batch_size=wanted.batch_size,
            limit=wanted.limit,
            say=context.log.info,
        )
        scores = {
            "run": run,
            "checkpoint": report.get("checkpoint"),
            "identity": report.get("identity"),
            "harness": harness,
            "tasks_checksum": tasks.checksum,
            "limit": wanted.limit,
            "scores": score_rows(found),
        }
        text = json.dumps(scores, indent=1, ensure_ascii=False) + "\n"
        out = place.folder / "benchmark_scores" / run / "scores.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
        place.send(f"benchmark_scores/{run}", last=out.name)
        rows = scores.pop("scores")
        shown = {k: v for k, v in scores.items() if v is not None}
        shown |= {"file": dg.MetadataValue.path(place.address(out)), "scores": display.table(rows)}
        checksum = hashlib.sha256(text.encode()).hexdigest()
        return dg.MaterializeResult(metadata=shown, data_version=dg.DataVersion(checksum))


def folder_of(wanted: EvaluationConfig) -> Path:
    """The folder of task files; UsageError where none is configured."""
    if wanted.tasks is None:
        message = "evaluation.tasks is not set, and there is no benchmark to score"
        hint = "name a folder of lm-eval task files, `evaluation: {tasks: FOLDER}`"
        raise UsageError(message, hint=hint)
    return Path(wanted.tasks).absolute()


def bring_model(place: TrainStore, run: str) -> tuple[Path, dict[str, Any]]:
    """The folder of the exported model, here and verified, and what its export reported.

    UsageError where it was not exported.
    """
    folder = place.folder / "hf_model" / run
    if place.mirror is not None:
        remote = place.mirror.below(f"hf_model/{run}")
        if remote.store.exists(REPORT):
            told = json.loads(remote.bring(REPORT))["files"]
            remote.bring_verified({name: str(checksum) for name, checksum in told.items()})
    if not (folder / REPORT).exists():
        message = f"hf_model of {run} is not there: {place.address(folder)} has no {REPORT}"
        raise UsageError(message, hint="materialise hf_model first")
    report: dict[str, Any] = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    return folder, report
