"""What would be rebuilt, and what it would cost, without running anything.

Each stage is asked for its part keys under the present configuration; a part with a receipt is
there. That every part is there does not mean that the current manifest names them: a stage that was
made with other settings since, or before its input changed, is told as such.
Costs come from rates that the store's own earlier runs measured (the `run` blocks of manifests);
where a stage was never run they are unknown, not guessed. `whole.py` goes from a sample of a
snapshot to all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pipeline.dataset import read_manifest
from pipeline.driver import PartTask, StageSpec, finished
from pipeline.errors import GateError, UsageError
from pipeline.manifest import Manifest
from pipeline.mill import Mill, PlannedOnly, registered_snapshots

UP_TO_DATE = "up to date"

StageFunction = Callable[[Mill, str], Manifest]


@dataclass(frozen=True)
class Planned:
    """One partition of one stage: parts in all and missing, and what the missing ones cost."""

    stage: str
    partition: str
    parts: int
    missing: int
    input_bytes: int
    cpu_seconds: float | None
    """Null where there is something to compute and no rate is known."""
    rate_of: str | None
    """The partition whose run measured the rate."""
    certain: bool
    """False behind a stage that is rebuilt: at most this, since equal output stops the ripple."""
    why: str

    def as_json(self) -> dict[str, Any]:
        """As `gristmill plan --json` prints it."""
        return asdict(self)


def plan_partition(
    mill: Mill, partition: str, stages: Iterable[tuple[str, StageFunction]]
) -> list[Planned]:
    """The plan of one partition through stages in order."""
    planned: list[Planned] = []
    certain = True
    for name, function in stages:
        planned.append(_ask(mill, name, partition, function, certain))
        certain &= planned[-1].why == UP_TO_DATE
    return planned


def _ask(mill: Mill, name: str, partition: str, function: StageFunction, certain: bool) -> Planned:
    seen: list[tuple[StageSpec, Sequence[PartTask]]] = []
    asked = replace(mill, planning=lambda spec, tasks: seen.append((spec, tasks)))
    nothing = Planned(name, partition, 0, 0, 0, 0.0, None, certain, "nothing to run")
    try:
        function(asked, partition)
    except PlannedOnly:
        pass
    except (UsageError, GateError) as error:
        return replace(nothing, cpu_seconds=None, why=f"cannot run: {error.message}")
    if not seen:
        return nothing
    spec, tasks = seen[0]
    done = finished(tasks)
    missing = [task for task in tasks if task.key not in done]
    own = _why(mill, mill.find(name, partition), spec, tasks, missing=bool(missing))
    if not certain:
        missing, own = list(tasks), "at most, if the stages before it change their output"
    size = sum(task.source.size_bytes for task in missing)
    rate = rate_of(mill, name, partition) if missing else Rate(0.0, None)
    cost = size * rate.cpu_seconds if rate else None
    measured = rate.partition if rate else None
    return Planned(name, partition, len(tasks), len(missing), size, cost, measured, certain, own)


@dataclass(frozen=True)
class Rate:
    """CPU seconds a byte of input, and the partition whose run measured it."""

    cpu_seconds: float
    partition: str | None


def rate_of(mill: Mill, stage: str, partition: str) -> Rate | None:
    """What a stage takes: as this partition was made, else another one; None if none was."""
    others = [name for name in reversed(registered_snapshots(mill.root)) if name != partition]
    for name in (partition, *others):
        manifest = mill.find(stage, name)
        cost = manifest.run.get("cost") if manifest else None
        if cost and cost["input_bytes"]:
            return Rate(cost["cpu_seconds"] / cost["input_bytes"], name)
    return None


def _why(
    mill: Mill,
    manifest: Manifest | None,
    spec: StageSpec,
    tasks: Sequence[PartTask],
    *,
    missing: bool,
) -> str:
    """What separates the current manifest from the one that is wanted."""
    if manifest is None:
        return "not there yet"
    why = _difference(manifest, spec)
    if why is None and (moved := moved_inputs(mill, manifest)):
        why = f"its input changed: {', '.join(moved)}"
    if why is None and (missing or not _same_parts(manifest, spec, tasks)):
        why = "its input changed"
    if why is None:
        return UP_TO_DATE
    return why if missing else f"{why}; materialise it, its parts are there"


def _same_parts(manifest: Manifest, spec: StageSpec, tasks: Sequence[PartTask]) -> bool:
    """Whether the manifest is made of these parts; true where they are those of a first step."""
    content = manifest.content
    keys = {entry.key for entry in (*content.parts, *content.decisions)}
    return spec.name != content.stage or {task.key for task in tasks} == keys


def _difference(manifest: Manifest, spec: StageSpec) -> str | None:
    """The first difference in code, libraries or configuration."""
    content = manifest.content
    if content.code_version != spec.code_version:
        return f"code version {content.code_version} -> {spec.code_version}"
    for name, version in spec.library_versions.items():
        if content.libraries.get(name) != version:
            return f"{name} {content.libraries.get(name)} -> {version}"
    changed = changed_keys(content.config, spec.config)
    return f"configuration: {', '.join(changed)}" if changed else None


def moved_inputs(mill: Mill, manifest: Manifest) -> list[str]:
    """Datasets that hold another output by now than the one this manifest was made of."""
    moved = []
    for ref in manifest.content.inputs:
        if ref.asset is None or ref.hash is None:
            continue
        now = mill.find(ref.asset, ref.partition)
        if now is None or now.hash == ref.hash:
            continue
        then = read_manifest(mill.folder(ref.asset, ref.partition), ref.hash)
        if then.content.output != now.content.output:
            moved.append(f"{ref.asset}/{ref.partition}" if ref.partition else ref.asset)
    return moved


def changed_keys(before: Any, after: Any, prefix: str = "") -> list[str]:
    """Dotted keys whose values differ between two configurations."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            key
            for name in sorted({*before, *after})
            for key in changed_keys(before.get(name), after.get(name), f"{prefix}{name}.")
        ]
    return [] if before == after else [prefix.removesuffix(".")]
