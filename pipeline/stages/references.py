"""References: labels, the quality classifier trained on them, benchmark sets and word lists.

They move nothing by themselves: a new classifier is promoted by materialising it, and the check
`configuration` then says which partitions were made with another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import Config, section_json
from pipeline.config.urls import UrlConfig
from pipeline.driver import StageSpec
from pipeline.errors import ConfigError, GristmillError
from pipeline.inputs import FileSource, Input, as_one, blob_input, dataset_input, file_input
from pipeline.manifest import Manifest
from pipeline.mill import Mill, run_stage
from pipeline.part import PartResult
from pipeline.stages.artifacts import artifact, beside, kept_decisions, mirror, only_extra
from pipeline.stages.files import expand

if TYPE_CHECKING:
    import polars as pl

    from pipeline.quality import TrainedClassifier

MODEL_FILE = "model.bin"
QUANTISED_FILE = "model.ftz"
LABELS = "references.quality_labels"


def quality_labels(mill: Mill, labelled: Path | None = None) -> Manifest:
    """`quality_labels`: the labelled texts, checked: a text and a label on every row.

    They are in the file that `references.quality_labels` names, else in `labelled`, what a larger
    model made of the texts of `labeller.input`.
    """
    location = mill.config.references.quality_labels or labelled
    if not location:
        message = f"{LABELS} is not set"
        hint = f"set {LABELS} to a JSONL file with `text, label`, or labeller.base_url and input"
        raise ConfigError(message, hint=hint)
    given = file_input(expand(LABELS, [str(location)]))
    spec = StageSpec("quality_labels", "1", ("polars",), None, {})
    return run_stage(mill, spec, given, _labelled, mill.folder("quality_labels"))


def _labelled(frame: pl.DataFrame) -> PartResult:
    import polars as pl

    if "label" not in frame.columns:
        filled = [c for c in frame.columns if frame[c].null_count() < frame.height]
        have = f"they have {', '.join(filled)}" if filled else "they have no readable row"
        message = f"labels have no column `label`; {have}"
        raise GristmillError(message, hint="one JSON object a line: text, label[, split]")
    whole = pl.col("label").is_not_null() & (pl.col("text").str.strip_chars().str.len_bytes() > 0)
    decisions = frame.select(
        "doc_id",
        "url",
        stage=pl.lit("quality_labels"),
        kept=whole.fill_null(False),
        reason=pl.when(~whole.fill_null(False)).then(_why(frame)),
        detail=pl.lit(None, pl.String),
    )
    return PartResult({"parts": frame.filter(whole), "decisions": decisions})


def _why(frame: pl.DataFrame) -> pl.Expr:
    """Why a row has no label: what the labeller said, where it is one of its reasons."""
    import polars as pl

    from pipeline.schema import REASONS

    told = pl.lit(None, pl.String)
    if "label_error" in frame.columns:
        known = [f"labeller.{rule}" for rule in REASONS["labeller"]]
        error = pl.col("label_error").cast(pl.String)
        told = pl.when(error.is_in(known)).then(error)
    return pl.coalesce(told, pl.lit("input.bad_line"))


def quality_classifier(mill: Mill) -> Manifest:
    """`quality_classifier`: a fastText model trained on the labels, or the one that is named."""
    from pipeline import quality

    named = mill.config.references.quality_model
    section = section_json(mill.config.score.classifier)
    section |= {"positive_label": mill.config.references.positive_label}
    section |= {"min_quality": mill.config.score.min_quality}  # where the report's confusion is
    spec = StageSpec("quality_classifier", quality.CODE_VERSION, quality.LIBRARIES, None, section)
    if named:
        given = blob_input(expand("references.quality_model", [named])[0])
        work: Any = _named_model
    else:
        given = as_one(dataset_input(mill.open("quality_labels")))
        work = partial(_train, config=mill.config)
    out = mill.folder("quality_classifier")
    manifest = run_stage(mill, spec, given, work, out, summarise=only_extra)
    if len(manifest.content.parts) > 1:
        mirror(mill, manifest, QUANTISED_FILE, part=1)
    return mirror(mill, manifest, MODEL_FILE)


def _train(frame: pl.DataFrame, *, config: Config) -> PartResult:
    trained = train(frame, config)
    decisions = kept_decisions(frame, "quality_classifier")
    made = artifact(MODEL_FILE, trained.model, decisions, report=trained.report)
    return beside(made, QUANTISED_FILE, trained.quantised)


def train(frame: pl.DataFrame, config: Config) -> TrainedClassifier:
    """A classifier of checked labels; its report's confusion is at `score.min_quality`."""
    from pipeline.quality import train_classifier

    threshold = config.score.min_quality
    return train_classifier(
        frame,
        config.score.classifier,
        config.references.positive_label,
        0.5 if threshold is None else threshold,
    )


