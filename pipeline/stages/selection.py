"""`selection`: thresholds that keep a share of each language, fitted on scored snapshots.

It reads the signals of `scored_text` (kept and dropped documents), so it may be fitted again on
snapshots that an earlier selection thinned out. It moves nothing by itself: a snapshot is selected
by it where `score.selection` says so, and the check `configuration` names those that are behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import section_json
from pipeline.config.score import FITTED, SelectConfig
from pipeline.dataset import Dataset, file_checksum, read_bytes, read_part
from pipeline.driver import StageSpec
from pipeline.errors import UsageError
from pipeline.inputs import AllSources, Input, TableSource
from pipeline.manifest import InputRef, Manifest
from pipeline.mill import Mill, registered_snapshots, run_stage
from pipeline.part import PartResult
from pipeline.stages.artifacts import artifact, kept_decisions, mirror, only_extra

if TYPE_CHECKING:
    import polars as pl

    from pipeline.quality.selection import Selection

STAGE = "selection"
FILE = "selection.json"


@dataclass(frozen=True)
class Chosen:
    """The thresholds that `score.selection` names."""

    selection: Selection
    checksum: str
    refs: tuple[InputRef, ...]


def open_selection(mill: Mill) -> Chosen | None:
    """What `score.selection` names: a file, or the store's asset; None where it is not set."""
    from pipeline.quality.selection import Selection, read_selection

    named = mill.config.score.selection
    if named is None:
        return None
    if named != FITTED:
        path = Path(named)
        return Chosen(read_selection(path), file_checksum(path), ())
    dataset = mill.open(STAGE)
    entry = dataset.entries()[0]
    selection = Selection.model_validate_json(read_bytes(dataset.store, entry))
    ref = InputRef(asset=STAGE, hash=dataset.manifest.hash)
    return Chosen(selection, entry.checksum, (ref,))


def selection(mill: Mill) -> Manifest:
    """`selection`: fitted on the scored snapshots named in `score.select.snapshots`, else on all.

    Raises UsageError where none is scored, or where they were scored by several classifiers.
    """
    config = mill.config.score.select
    names = config.snapshots or registered_snapshots(mill.root)
    there = [name for name in names if config.snapshots or mill.find("scored_text", name)]
    if not there:
        message = "no snapshot is scored yet"
        raise UsageError(message, hint="materialise scored_text of a snapshot first")
    datasets = [mill.open("scored_text", name) for name in there]
    classifier = one_classifier(datasets)
    from pipeline import quality

    section = section_json(config.model_copy(update={"snapshots": []}))
    spec = StageSpec(
        STAGE, quality.CODE_VERSION, quality.LIBRARIES, None, section | {"classifier": classifier}
    )
    work = partial(_fit, config=config, classifier=classifier)
    manifest = run_stage(
        mill, spec, signals_input(datasets), work, mill.folder(STAGE), summarise=only_extra
    )
    return mirror(mill, manifest, FILE)


def one_classifier(datasets: Sequence[Dataset]) -> str:
    """The checksum of the model that scored them all. UsageError where that is not one."""
    by_model: dict[str, str] = {}
    for dataset in datasets:
        content = dataset.manifest.content
        model = content.config.get("quality_model")
        if content.stage != "scored_text" or model is None or content.signals is None:
            message = f"{dataset.store.url} ({content.stage}) holds no quality scores of its own"
            hint = "name datasets that `gristmill score --model` or scored_text wrote, in this "
            raise UsageError(message, hint=hint + "version; score older ones again")
        by_model.setdefault(str(model), dataset.store.url)
    if len(by_model) > 1:
        places = " and ".join(list(by_model.values())[:2])
        message = f"{places} were scored by different classifiers"
        raise UsageError(message, hint="score them with one model: scores of two do not compare")
    return next(iter(by_model))


def signals_input(datasets: Sequence[Dataset]) -> Input:
    """The signals of scored datasets as one part."""
    sources = [TableSource(d.store, entry) for d in datasets for entry in d.entries("signals")]
    refs = [
        InputRef(asset=c.stage, partition=c.partition, hash=d.manifest.hash)
        for d in datasets
        for c in (d.manifest.content,)
    ]
    places = tuple(dataset.store.url for dataset in datasets)
    return Input((AllSources(tuple(sources)),), tuple(refs), None, places)


def _fit(frame: pl.DataFrame, *, config: SelectConfig, classifier: str) -> PartResult:
    import polars as pl

    from pipeline.quality.selection import fit_selection

    fitted = fit_selection(
        [frame], keep=config.keep, min_documents=config.min_documents, classifier=classifier
    )
    decisions = kept_decisions(frame.with_columns(url=pl.lit(None, pl.String)), STAGE)
    return artifact(FILE, fitted.to_bytes(), decisions, **summary(fitted))


def summary(fitted: Selection) -> dict[str, Any]:
    """Figures for manifests and the command line."""
    rows = {"(pooled)": fitted.pooled, **fitted.languages}
    return {
        "keep": fitted.keep,
        "classifier": fitted.classifier,
        "thresholds": {
            name: {"threshold": round(limit.threshold, 6), "documents": limit.documents,
                   "kept": limit.kept}
            for name, limit in rows.items()
        },
    }  # fmt: skip


def select_from(datasets: Sequence[Dataset], config: SelectConfig) -> Selection:
    """Thresholds from dataset folders given by a person."""
    from pipeline.quality.selection import fit_selection

    classifier = one_classifier(datasets)
    frames = (read_part(d.store, entry) for d in datasets for entry in d.entries("signals"))
    return fit_selection(
        frames, keep=config.keep, min_documents=config.min_documents, classifier=classifier
    )
