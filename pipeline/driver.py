"""The driver of every stage: run a function over parts, keep receipts, commit one manifest.

The work of a part is addressed by content (`manifest.part_key`). When a part is done its files are
published under content names and then its receipt, `receipts/<key>.json`, which says what they are:
a part with a receipt is never computed again. The manifest is assembled from receipts only, in
part order, and the pointer `current` is moved last. Kill a process anywhere and run again: finished
parts are found, unfinished ones are made, nothing half-done was ever visible.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

from pipeline.costs import cpu_seconds
from pipeline.dataset import file_checksum
from pipeline.engine import Engine
from pipeline.faults import fault
from pipeline.inputs import Loaded, Source
from pipeline.manifest import (
    Counts,
    Entry,
    Frozen,
    part_key,
)
from pipeline.part import OutputFile, PartResult
from pipeline.part_files import PartFiles, TableFile
from pipeline.part_sums import PartSums
from pipeline.store import Store

Work = Callable[[Any], PartResult | Iterator[PartResult]]
"""What a stage makes of the rows it is given, at once or in batches."""


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
        """Distribution -> version, for those that shape the output.

        pyarrow writes every table; Python's minor release decides what is a letter.
        """
        versions = {name: installed(name) for name in sorted({*self.libraries, "pyarrow"})}
        return versions | {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}

    def key(self, checksums: Iterable[str]) -> str:
        """The part key for inputs with these checksums."""
        return part_key(
            stage=self.name,
            checksums=checksums,
            config=self.config,
            code_version=self.code_version,
            libraries=self.library_versions,
        )


class Cost(Frozen):
    """What a part took where it was computed; it is in no hash."""

    cpu_seconds: float
    """Of the worker and its children."""
    seconds: float
    input_bytes: int


class Receipt(Frozen):
    """What the finished work of one part was."""

    key: str
    entries: dict[str, list[Entry]]
    rows_in: int | None
    counts: Counts
    damaged: list[dict[str, Any]]
    hosts: dict[str, list[int]]
    """Host -> [records in, kept]; see `part_sums.count_hosts`."""
    figures: dict[str, Any]
    """Documents and bytes of what was kept (`figures.py`)."""
    extra: dict[str, Any]
    reproducible: bool = True
    cost: Cost | None = None


@dataclass(frozen=True)
class PartTask:
    """One part's work, picklable."""

    spec: StageSpec
    key: str
    source: Source
    work: Work
    out: Store
    by_rows: bool = False
    """Whether `work` looks at one row at a time, so that it may be given a part in batches."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.spec.name} of {self.source.label}"


def plan_tasks(
    spec: StageSpec, sources: Sequence[Source], work: Work, out: Store, *, by_rows: bool = False
) -> list[PartTask]:
    """One task a source, keyed."""
    return [PartTask(spec, spec.key(s.checksums), s, work, out, by_rows) for s in sources]


def run_tasks(
    tasks: Sequence[PartTask],
    engine: Engine,
    progress: Callable[[int, int], None],
    count: Callable[[Cost, bool], None],
) -> list[Receipt]:
    """The receipts of all tasks, in order; those without one are computed by the engine.

    `count` is told what each took, and whether it was computed now.
    """
    found = finished(tasks)
    missing = [task for task in tasks if task.key not in found]
    progress(len(found), len(tasks))
    for cost in (receipt.cost for receipt in found.values()):
        if cost:
            count(cost, False)
    for done, receipt in enumerate(engine.map(run_part, missing), start=1):
        found[receipt.key] = receipt
        if receipt.cost:
            count(receipt.cost, True)
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
    """Load, compute, publish the files, then the receipt. Runs in a worker process.

    Batch by batch: what a batch became is in files before the next one is loaded.
    """
    begin, cpu = time.monotonic(), cpu_seconds()
    files, sums = PartFiles(task.spec.name), PartSums()
    others: list[PartResult] = []
    for loaded in task.source.batches() if task.by_rows else [task.source.load()]:
        sums.came(loaded.rows, loaded.damaged)
        for result in _results(task, loaded):
            files.append(result.tables)
            sums.add(result)
            if result.files:
                others.append(result)
    entries = {kind: [_publish(task, kind, table)] for kind, table in files.close().items()}
    for result in others:
        for kind, some in result.files.items():
            entries[kind] = [_publish_file(task, file) for file in some]
    fault("stage.part.before_receipt")
    receipt = Receipt(
        key=task.key,
        entries=entries,
        rows_in=sums.rows_in if sums.decided else None,
        counts=sums.counts,
        damaged=[damage.as_json() for damage in sums.damaged],
        hosts=sums.hosts,
        figures=sums.figures,
        extra=sums.extra,
        reproducible=sums.reproducible,
        cost=Cost(
            cpu_seconds=round(cpu_seconds() - cpu, 4),
            seconds=round(time.monotonic() - begin, 4),
            input_bytes=task.source.size_bytes,
        ),
    )
    task.out.write(receipt_key(task.key), receipt.model_dump_json(indent=1).encode())
    fault("stage.part.after_receipt")
    return receipt


def _results(task: PartTask, loaded: Loaded) -> Iterator[PartResult]:
    """What a batch becomes, one name of the stage on all decisions; behind it the decisions on the
    rows that never got to the stage."""
    import polars as pl

    stage = pl.lit(task.spec.name, pl.String)
    made = task.work(loaded.value)
    decided = False
    for result in [made] if isinstance(made, PartResult) else made:
        if "decisions" in result.tables:
            decided = True
            result.tables["decisions"] = result.tables["decisions"].with_columns(stage=stage)
        yield result
    if decided and loaded.rejected is not None and loaded.rejected.height:
        yield PartResult({"decisions": loaded.rejected.with_columns(stage=stage)})


def _publish(task: PartTask, kind: str, table: TableFile) -> Entry:
    digest = file_checksum(table.path)
    size = table.path.stat().st_size
    folder = "" if kind == "parts" else f"{kind}/"
    path = f"{folder}part-{digest[7:31]}.parquet"
    fault("stage.part.before_file")
    task.out.upload(table.path, path)
    fault("stage.part.after_file")
    return _entry(task, path, table.rows, size, digest)


def _publish_file(task: PartTask, file: OutputFile) -> Entry:
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
