"""What a whole snapshot would take, from the sample of its files that was run.

Everything is carried over by compressed WARC bytes (by files, where the listing has no sizes): the
ratio estimator of survey sampling, with its standard error over files, Student's t and the
correction for a finite population (Cochran, Sampling Techniques, 3rd ed., 2.14 and 6.3). A range is
nine times out of ten right, if files are alike in the way random ones are; one file has no range.
What depends on all documents at once is not linear in them: a sample meets few of its duplicates,
so from `deduped_corpus` on the estimate is `at_most`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

from pipeline.dataset import read_part
from pipeline.driver import read_receipt
from pipeline.errors import GristmillError
from pipeline.manifest import KINDS, Manifest
from pipeline.mill import Mill
from pipeline.snapshots import Extent, extent

CONFIDENCE = 0.9
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
"""95th percentile of Student's t for 1 to 10 degrees of freedom."""
NORMAL = 1.645
FROM_ALL_DOCUMENTS = ("deduped_corpus", "scrubbed_corpus", "token_shards")
RECEIPTS = 500
"""Receipts that are read for the spread of CPU time; more would say the same."""


@dataclass(frozen=True)
class Estimate:
    """A value for the whole, and the ends of its range where one is known."""

    value: float
    low: float | None = None
    high: float | None = None

    def scaled(self, factor: float) -> Estimate:
        """In another unit."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, low, high)


@dataclass(frozen=True)
class WholeStage:
    """One stage of a whole snapshot."""

    stage: str
    sample_files: int | None
    """Files whose documents are in it; null where its parts are not files."""
    sample_documents: int
    documents: Estimate
    input_bytes: Estimate
    disk_bytes: Estimate
    cpu_hours: Estimate | None
    """Null where the run that made it measured nothing."""
    wall_hours: float | None
    """With the configured workers, all of them busy."""
    at_most: bool


@dataclass(frozen=True)
class Whole:
    """A whole snapshot: what is known of it, what was run of it, and what follows."""

    snapshot: str
    files: int
    sample_files: int
    sample_bytes: int
    crawl_bytes: Estimate
    workers: int
    confidence: float
    stages: list[WholeStage]
    missing: list[str]
    """Stages of which no sample was run: unknown."""

    def as_json(self) -> dict[str, Any]:
        """As `gristmill plan --json` prints it."""
        return asdict(self)


@dataclass(frozen=True)
class _Sample:
    """The files of the sample with their sizes, and how much the whole is."""

    sizes: Mapping[str, int]
    whole: Extent

    def estimate(self, values: Mapping[str, float]) -> Estimate:
        """A total over the whole, from its values by file of the sample."""
        names = list(values)
        by_size = self.whole.size_bytes is not None
        weights = [float(self.sizes[name]) if by_size else 1.0 for name in names]
        total = float(self.whole.size_bytes or 0) if by_size else float(self.whole.files)
        return ratio_estimate([values[n] for n in names], weights, total, self.whole.files)


def ratio_estimate(
    values: list[float], weights: list[float], total_weight: float, population: int
) -> Estimate:
    """The total of a quantity over a population whose total weight is known.

    `values` and `weights` are those of a sample of it. No range from a sample of one.
    """
    n = len(values)
    ratio = sum(values) / max(sum(weights), 1e-9)
    value = ratio * total_weight
    if n < 2:
        return Estimate(value)
    squares = sum((y - ratio * x) ** 2 for y, x in zip(values, weights, strict=True))
    left = max(1.0 - n / population, 0.0)
    error = population * sqrt(left * squares / (n - 1) / n)
    half = student(n - 1) * error
    return Estimate(value, max(value - half, 0.0), value + half)


def student(degrees: int) -> float:
    """The 95th percentile of Student's t, by Cornish and Fisher's expansion beyond the table."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    return NORMAL + (NORMAL**3 + NORMAL) / (4 * degrees)


