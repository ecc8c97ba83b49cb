"""What the body of every asset does: run one stage function for its partitions, show what it made.

An asset reads `materialise(context, mill, launch, stage_function)`. Its output is what the stage
committed to the store; Dagster gets the data version (hash of the output), counts, tables and
excerpts. A partition is done when the manifest is committed, so a run that is repeated after a
crash finds finished parts and makes the rest.
"""

import ast
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG

from assets import display
from assets.millwork import Launch, MillResource
from assets.partitions import register
from pipeline.errors import ConflictError, GristmillError, StorageError
from pipeline.manifest import Manifest
from pipeline.mill import Mill, Progress, registered_snapshots
from training.errors import TrainingError

StageOf = Callable[[Mill, str], Manifest]
Stage = Callable[[Mill], Manifest]

DATA, TRAINING = "team:data", "team:training"

LISTENERS: list[Progress] = []
"""Who else is told of the parts that are done: the terminal of a headless run."""

RETRIES = 3
RETRY_SECONDS = 20
"""After a store that refused for about a minute (storage.attempts), so many tries, so far apart."""


@cache
def code_version(module: str) -> str:
    """The constant CODE_VERSION of a module, read without importing it and what it needs."""
    spec = find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            if "CODE_VERSION" in names:
                return str(node.value.value)
    message = f"{module} has no constant CODE_VERSION"
    raise AttributeError(message)


def options(
    group: str,
    module: str | None,
    *kinds: str,
    owner: str = DATA,
    partitions: dg.PartitionsDefinition | None = None,
) -> dict[str, Any]:
    """The arguments of `dg.asset` that every asset gives."""
    return {
        "group_name": group,
        "kinds": {"python", *kinds},
        "owners": [owner],
        "code_version": code_version(module) if module else "1",
        "partitions_def": partitions,
    }


def beta_asset(**arguments: Any) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """`dg.asset` with arguments that Dagster 1.13 still calls beta (`backfill_policy`)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.BetaWarning)
        made: Callable[[Callable[..., Any]], dg.AssetsDefinition] = dg.asset(**arguments)
        return made


def materialise(
    context: dg.AssetExecutionContext, mill: MillResource, launch: Launch, stage: StageOf
) -> dg.MaterializeResult:
    """Run a stage for the partitions of this step, one after the other, and report each.

    Raises `dg.Failure` with the sentence and hint of a GristmillError; RetryRequested where the
    store did not answer.
    """
    asset = context.asset_key.to_user_string()
    keys = list(context.partition_keys)
    with guarded(context), mill.open(launch.overrides, **_asking(context)) as opened:
        if len(keys) > 1:
            keys = in_order(opened, keys)
        made: dict[str, Manifest] = {}
        for key in keys:
            _register(context, key)
            made[key] = stage(opened, key)
            log_funnel(context, made[key])
        shown = {key: display.metadata(opened, asset, key, made[key]) for key in keys}
    if len(keys) == 1:
        return _result(made[keys[0]], shown[keys[0]])
    for key in keys:
        context.add_asset_metadata(shown[key], partition_key=key)
    return dg.MaterializeResult()


def materialise_whole(
    context: dg.AssetExecutionContext, mill: MillResource, launch: Launch, stage: Stage
) -> dg.MaterializeResult:
    """Run a stage that has no partitions, and report it."""
    asset = context.asset_key.to_user_string()
    with guarded(context), mill.open(launch.overrides, **_asking(context)) as opened:
        manifest = stage(opened)
        log_funnel(context, manifest)
        return _result(manifest, display.metadata(opened, asset, None, manifest))


def _result(manifest: Manifest, shown: Mapping[str, Any]) -> dg.MaterializeResult:
    return dg.MaterializeResult(
        metadata=dict(shown), data_version=dg.DataVersion(manifest.content.output)
    )


def _register(context: dg.AssetExecutionContext, key: str) -> None:
    """A partition made in the web page by hand is checked here, and becomes a corpus too."""
    partitions = context.assets_def.partitions_def
    if isinstance(partitions, dg.DynamicPartitionsDefinition) and partitions.name != "corpora":
        register(context.instance, partitions, key)


def in_order(mill: Mill, keys: Sequence[str]) -> list[str]:
    """Snapshots in the order of their registration, those without one by name behind them."""
    order = {name: i for i, name in enumerate(registered_snapshots(mill.root))}
    return sorted(keys, key=lambda key: (order.get(key, len(order)), key))


def log_funnel(context: dg.AssetExecutionContext, manifest: Manifest) -> None:
    """Counts, damage and failed gates in the log of the run, where a person looks first."""
    content = manifest.content
    counts = content.counts
    name = f"{content.stage}/{content.partition}" if content.partition else content.stage
    context.log.info(f"{name}: {counts.kept:,} of {counts.records_in:,} kept")
    for damage in content.damaged[: display.ROWS]:
        where = f"{damage['file']} at byte {damage['offset']:,}"
        context.log.warning(f"{name}: damaged: {where}: {damage['what']}")
    for gate in content.gates:
        if gate.verdict == "fail":
            numbers = f"{gate.value} against {gate.threshold}"
            context.log.warning(f"{name}: gate {gate.name} failed: {numbers}")


def _asking(context: dg.AssetExecutionContext) -> dict[str, Any]:
    return {"progress": progress(context), "run_ids": {"dagster": context.run.run_id}}


def progress(context: dg.AssetExecutionContext) -> Progress:
    """Parts done, in the log of the run: at most some twenty lines a stage."""
    said: dict[str, int] = {}
    watching = list(LISTENERS)

    def say(stage: str, done: int, total: int) -> None:
        for listener in watching:
            listener(stage, done, total)
        step = max(1, total // 20)
        if done // step > said.get(stage, -1):
            said[stage] = done // step
            context.log.info(f"{stage}: {done} of {total} parts")

    return say


class guarded:
    """Turns a GristmillError into what the web UI shows: a failed step with a sentence and a hint.

    Only a store that did not answer is tried again; any other failure would fail again.
    """

    def __init__(self, context: dg.AssetExecutionContext) -> None:
        self.context = context

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Translate what was raised."""
        if isinstance(error, StorageError) and not isinstance(error, ConflictError):
            self.context.log.warning(str(error))
            wait = RETRY_SECONDS * (self.context.op_execution_context.retry_number + 1)
            raise dg.RetryRequested(RETRIES, wait) from error
        if isinstance(error, GristmillError | TrainingError):
            hint = {"hint": error.hint} if error.hint else {}
            raise dg.Failure(str(error), metadata=hint, allow_retries=False) from error


def in_flight(instance: dg.DagsterInstance, asset: str, partition: str, but: str) -> bool:
    """Whether another run than `but` is making a partition of an asset now, or is about to."""
    waiting = [
        dg.DagsterRunStatus.QUEUED,
        dg.DagsterRunStatus.NOT_STARTED,
        dg.DagsterRunStatus.STARTING,
        dg.DagsterRunStatus.STARTED,
    ]
    filters = dg.RunsFilter(statuses=waiting, tags={PARTITION_NAME_TAG: partition})
    key = dg.AssetKey(asset)
    return any(
        run.run_id != but and (run.asset_selection is None or key in run.asset_selection)
        for run in instance.get_runs(filters)
    )
