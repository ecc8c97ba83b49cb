"""Runs of the graph without its web UI: what `gristmill run` and the demo call.

They go through a real Dagster instance, in this process (a run process of its own costs about 4 s,
a step process 1.6 s), so that runs, partitions and checks are in the UI when it is opened later.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterAssetCheckFailedError

from assets.automation import JOB_ASSETS
from assets.checks import CURES
from assets.instance import prepare_home
from assets.materialise import LISTENERS
from assets.partitions import RUNS, SNAPSHOTS, SOURCES, register
from assets.preflight import preflight
from assets.run_origin import end_dead_runs, located, tags
from pipeline.config import Config
from pipeline.errors import GateError, GristmillError, UsageError
from pipeline.excerpts import clean
from pipeline.manifest import Content
from pipeline.mill import Mill, Progress
from resources.mill import open_mill
from training.errors import TrainingError

RUN_CHAIN = JOB_ASSETS["mill_run"]
WHOLE = {"mill_references", "mill_files", "mill_tokenizer", "mill_mixture"}
"""Jobs over assets without partitions."""
KINDS = {"snapshot": SNAPSHOTS, "source": SOURCES, "run": RUNS}

DAMAGE_LINES = 5

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Call:
    """One Dagster run: a job, the assets of it that are made, and their partition."""

    job: str
    assets: tuple[str, ...]
    partition: str | None = None


def materialise(
    config: Config,
    *,
    kind: str,
    partition: str,
    select: Sequence[str] | None = None,
    progress: Progress | None = None,
    tell: Tell | None = None,
) -> dict[str, Any]:
    """Materialise a snapshot or source up to its token shards, or a run up to its exported model.

    `kind`: snapshot, source or run. `select`: only these assets. References, tokenizer and the
    sources it is trained on are made first where they are configured and not there yet. The result
    has `assets` (counts, reasons and gates of each), `lines` for a terminal, and `home`; `tell` is
    given each line as soon as it is known. Raises GristmillError with the sentence of the stage
    that failed.
    """
    root = config.storage.root
    if not root:
        message = "no store was named"
        raise UsageError(message, hint="give --root ROOT, or storage.root in the configuration")
    if select is None:
        preflight(config, kind, partition)
    else:
        list(selected(select, partition))  # unknown names are refused before the store is made
    home = prepare_home(root)
    with (
        dg.DagsterInstance.get() as instance,
        contextlib.closing(Session(config, instance, tell)) as run,
    ):
        end_dead_runs(instance)
        if select is None or not set(select) <= {a for job in WHOLE for a in JOB_ASSETS[job]}:
            register(instance, KINDS[kind], partition)
        with listening(progress):
            for call in run.plan(kind, partition, select):
                run.execute(call)
    return {
        "kind": kind,
        "partition": partition,
        "assets": run.made,
        "lines": run.lines,
        "home": str(home),
    }


class Session:
    """The calls of one `materialise`, and what they made."""

    def __init__(
        self, config: Config, instance: dg.DagsterInstance, tell: Tell | None = None
    ) -> None:
        from assets.definitions import defs

        self.config, self.instance = config, instance
        self.repository = defs.get_repository_def()
        self.mill: Mill = open_mill(config)
        self.settings = config.model_dump_json()
        self.made: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.tell = tell

    def close(self) -> None:
        """End the workers, if any were started."""
        self.mill.engine.close()

    def plan(self, kind: str, partition: str, select: Sequence[str] | None) -> Iterator[Call]:
        """What to run, asked for one by one, since it depends on what is there by then."""
        if select is not None:
            yield from selected(select, partition)
        elif kind == "snapshot":
            yield from self._references()
            yield Call("mill_snapshot", JOB_ASSETS["mill_snapshot"], partition)
            yield from self._tokenizer()
            yield Call("mill_tokens", ("token_shards",), partition)
        elif kind == "source":
            yield Call("mill_source", ("source_texts",), partition)
            yield from self._tokenizer(sources=False)
            yield Call("mill_tokens", ("token_shards",), partition)
        else:
            yield Call("mill_run", RUN_CHAIN, partition)

    def _references(self) -> Iterator[Call]:
        """What scoring needs and configuration names, and the files kept for the record."""
        from pipeline.stages.references import list_files

        references = self.config.references
        if self.mill.find("quality_classifier") is None:
            labels = () if references.quality_model else ("quality_labels",)
            yield Call("mill_references", (*labels, "quality_classifier"))
        kept = {
            "benchmark_sets": self.config.scrub.benchmarks or references.benchmark_sets,
            "word_lists": list_files(self.config.filter.urls),
        }
        for asset, files in kept.items():
            if files and self.mill.find(asset) is None:
                yield Call("mill_files", (asset,))

    def _tokenizer(self, *, sources: bool = True) -> Iterator[Call]:
        """The tokenizer and its sample, once; before that, the sources it should have seen."""
        from pipeline.stages.sources import source_names

        if self.mill.find("tokenizer") is not None:
            return
        names = source_names(self.config.sources.location) if sources else []
        for name in names:
            if self.mill.find("source_texts", name) is None:
                register(self.instance, SOURCES, name)
                yield Call("mill_source", ("source_texts",), name)
        yield Call("mill_tokenizer", ("tokenizer_sample", "tokenizer"))
        for name in names:
            if self.mill.find("token_shards", name) is None:
                yield Call("mill_tokens", ("token_shards",), name)

    def execute(self, call: Call) -> None:
        """One run; its results are added to `made` and `lines`. Raises what the stage raised."""
        job = self.repository.get_job(call.job)
        # a failure is told in one sentence by whoever called; the traceback is in the UI
        level = "CRITICAL"
        try:
            with stdout_to_stderr(), located(self.instance, call.job):
                result = job.execute_in_process(
                    instance=self.instance,
                    partition_key=call.partition,
                    tags=tags(),
                    asset_selection=[dg.AssetKey(name) for name in call.assets],
                    run_config={
                        "loggers": {"console": {"config": {"log_level": level}}},
                        "resources": {"mill": {"config": {"settings": self.settings}}},
                    },
                )
        except dg.Failure as failure:
            cause = failure.__cause__
            if isinstance(cause, GristmillError):
                raise cause from None
            if isinstance(cause, TrainingError):
                raise GristmillError(cause.message, hint=cause.hint) from None
            raise
        except DagsterAssetCheckFailedError as error:
            self._report(call, None)
            raise self._gate_error(call) from error
        self._report(call, result.run_id)

    def _gate_error(self, call: Call) -> GateError:
        """Which gate of which asset stopped a run."""
        for asset in call.assets:
            manifest = self.mill.find(asset, call.partition)
            for gate in manifest.failed_gates() if manifest else ():
                where = f"{asset}/{call.partition}" if call.partition else asset
                message = f"{where} failed its gate {gate.name!r}: {gate.value}, {gate.threshold}"
                hint = "read its funnel and mend the cause, or set accept_gate: {name, reason}"
                return GateError(message, hint=hint)
        return GateError("a blocking check failed", hint="look at the checks in `gristmill up`")

    def _report(self, call: Call, run_id: str | None) -> None:
        for asset in call.assets:
            manifest = None if asset in RUN_CHAIN else self.mill.find(asset, call.partition)
            name = f"{asset}/{call.partition}" if call.partition else asset
            entry: dict[str, Any] = {"asset": asset, "partition": call.partition, "run": run_id}
            if manifest is None:
                self._say(f"{name}: done" if run_id else f"{name}: not reached")
            else:
                content = manifest.content
                entry |= content.counts.model_dump()
                entry |= {"manifest": manifest.hash, "seconds": manifest.run.get("seconds")}
                entry["gates"] = [gate.model_dump() for gate in content.gates]
                for line in told(name, content):
                    self._say(line)
            self.made.append(entry)

    def _say(self, line: str) -> None:
        self.lines.append(line)
        if self.tell:
            self.tell(line)


def told(name: str, content: Content) -> Iterator[str]:
    """What a terminal is told of a partition: counts, damage, and gates that did not pass."""
    counts = content.counts
    yield f"{name}: {counts.kept:,} of {counts.records_in:,} kept"
    for damage in content.damaged[:DAMAGE_LINES]:
        yield f"  damaged: {damage['file']} at byte {damage['offset']:,}: {damage['what']}"
    accepted = {one["name"]: one["reason"] for one in content.accepted_gates or ()}
    for gate in content.gates:
        if gate.verdict == "fail" and gate.name in accepted:
            yield f"  gate {gate.name} failed and is accepted: {clean(accepted[gate.name])}"
        elif gate.verdict == "fail":
            level = "FAIL" if gate.blocking else "WARN"
            yield f"  {level} gate {gate.name}: {gate.value} against {gate.threshold}"
            yield f"    cure: {CURES.get(gate.name, 'read the funnel of this partition')}"


def selected(names: Sequence[str], partition: str) -> Iterator[Call]:
    """Calls for assets named by a person, in the order of the jobs. Raises UsageError."""
    known = {asset for assets in JOB_ASSETS.values() for asset in assets}
    unknown = sorted(set(names) - known)
    if unknown:
        message = f"there is no asset {unknown[0]!r}"
        raise UsageError(message, hint=f"assets: {', '.join(sorted(known))}")
    for job, assets in JOB_ASSETS.items():
        chosen = tuple(asset for asset in assets if asset in names)
        if chosen and job != "arrival":
            yield Call(job, chosen, None if job in WHOLE else partition)


@contextlib.contextmanager
def listening(progress: Progress | None) -> Iterator[None]:
    """Tell `progress` of the parts that stages have done."""
    told = [progress] if progress else []
    LISTENERS.extend(told)
    try:
        yield
    finally:
        for one in told:
            LISTENERS.remove(one)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """What runs print goes to stderr: stdout is the caller's, for one JSON object or a table."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
