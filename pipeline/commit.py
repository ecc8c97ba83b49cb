"""The commit of a stage: one manifest of finished parts, then the pointer; nothing else shows."""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pipeline.dataset import POINTER, current_manifest, manifest_key
from pipeline.driver import Cost, Receipt, StageSpec
from pipeline.errors import ConflictError
from pipeline.faults import fault
from pipeline.figures import total_figures
from pipeline.manifest import KINDS, Content, Counts, Entry, Gate, InputRef, Manifest, output_hash
from pipeline.store import Store


@dataclass
class Clock:
    """When a run began and what it computed, for the volatile block."""

    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    begin: float = field(default_factory=time.monotonic)
    own_cpu: float = field(default_factory=time.process_time)
    computed_bytes: int = 0
    """Input of the parts that were not there yet."""
    parts_cpu: float = 0.0
    """CPU seconds of all parts, whenever and in whatever process they were computed."""
    mapped_cpu: float = 0.0
    """CPU seconds of this process while parts were computed, by it or by workers."""
    input_bytes: Counter[str] = field(default_factory=Counter)
    """Input of those parts by step; a stage of several steps reads its input in each."""

    def count(self, step: str, cost: Cost, now: bool) -> None:
        """Count a part of a step; `now`: it was not there yet."""
        self.computed_bytes += cost.input_bytes if now else 0
        self.parts_cpu += cost.cpu_seconds
        self.input_bytes[step] += cost.input_bytes

    @contextmanager
    def mapping(self) -> Iterator[None]:
        """While parts are computed: what this process does then is counted with them."""
        begin = time.process_time()
        try:
            yield
        finally:
            self.mapped_cpu += time.process_time() - begin

    def cost(self) -> dict[str, float]:
        """A rate of the stage: CPU seconds, and the bytes of input they were spent on.

        The seconds are those of its parts, and of what is decided over all of them at once.
        """
        own = time.process_time() - self.own_cpu - self.mapped_cpu
        size = max(self.input_bytes.values(), default=0)
        return {"cpu_seconds": round(self.parts_cpu + own, 3), "input_bytes": size}

    def block(self, **more: Any) -> dict[str, Any]:
        """The `run` block of a manifest."""
        return {
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self.begin, 3),
            "computed_bytes": self.computed_bytes,
            "cost": self.cost(),
            "host": platform.node(),
            "pid": os.getpid(),
            **more,
        }


def commit(
    spec: StageSpec,
    out: Store,
    receipts: Sequence[Receipt],
    *,
    inputs: Sequence[InputRef],
    gates: Callable[[Sequence[Receipt], Counts], list[Gate]],
    accept: Mapping[str, str] | None = None,
    run: Mapping[str, Any],
    summary: Mapping[str, Any] | None = None,
    clock: Clock,
) -> Manifest:
    """Write the manifest of finished parts and move the pointer: the only way to be visible."""
    kinds: dict[str, list[Entry]] = {kind: [] for kind in KINDS}
    for receipt in receipts:
        for kind, entries in receipt.entries.items():
            if kind in kinds:
                kinds[kind].extend(entries)
    counts = Counts.total(receipt.counts for receipt in receipts)
    verdicts = gates(receipts, counts)
    failed = {gate.name for gate in verdicts if gate.verdict == "fail"}
    optional = {k: v for k, v in kinds.items() if v or k in ("parts", "decisions")}
    content = Content(
        stage=spec.name,
        partition=spec.partition,
        inputs=list(inputs),
        config=dict(spec.config),
        code_version=spec.code_version,
        libraries=spec.library_versions,
        output=output_hash(kinds["parts"]),
        counts=counts,
        damaged=[damage for receipt in receipts for damage in receipt.damaged],
        gates=verdicts,
        accepted_gates=[dict(accept)] if accept and accept["name"] in failed else None,
        summary={**total_figures(r.figures for r in receipts), **(summary or {})},
        **optional,
    )
    manifest = Manifest(content=content, run=clock.block(**run))
    publish(out, manifest)
    return manifest


def publish(out: Store, manifest: Manifest) -> None:
    """Store a manifest and point `current` at it; nothing moves where it is there already."""
    before = current_manifest(out)
    if before == manifest.hash and _same_places(out, manifest):
        return
    fault("stage.commit.before_manifest")
    out.write(manifest_key(manifest.hash), manifest.to_bytes())
    fault("stage.commit.before_pointer")
    expected = None if before is None else out.read(POINTER)
    try:
        out.swap(POINTER, manifest.hash.encode() + b"\n", expected=expected)
    except ConflictError as error:
        if current_manifest(out) == manifest.hash:
            return  # another run came to the same result
        message = f"{out.url} was committed by another run meanwhile"
        raise ConflictError(message, hint="run again: finished parts are reused") from error
    fault("stage.commit.after_pointer")


def _same_places(out: Store, manifest: Manifest) -> bool:
    """Whether the stored manifest of this content is there and names the same file locations."""
    try:
        stored = json.loads(out.read(manifest_key(manifest.hash)))
    except (FileNotFoundError, ValueError):
        return False
    return bool(stored["run"].get("locations") == manifest.run.get("locations"))
