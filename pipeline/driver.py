"""The driver of every stage: run a function over parts, keep receipts, commit one manifest.

The work of a part is addressed by content (`manifest.part_key`). When a part is done its files are
published under content names and then its receipt, `receipts/<key>.json`, which says what they are:
a part with a receipt is never computed again. The manifest is assembled from receipts only, in
part order, and the pointer `current` is moved last. Kill a process anywhere and run again: finished
parts are found, unfinished ones are made, nothing half-done was ever visible.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pipeline.dataset import (
    POINTER,
    checksum,
    current_manifest,
    encode_parquet,
    manifest_key,
)
from pipeline.engine import Engine
from pipeline.errors import ConflictError
from pipeline.faults import fault
from pipeline.figures import part_figures, total_figures
from pipeline.inputs import Loaded, Source
from pipeline.manifest import (
    KINDS,
    Content,
    Counts,
    Entry,
    Frozen,
    Gate,
    InputRef,
    Manifest,
    output_hash,
    part_key,
)
from pipeline.part import OutputFile, PartResult
from pipeline.schema import (
    CLUSTERS,
    DECISIONS,
    PAIRS,
    RECORD_DECISIONS,
    WARC_FILES,
    conform,
    document_schema,
)
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

HOST_FLOOR = 5
"""Hosts with fewer records than this in one part are left out of its receipt."""


@cache
def installed(name: str) -> str:
    """The version of a distribution; looked up once, since a key a part asks for it."""
    return version(name)


@dataclass(frozen=True)
class StageSpec:
    """What a stage is, for keys and manifests."""

    name: str
    code_version: str
    libraries: tuple[str, ...]
    partition: str | None
    config: Mapping[str, Any]
    """The section(s) that shape the output, as JSON; files named in it by checksum."""

    @property
    def library_versions(self) -> dict[str, str]:
        """Distribution -> version, for those that shape the output; pyarrow writes every table."""
        return {name: installed(name) for name in sorted({*self.libraries, "pyarrow"})}

    def key(self, checksums: Iterable[str]) -> str:
        """The part key for inputs with these checksums."""
        return part_key(
            stage=self.name,
            checksums=checksums,
            config=self.config,
            code_version=self.code_version,
            libraries=self.library_versions,
        )


class Receipt(Frozen):
    """What the finished work of one part was."""

    key: str
    entries: dict[str, list[Entry]]
    rows_in: int | None
    counts: Counts
    damaged: list[dict[str, Any]]
    hosts: dict[str, list[int]]
    """Host -> [records in, kept], for hosts with at least `HOST_FLOOR` records."""
    figures: dict[str, Any]
    """Documents and bytes of what was kept (`figures.py`)."""
    extra: dict[str, Any]
    reproducible: bool = True


@dataclass(frozen=True)
class PartTask:
    """One part's work, picklable."""

    spec: StageSpec
    key: str
    source: Source
    work: Callable[[Any], PartResult]
    out: Store

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.spec.name} of {self.source.label}"


def plan_tasks(
    spec: StageSpec, sources: Sequence[Source], work: Callable[[Any], PartResult], out: Store
) -> list[PartTask]:
    """One task a source, keyed."""
    return [PartTask(spec, spec.key(s.checksums), s, work, out) for s in sources]


def run_tasks(
    tasks: Sequence[PartTask],
    engine: Engine,
    clock: Clock,
    progress: Callable[[int, int], None],
) -> list[Receipt]:
    """The receipts of all tasks, in order; those without one are computed by the engine."""
    found = finished(tasks)
    missing = [task for task in tasks if task.key not in found]
    clock.computed_bytes += sum(task.source.size_bytes for task in missing)
    progress(len(found), len(tasks))
    for done, receipt in enumerate(engine.map(run_part, missing), start=1):
        found[receipt.key] = receipt
        progress(len(tasks) - len(missing) + done, len(tasks))
    return [found[task.key] for task in tasks]


def finished(tasks: Sequence[PartTask]) -> dict[str, Receipt]:
    """Key -> receipt, of the tasks that are done: their files are still there at their size.

    Listings say what is there: asking for each file of each part would be some 500,000 requests for
    a crawl of 90,000 files.
    """
    if not tasks:
        return {}
    out = tasks[0].out
    there = {info.key for info in out.list("receipts/")}
    wanted = [key for key in dict.fromkeys(t.key for t in tasks) if receipt_key(key) in there]
    found = {key: receipt for key in wanted if (receipt := read_receipt(out, key))}
    entries = {key: [e for kind in r.entries.values() for e in kind] for key, r in found.items()}
    prefixes = {_prefix(entry.path) for some in entries.values() for entry in some}
    sizes = {info.key: info.size for prefix in sorted(prefixes) for info in out.list(prefix)}
    return {
        key: receipt
        for key, receipt in found.items()
        if receipt.reproducible and all(sizes.get(e.path) == e.bytes for e in entries[key])
    }


def _prefix(path: str) -> str:
    """What a listing that has `path` is asked for: its folder, or the first word of its name."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}/" if slash else name[: name.find("-") + 1]


def receipt_key(key: str) -> str:
    """The key of the receipt of a part's key, within its dataset folder."""
    return f"receipts/{key}.json"


