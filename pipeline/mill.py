"""The mill: a store, a configuration and an engine, and the way from one stage to the next.

The functions of `pipeline.stages` take a `Mill` and a partition and return the manifest they
committed. The asset graph and the command line both call them; neither knows how a stage works.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.commit import Clock, commit
from pipeline.config import Config
from pipeline.dataset import Dataset, current_manifest, read_manifest
from pipeline.driver import PartTask, Receipt, StageSpec, Work, plan_tasks, run_tasks
from pipeline.engine import Engine
from pipeline.errors import ConflictError, GateError, UsageError
from pipeline.gates import GateRule, all_of, conserved, not_empty
from pipeline.inputs import Input, dataset_input
from pipeline.layout import check_name
from pipeline.manifest import InputRef, Manifest
from pipeline.store import Store

REGISTRY = "snapshots/registry.json"

Progress = Callable[[str, int, int], None]
"""Called with the stage, parts done, parts in all."""


Planning = Callable[[StageSpec, Sequence[PartTask]], None]
"""Told what a stage would run, when nothing is to be run."""


class PlannedOnly(Exception):
    """Ends a stage that was only asked what it would do."""


def no_progress(stage: str, done: int, total: int) -> None:
    """Say nothing."""


@dataclass(frozen=True)
class Mill:
    """Everything a stage is given."""

    root: Store
    config: Config
    engine: Engine
    fetch: Callable[[str], AbstractContextManager[Path]]
    """A local file with the bytes of a location (path, s3://, https://); picklable."""
    open_store: Callable[[str], Store]
    progress: Progress = no_progress
    run_ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the run that asks (Dagster run id, ...), for the volatile block."""
    planning: Planning | None = None
    """Set by `plan.py`: stages report their tasks and stop before running any."""

    def folder(self, asset: str, partition: str | None = None) -> Store:
        """Where a partition of an asset lives."""
        return self.root.child(f"{asset}/{partition}" if partition else asset)

    def open(self, asset: str, partition: str | None = None) -> Dataset:
        """A committed upstream dataset whose gates passed, or whose failure is accepted."""
        store = self.folder(asset, partition)
        if current_manifest(store) is None:
            name = f"{asset}/{partition}" if partition else asset
            message = f"{name} is not there yet"
            raise UsageError(message, hint=f"materialise {name} first")
        try:
            return Dataset.open(store)
        except GateError:
            dataset = Dataset.open(store, accept_gate=True)
            accepted = self.config.accept_gate
            failed = {gate.name for gate in dataset.manifest.failed_gates()}
            if accepted and failed <= {accepted.name}:
                return dataset
            raise

    def find(self, asset: str, partition: str | None = None) -> Manifest | None:
        """The current manifest of a partition, whatever its gates say; None where there is none."""
        store = self.folder(asset, partition)
        return read_manifest(store) if current_manifest(store) else None


def run_stage(
    mill: Mill,
    spec: StageSpec,
    given: Input,
    work: Work,
    out: Store,
    *,
    by_rows: bool = False,
    refs: Sequence[InputRef] = (),
    rules: Sequence[GateRule] = (),
    summarise: Callable[[Sequence[Receipt]], Mapping[str, Any]] | None = None,
) -> Manifest:
    """Run one function over every part of an input and commit what it made.

    `by_rows`: it looks at one row at a time, so a part may come to it in batches.
    """
    clock = Clock()
    tasks = plan_tasks(spec, given.sources, work, out, by_rows=by_rows)
    receipts = run_parts(mill, spec, tasks, clock)
    return commit_stage(
        mill,
        spec,
        out,
        receipts,
        refs=[*given.refs, *refs],
        locations=given.locations,
        rules=rules,
        summary=summarise(receipts) if summarise else None,
        clock=clock,
    )


def run_parts(
    mill: Mill, spec: StageSpec, tasks: Sequence[PartTask], clock: Clock
) -> list[Receipt]:
    """The receipts of tasks, computed by the mill's engine where they are not there yet."""
    if mill.planning:
        mill.planning(spec, tasks)
        raise PlannedOnly
    progress = partial(mill.progress, spec.name)
    with clock.mapping():
        return run_tasks(tasks, mill.engine, progress, partial(clock.count, spec.name))


def commit_stage(
    mill: Mill,
    spec: StageSpec,
    out: Store,
    receipts: Sequence[Receipt],
    *,
    refs: Sequence[InputRef],
    locations: Sequence[str],
    rules: Sequence[GateRule],
    clock: Clock,
    summary: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
) -> Manifest:
    """Commit receipts with the gates every stage has and those of this one."""
    accept = mill.config.accept_gate
    return commit(
        spec,
        out,
        receipts,
        inputs=refs,
        gates=all_of(conserved, not_empty, *rules),
        accept=accept.model_dump() if accept else None,
        summary=summary,
        run={
            "workers": mill.engine.workers,
            "peak_memory_mib": mill.engine.peak_bytes() >> 20,
            "ids": dict(mill.run_ids),
            "inputs": list(locations),
            **(run or {}),
        },
        clock=clock,
    )


def upstream(mill: Mill, asset: str, partition: str) -> Input:
    """A committed partition as the input of the next stage."""
    return dataset_input(mill.open(asset, partition))


def register_snapshot(root: Store, name: str) -> int:
    """The sequence number of a snapshot, for good: a new one goes behind all others.

    Raises UsageError for a name that cannot be a folder and a partition key.
    """
    check_name("snapshot", name)
    for _ in range(20):
        names, stored = _registry(root)
        if name in names:
            return names.index(name)
        try:
            root.swap(REGISTRY, json.dumps([*names, name], indent=1).encode(), expected=stored)
        except ConflictError:
            continue
        return len(names)
    message = f"snapshot registry of {root.url} is being changed all the time"
    raise ConflictError(message, hint="try again when other registrations are done")


def registered_snapshots(root: Store) -> list[str]:
    """Names of snapshots in order of registration."""
    return _registry(root)[0]


def _registry(root: Store) -> tuple[list[str], bytes | None]:
    try:
        stored = root.read(REGISTRY)
    except FileNotFoundError:
        return [], None
    return json.loads(stored), stored