def plan_whole(mill: Mill, snapshot: str, stages: list[str]) -> Whole | None:
    """What all of a snapshot would take; None where all of it is listed, or nothing of it was run.

    `stages`: their names in order, from `extracted_text` on. Raises what listing it raises.
    """
    listed = mill.find("snapshots", snapshot)
    if listed is None:
        return None
    files = read_part(mill.folder("snapshots", snapshot), listed.content.parts[0])
    sizes = dict(files.select("warc_file", "size_bytes").iter_rows())
    whole = extent(mill, snapshot)
    if whole.files <= len(sizes):
        return None
    sample = _Sample(sizes, whole)
    found: list[WholeStage] = []
    missing: list[str] = []
    before = sample.estimate({name: float(size) for name, size in sizes.items()})
    for name in stages:
        manifest = mill.find(name, snapshot)
        made = manifest and _stage(mill, name, snapshot, manifest, sample, before, found)
        if not made:
            missing.append(name)
            continue
        found.append(made[0])
        before = made[1]
    if not found:
        return None
    return Whole(
        snapshot=snapshot,
        files=whole.files,
        sample_files=len(sizes),
        sample_bytes=sum(sizes.values()),
        crawl_bytes=sample.estimate({name: float(size) for name, size in sizes.items()}),
        workers=mill.engine.workers,
        confidence=CONFIDENCE,
        stages=found,
        missing=missing,
    )


def _stage(
    mill: Mill,
    name: str,
    snapshot: str,
    manifest: Manifest,
    sample: _Sample,
    input_bytes: Estimate,
    before: list[WholeStage],
) -> tuple[WholeStage, Estimate] | None:
    """A stage of the whole, and the bytes that the next one reads; None without its sample."""
    content = manifest.content
    read = {entry.source for entry in content.decisions} - {None}
    names = sorted(str(source) for source in read if source in sample.sizes)
    kept, disk, parts = _by_file(manifest, names)
    if names:
        documents, size, output = map(sample.estimate, (kept, disk, parts))
        share = sum(sample.sizes[name] for name in names)
    elif before:  # its parts are groups of files: as the stage before it is to its sample
        scale = before[-1].documents.value / max(before[-1].sample_documents, 1)
        documents = like(before[-1].documents, content.counts.kept * scale)
        total = float(sum(entry.bytes for kind in KINDS for entry in content.entries(kind)))
        size = like(before[-1].disk_bytes, total * scale)
        output, share = size, 0
    else:
        return None
    cpu = _cpu(mill, name, snapshot, manifest, sample, names, input_bytes)
    workers = mill.engine.workers
    stage = WholeStage(
        stage=name,
        sample_files=len(names) if share else None,
        sample_documents=content.counts.kept,
        documents=documents,
        input_bytes=input_bytes,
        disk_bytes=size,
        cpu_hours=cpu,
        wall_hours=cpu.value / workers if cpu else None,
        at_most=name in FROM_ALL_DOCUMENTS,
    )
    return stage, output


def like(other: Estimate, value: float) -> Estimate:
    """A value with the relative range of another one."""
    return other.scaled(value / other.value) if other.value else Estimate(value)


def _by_file(
    manifest: Manifest, names: list[str]
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """By file of the sample: documents kept, bytes of all tables, bytes of the documents."""
    kept, disk, parts = ({name: 0.0 for name in names} for _ in range(3))
    for kind in KINDS:
        for entry in manifest.content.entries(kind):
            if entry.source not in disk:
                continue
            disk[entry.source] += entry.bytes
            if kind == "parts":
                kept[entry.source] += entry.rows
                parts[entry.source] += entry.bytes
    return kept, disk, parts


def _cpu(
    mill: Mill,
    name: str,
    snapshot: str,
    manifest: Manifest,
    sample: _Sample,
    names: list[str],
    input_bytes: Estimate,
) -> Estimate | None:
    """CPU hours of a stage: by file where receipts say them, in all by the run's own rate."""
    measured = manifest.run.get("cost")
    if not measured or not measured["input_bytes"]:
        return None
    rate = measured["cpu_seconds"] / measured["input_bytes"]
    total = Estimate(input_bytes.value * rate / 3600)
    spread = _receipts(mill, name, snapshot, manifest, names)
    if len(spread) < 2:
        return total
    return like(sample.estimate(spread), total.value)


def _receipts(
    mill: Mill, name: str, snapshot: str, manifest: Manifest, names: list[str]
) -> dict[str, float]:
    """CPU seconds by file, of parts whose receipts have them."""
    store = mill.folder(name, snapshot)
    keys = {entry.source: entry.key for entry in manifest.content.decisions}
    every = max(1, len(names) // RECEIPTS)
    found = {}
    for source in names[::every]:
        receipt = read_receipt(store, keys[source])
        if receipt and receipt.cost:
            found[source] = receipt.cost.cpu_seconds
    return found


def try_whole(mill: Mill, snapshot: str, stages: list[str]) -> Whole | str | None:
    """`plan_whole`, or the sentence that says why the listing cannot be read."""
    try:
        return plan_whole(mill, snapshot, stages)
    except GristmillError as error:
        return error.message