def _named_model(path: Path) -> PartResult:
    import polars as pl

    name = pl.DataFrame({"doc_id": [path.name], "url": [None]}, schema_overrides={"url": pl.String})
    decisions = kept_decisions(name, "quality_classifier")
    return artifact(MODEL_FILE, path.read_bytes(), decisions, report={"given": path.name})


def train_from_files(config: Config, paths: Sequence[Path]) -> TrainedClassifier:
    """A model, its quantised copy and its report from label files given by a person."""
    import polars as pl

    sources = [FileSource(path, "") for path in sorted(paths, key=lambda path: path.name)]
    loaded = [source.load() for source in sources]
    given = _labelled(pl.concat([one.value for one in loaded], how="diagonal_relaxed"))
    trained = train(given.tables["parts"], config)
    decided = [given.tables["decisions"], *(o.rejected for o in loaded if o.rejected is not None)]
    reasons = pl.concat([rows.select("reason") for rows in decided])["reason"].drop_nulls()
    trained.report["rejected"] = dict(sorted(reasons.value_counts().iter_rows()))
    return trained


def benchmark_sets(mill: Mill) -> Manifest:
    """`benchmark_sets`: the files of evaluation items that training must never see."""
    named = mill.config.scrub.benchmarks or mill.config.references.benchmark_sets
    return _files(mill, "benchmark_sets", "references.benchmark_sets", named)


def word_lists(mill: Mill) -> Manifest:
    """`word_lists`: the lists that URL rules read."""
    return _files(mill, "word_lists", "filter.urls", list_files(mill.config.filter.urls))


def list_files(urls: UrlConfig) -> list[str]:
    """The list files that URL rules name."""
    words = (urls.banned_words, urls.banned_substrings, urls.soft_words)
    return [str(path) for path in (urls.ut1, urls.domains, urls.urls, *words) if path]


def _files(mill: Mill, asset: str, key: str, named: Sequence[str]) -> Manifest:
    """Files that stages refer to, kept as they are: one row a file."""
    if not named:
        message = f"{key} names no file"
        raise ConfigError(message, hint=f"name files under {key}, or leave {asset} out")
    inputs = [blob_input(path) for path in expand(key, named)]
    given = Input(
        tuple(source for one in inputs for source in one.sources),
        tuple(ref for one in inputs for ref in one.refs),
        None,
        tuple(place for one in inputs for place in one.locations),
    )
    spec = StageSpec(asset, "1", ("polars",), None, {})
    return run_stage(mill, spec, given, partial(_whole_file, stage=asset), mill.folder(asset))


def _whole_file(path: Path, *, stage: str) -> PartResult:
    import polars as pl

    text = path.read_bytes().decode("utf-8", "replace")
    frame = pl.DataFrame(
        {"doc_id": [path.name], "url": [None], "text": [text]}, schema_overrides={"url": pl.String}
    )
    return PartResult({"parts": frame, "decisions": kept_decisions(frame, stage)})
