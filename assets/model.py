"""Group model: training runs, their evaluation, and the model in the layout others load.

The partition is the name of a run: `runs/<name>.yaml` in the storage root says what it is, and
materialising it again goes on from the newest checkpoint. Training is a program of its own: none of
its torch is imported here. A bucket as root is mirrored to a folder (`assets.trainstore`).
"""

import hashlib
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets import display
from assets.materialise import TRAINING, guarded, options
from assets.millwork import MillResource
from assets.model_display import EARLY_CHECK, early_check, mlflow_link, run_metadata
from assets.model_tracking import tracked
from assets.partitions import RUNS, register
from assets.tokens import mixture, tokenizer
from assets.traininputs import dataset_inputs, pin_inputs
from assets.trainstore import open_trainstore
from pipeline.dataset import read_manifest
from pipeline.excerpts import clean
from pipeline.mill import Mill
from training.config import LANGUAGES
from training.data import HELD_OUT
from training.saving.files import write_text

if TYPE_CHECKING:
    from resources.tracking import DatasetInput

DOCUMENTS = ".docs.parquet"


@dg.asset(
    **options("model", None, "pytorch", "mlflow", owner=TRAINING, partitions=RUNS),
    deps=[mixture, tokenizer],
    pool="training",
    metadata={"configuration": "runs/<name>.yaml"} | mlflow_link(),
    check_specs=[
        dg.AssetCheckSpec(
            EARLY_CHECK,
            asset="checkpoints",
            description="The verdict of the early-run report: healthy, watch or stop.",
        )
    ],
)
def checkpoints(context: dg.AssetExecutionContext, mill: MillResource) -> dg.MaterializeResult:
    """A training run, on every GPU or else on two CPU processes.

    **In:** `runs/<name>.yaml` (recipe, plan or shards, tokenizer, steps); the partition is its
    name. Materialising it again resumes the run; another configuration under it is refused.
    **Next:** the loss is in this run's log and, with gradient norm and token entropy, in MLflow;
    then `evaluation` and `hf_model`. Terminating the run saves a checkpoint and ends every process.
    """
    from resources.launcher import launch

    with guarded(context), mill.open() as opened:
        name = context.partition_key
        register(context.instance, RUNS, name)
        place = open_trainstore(opened, context.log.info)
        run = place.bring(name)
        inputs = dataset_inputs(opened, place.folder, run)
        pin_inputs(inputs, run.out)
        write_languages(shard_languages(opened, inputs), run.out)
        place.send_pins(run)
        with (
            place.sending(run),
            tracked(context, opened, place, run, inputs) as (environment, link),
            warnings.catch_warnings(),
        ):
            # Dagster's own Pipes session warns about a part of itself
            warnings.simplefilter("ignore", dg.PreviewWarning)
            result = launch(place.run_file(name), env=environment, context=context)
            link["result"] = result
        return dg.MaterializeResult(
            metadata=run_metadata(opened, place, run, result, link),
            data_version=dg.DataVersion(result["checkpoint"]["identity"]),
            check_results=[early_check(run.out)],
        )


@dg.asset(
    **options("model", None, "pytorch", owner=TRAINING, partitions=RUNS),
    deps=[checkpoints],
    pool="training",
)
def evaluation(context: dg.AssetExecutionContext, mill: MillResource) -> dg.MaterializeResult:
    """Held-out bits per byte by source, language and position, and a few sampled continuations.

    **In:** the newest good checkpoint of the run and the held-out shards. **Next:** compare runs at
    equal tokens; a source or language far above the others wants more weight or better text.
    """
    from resources.launcher import run_program

    with guarded(context), mill.open() as opened:
        name = context.partition_key
        place = open_trainstore(opened, context.log.info)
        run = place.bring(name)
        inputs = dataset_inputs(opened, place.folder, run)
        write_languages(shard_languages(opened, inputs), run.out)
        out = place.folder / "evaluation" / name / "evaluation.json"
        out.parent.mkdir(parents=True, exist_ok=True)
        run_program("training.evaluate", [str(run.out), "--out", str(out)])
        place.send(f"evaluation/{name}", last=out.name)
        data = out.read_bytes()
        found: dict[str, Any] = json.loads(data)
        shown = dict(found["total"] or {}) | {
            "file": dg.MetadataValue.path(place.address(out)),
            "by_source_and_language": display.table(found["groups"]),
            "by_position": display.table(found["positions"]),
        }
        if opened.config.display.excerpts:
            shown["continuations"] = display.table(_continuations(found["continuations"]))
        version = hashlib.sha256(data).hexdigest()
        return dg.MaterializeResult(metadata=shown, data_version=dg.DataVersion(version))


def _continuations(found: list[dict[str, Any]]) -> list[display.Row]:
    return [{str(k): clean(str(v)) for k, v in one.items()} for one in found]


def shard_languages(mill: Mill, inputs: Sequence["DatasetInput"]) -> dict[str, list[str]]:
    """Held-out shard -> the language of each of its documents, for the corpora that a run reads.

    `inputs`: the run's, by manifest, so that the shards are those of its plan.
    """
    found: dict[str, list[str]] = {}
    for one in inputs:
        asset, _, corpus = one.name.partition("/")
        if asset != "token_shards":
            continue
        store = mill.folder(asset, corpus)
        for entry in read_manifest(store, one.digest).content.parts:
            name = Path(entry.path).name.removesuffix(DOCUMENTS)
            if entry.path.endswith(f"-{HELD_OUT}{DOCUMENTS}"):
                found[name] = _languages(store, entry.path)
    return found


def write_languages(found: dict[str, list[str]], out: Path) -> None:
    """Into the folder of a run, where training and evaluation look for them."""
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / LANGUAGES, json.dumps(found))


def _languages(store: Any, key: str) -> list[str]:
    import pyarrow.parquet as pq

    with store.local(key) as path:
        column = pq.read_table(path, columns=["language"]).column("language")
    return [value or "und" for value in column.to_pylist()]


@dg.asset(
    **options("model", None, "pytorch", "huggingface", owner=TRAINING, partitions=RUNS),
    deps=[checkpoints],
    pool="training",
)
def hf_model(context: dg.AssetExecutionContext, mill: MillResource) -> dg.MaterializeResult:
    """The run's model as safetensors, config and tokenizer, as `transformers` and vLLM load it.

    **In:** the newest good checkpoint. The asset fails, and leaves what was there, where a logit of
    the exported model differs from ours by more than 1e-4. **Next:** load the folder with
    `AutoModelForCausalLM.from_pretrained(folder)`.
    """
    from resources.launcher import run_program

    with guarded(context), mill.open() as opened:
        name = context.partition_key
        place = open_trainstore(opened, context.log.info)
        folder = place.bring(name, shards=False).out
        out = place.folder / "hf_model" / name
        out.parent.mkdir(parents=True, exist_ok=True)
        run_program("training.export", [str(folder), "--out", str(out)])
        place.send(f"hf_model/{name}", last="gristmill.json")
        report: dict[str, Any] = json.loads((out / "gristmill.json").read_text(encoding="utf-8"))
        files = report.pop("files")
        shown = {"folder": dg.MetadataValue.path(place.address(out)), **report}
        shown["files"] = display.table({"file": k, "checksum": v} for k, v in files.items())
        version = str(files["model.safetensors"])
        return dg.MaterializeResult(metadata=shown, data_version=dg.DataVersion(version))
