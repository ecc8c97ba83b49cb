"""Curation: rules, scores and scrubbing, each a function over parts.

extracted_text -> filter_text -> filtered_text -> score_text -> scored_text
deduped_corpus -> scrub_text -> scrubbed_corpus
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import section_json
from pipeline.config.filter import FilterConfig
from pipeline.config.score import ScoreConfig
from pipeline.config.scrub import ScrubConfig
from pipeline.dataset import Dataset, file_checksum
from pipeline.driver import Receipt, StageSpec
from pipeline.errors import UsageError
from pipeline.gates import host_removal, non_english, yield_band
from pipeline.inputs import Input
from pipeline.language_table import total_table
from pipeline.manifest import InputRef, Manifest
from pipeline.mill import Mill, run_stage, upstream
from pipeline.part import PartResult
from pipeline.stages.corpus import check_chain
from pipeline.stages.files import by_content, expand
from pipeline.stages.selection import open_selection
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl

    from pipeline.quality.selection import Selection


def filter_text(mill: Mill, snapshot: str) -> Manifest:
    """`filtered_text`: documents in wanted languages that pass the rules; every signal is kept."""
    given = upstream(mill, "extracted_text", snapshot)
    return filter_input(mill, given, mill.folder("filtered_text", snapshot), snapshot)


def filter_input(mill: Mill, given: Input, out: Store, partition: str | None) -> Manifest:
    """Filter any input into a dataset folder."""
    from pipeline.filters import plugins, run
    from pipeline.filters.language_files import resolved
    from pipeline.filters.url_files import check_lists
    from pipeline.language import libraries, model_path

    model = model_path()
    section = resolved(mill.config.filter)  # what language files say, not their names
    check_lists(section.urls)
    config = by_content(section_json(section))
    config["language_model"] = file_checksum(model)
    others = (*libraries(section.language), *plugins.packages(section.plugins))
    needed = (*run.LIBRARIES, *others)
    spec = StageSpec("filtered_text", run.CODE_VERSION, needed, partition, config)
    gates = mill.config.gates
    rules = [yield_band(gates.yields.filtered_text, gates.min_sample), host_removal(gates)]
    work = partial(_filter, config=section)
    return run_stage(mill, spec, given, work, out, by_rows=True, rules=rules, summarise=_languages)


def _languages(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """Documents in, kept and dropped by language rules, over all parts."""
    return {"languages": total_table(receipt.extra["languages"] for receipt in receipts)}


def _filter(frame: pl.DataFrame, *, config: FilterConfig) -> PartResult:
    from pipeline.filters.run import filter_documents

    return filter_documents(frame, config)


def score_text(mill: Mill, snapshot: str) -> Manifest:
    """`scored_text`: the same documents with quality score, safety score and split."""
    given = upstream(mill, "filtered_text", snapshot)
    quality = mill.open("quality_classifier")
    out = mill.folder("scored_text", snapshot)
    return score_with(mill, given, out, snapshot, quality)


def score_with(
    mill: Mill, given: Input, out: Store, partition: str | None, quality: Dataset
) -> Manifest:
    """Score with a committed classifier."""
    entry = quality.entries()[0]
    content = quality.manifest.content
    ref = InputRef(asset=content.stage, hash=quality.manifest.hash)
    with quality.store.local(entry.path) as model:
        safety = mill.config.references.safety_model
        return score_input(
            mill, given, out, partition, model, Path(safety) if safety else None, refs=(ref,)
        )


def score_input(
    mill: Mill,
    given: Input,
    out: Store,
    partition: str | None,
    quality_model: Path,
    safety_model: Path | None,
    refs: tuple[InputRef, ...] = (),
) -> Manifest:
    """Score any input with model files into a dataset folder."""
    from pipeline import quality

    config: dict[str, Any] = section_json(mill.config.score)
    # how a classifier or a selection was made stands in their own manifests
    config = {key: value for key, value in config.items() if key not in ("classifier", "select")}
    for name, model in (("quality_model", quality_model), ("safety_model", safety_model)):
        if model is not None and not model.is_file():
            message = f"{name.replace('_', ' ')} {model} is not there"
            raise UsageError(message, hint="gristmill classifier train LABELS --out FILE makes one")
        config[name] = file_checksum(model) if model else None
    chosen = open_selection(mill)
    if chosen:
        config["selection"] = chosen.checksum
        chosen.selection.check_model(config["quality_model"])
        refs = (*refs, *chosen.refs)
    selection = chosen.selection if chosen else None
    quality.check_scores(mill.config.score, quality_model, safety_model, selection)
    spec = StageSpec("scored_text", quality.CODE_VERSION, quality.LIBRARIES, partition, config)
    gates = mill.config.gates
    rules = [yield_band(gates.yields.scored_text, gates.min_sample)]
    work = partial(
        _score,
        config=mill.config.score,
        quality_model=quality_model,
        safety_model=safety_model,
        selection=selection,
    )
    return run_stage(mill, spec, given, work, out, by_rows=True, rules=rules, refs=refs)


def _score(
    frame: pl.DataFrame,
    *,
    config: ScoreConfig,
    quality_model: Path,
    safety_model: Path | None,
    selection: Selection | None,
) -> PartResult:
    from pipeline.quality import score_documents

    return score_documents(frame, config, quality_model, safety_model, selection)


def scrub_text(mill: Mill, snapshot: str) -> Manifest:
    """`scrubbed_corpus`: personal data replaced, contaminated documents removed."""
    check_chain(mill, snapshot)
    given = upstream(mill, "deduped_corpus", snapshot)
    return scrub_input(mill, given, mill.folder("scrubbed_corpus", snapshot), snapshot)


def scrub_input(
    mill: Mill,
    given: Input,
    out: Store,
    partition: str | None,
    *,
    stage: str = "scrubbed_corpus",
    refs: tuple[InputRef, ...] = (),
) -> Manifest:
    """Scrub any input into a dataset folder."""
    from pipeline.scrub import run

    benchmarks = mill.config.scrub.benchmarks or mill.config.references.benchmark_sets
    expand("scrub.benchmarks", benchmarks)
    section = mill.config.scrub.model_copy(update={"benchmarks": list(benchmarks)})
    config = by_content(section_json(section))
    spec = StageSpec(stage, run.CODE_VERSION, run.LIBRARIES, partition, config)
    gates = mill.config.gates
    web = stage == "scrubbed_corpus"
    band = gates.yields.scrubbed_corpus if web else gates.yields.source_texts
    rules = [yield_band(band, gates.min_sample), host_removal(gates)]
    rules += [non_english(gates)] if web else []
    work = partial(_scrub, config=section, stage=stage)
    return run_stage(
        mill, spec, given, work, out, by_rows=True, rules=rules, refs=refs, summarise=_findings
    )


def _scrub(frame: pl.DataFrame, *, config: ScrubConfig, stage: str) -> PartResult:
    from pipeline.scrub.run import scrub_documents

    return scrub_documents(frame, config, stage=stage)


def _findings(receipts: Sequence[Receipt]) -> dict[str, Any]:
    """Replacements by kind, and documents edited, over all parts."""
    total: dict[str, Any] = {"findings": {}, "documents_edited": 0}
    for receipt in receipts:
        total["documents_edited"] += receipt.extra["documents_edited"]
        for kind, n in receipt.extra["findings"].items():
            total["findings"][kind] = total["findings"].get(kind, 0) + n
    return total