def read_receipt(store: Store, key: str) -> Receipt | None:
    """The receipt of a part's key; None where there is none that can be read."""
    try:
        return Receipt.model_validate_json(store.read(receipt_key(key)))
    except (FileNotFoundError, ValueError):
        return None


def run_part(task: PartTask) -> Receipt:
    """Load, compute, publish the files, then the receipt. Runs in a worker process."""
    loaded = task.source.load()
    result = task.work(loaded.value)
    decided = "decisions" in result.tables
    if decided:
        _complete(result, loaded, task.spec.name)
    entries = {kind: _publish(task, kind, frame) for kind, frame in result.tables.items()}
    for kind, files in result.files.items():
        entries[kind] = [_publish_file(task, file) for file in files]
    fault("stage.part.before_receipt")
    receipt = Receipt(
        key=task.key,
        entries=entries,
        rows_in=loaded.rows if decided else None,
        counts=count(result.tables["decisions"]) if decided else Counts.total([]),
        damaged=[damage.as_json() for damage in [*loaded.damaged, *result.damaged]],
        hosts=count_hosts(result.tables["decisions"]) if decided else {},
        figures=part_figures(result.tables["parts"]) if "parts" in result.tables else {},
        extra=result.extra,
        reproducible=result.reproducible,
    )
    task.out.write(receipt_key(task.key), receipt.model_dump_json(indent=1).encode())
    fault("stage.part.after_receipt")
    return receipt


def _complete(result: PartResult, loaded: Loaded, stage: str) -> None:
    """Decisions of the rows that never got to the stage, and one name of it on all of them."""
    import polars as pl

    frames = [result.tables["decisions"]]
    if loaded.rejected is not None and loaded.rejected.height:
        frames.append(loaded.rejected)
    decisions = pl.concat(frames, how="diagonal_relaxed")
    result.tables["decisions"] = decisions.with_columns(stage=pl.lit(stage, pl.String))


def count(decisions: pl.DataFrame) -> Counts:
    """Counts of a decisions table."""
    dropped = decisions.filter(~decisions["kept"])
    reasons = dict(sorted(dropped["reason"].value_counts().iter_rows()))
    return Counts(
        records_in=decisions.height,
        kept=decisions.height - dropped.height,
        dropped=dropped.height,
        reasons=reasons,
    )


def count_hosts(decisions: pl.DataFrame) -> dict[str, list[int]]:
    """Host -> [in, kept] of a decisions table, hosts with enough records only."""
    import polars as pl

    host = pl.col("url").str.extract(r"^[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/@]*@)?([^/:?#]+)", 1)
    table = (
        decisions.select(host=host.str.to_lowercase(), kept="kept")
        .drop_nulls("host")
        .group_by("host")
        .agg(n=pl.len(), kept=pl.col("kept").sum())
        .filter(pl.col("n") >= HOST_FLOOR)
        .sort("host")
    )
    return {name: [n, kept] for name, n, kept in table.iter_rows()}


def _table(stage: str, kind: str, frame: pl.DataFrame) -> pa.Table:
    if kind == "parts" and stage == "snapshots":
        return conform(frame, WARC_FILES)
    if kind == "parts":
        return conform(frame, document_schema(frame.columns), extra=True)
    if kind == "decisions":
        schema = RECORD_DECISIONS if "warc_file" in frame.columns else DECISIONS
        return conform(frame, schema)
    if kind in ("pairs", "clusters"):
        return conform(frame, PAIRS if kind == "pairs" else CLUSTERS)
    return frame.to_arrow()


def _publish(task: PartTask, kind: str, frame: pl.DataFrame) -> list[Entry]:
    table = _table(task.spec.name, kind, frame)
    data = encode_parquet(table)
    digest = checksum(data)
    folder = "" if kind == "parts" else f"{kind}/"
    path = f"{folder}part-{digest[7:31]}.parquet"
    fault("stage.part.before_file")
    task.out.write(path, data)
    fault("stage.part.after_file")
    return [_entry(task, path, table.num_rows, len(data), digest)]


def _publish_file(task: PartTask, file: OutputFile) -> Entry:
    from pipeline.inputs import file_checksum

    size, digest = file.path.stat().st_size, file_checksum(file.path)
    fault("stage.file.before_upload")
    task.out.upload(file.path, file.name)
    fault("stage.file.after_upload")
    return _entry(task, file.name, file.rows, size, digest)


def _entry(task: PartTask, path: str, rows: int, size: int, digest: str) -> Entry:
    return Entry(
        key=task.key,
        path=path,
        rows=rows,
        bytes=size,
        checksum=digest,
        source=task.source.origin,
        group=task.source.group,
    )


@dataclass
class Clock:
    """When a run began and what it computed, for the volatile block."""

    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    begin: float = field(default_factory=time.monotonic)
    computed_bytes: int = 0
    """Input of the parts that were not there yet: with the seconds, a measured rate."""

    def block(self, **more: Any) -> dict[str, Any]:
        """The `run` block of a manifest."""
        return {
            "started": self.started.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self.begin, 3),
            "computed_bytes": self.computed_bytes,
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
