"""Group references: what stages refer to. Re-making one promotes it, and moves nothing else."""

import tempfile
from pathlib import Path

import dagster as dg

from assets.materialise import materialise_whole, options
from assets.millwork import Launch, MillResource
from pipeline.manifest import Manifest
from pipeline.mill import Mill


@dg.asset(
    **options("references", "pipeline.quality", "parquet"),
    metadata={"configuration": "references.quality_labels, labeller"},
)
def quality_labels(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Texts with a label, from which the quality classifier learns.

    **In:** the JSONL file `references.quality_labels` with `text, label` and optionally `split,
    reason` (the kind of source); without it, what the model behind `labeller.base_url` says of the
    texts in `labeller.input`, once its estimate is within `labeller.max_cost`. **Falls:** lines
    without a text or a label (`input.bad_line`), texts the model gave no label (`labeller.*`).
    **Next:** `quality_classifier`.
    """
    from pipeline.stages.references import quality_labels as stage

    def made(opened: Mill) -> Manifest:
        settings = opened.config
        if settings.references.quality_labels or not settings.labeller.base_url:
            return stage(opened)
        from resources.labeller import label_inputs

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "labels.jsonl")
            path.write_bytes(label_inputs(settings, say=context.log.info).to_jsonl())
            return stage(opened, path)

    return materialise_whole(context, mill, config, made)


@dg.asset(
    **options("references", "pipeline.quality", "fasttext"),
    deps=[quality_labels],
    metadata={"configuration": "score.classifier"},
)
def quality_classifier(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """The fastText model that scores every document; the same labels give the same bytes.

    **In:** the labels, or the model file that `references.quality_model` names. **Next:** read the
    report: AUC on the dev rows, then on kinds of sources that training never saw, calibration, and
    what length and language alone would reach. Materialising promotes the model: new snapshots are
    scored with it, the check `configuration` of `scored_text` lists those that are behind.
    `model.ftz` beside it is a quantised copy for shipping.
    """
    from pipeline.stages.references import quality_classifier as stage

    return materialise_whole(context, mill, config, stage)


@dg.asset(
    **options("references", "pipeline.quality", "json"),
    deps=[dg.AssetKey("scored_text")],
    metadata={"configuration": "score.select"},
)
def selection(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Thresholds that keep the best share of each language, fitted on scored snapshots.

    **In:** the scores of kept and dropped documents of the snapshots in `score.select.snapshots`
    (all that are scored, without it); languages with few documents take the pooled threshold.
    **Next:** set `score.selection: asset` and materialise `scored_text` again: its thresholds are
    then these, whatever order or number of parts the pages come in, until this asset is made anew.
    """
    from pipeline.stages.selection import selection as stage

    return materialise_whole(context, mill, config, stage)


@dg.asset(
    **options("references", "pipeline.scrub.run", "parquet"),
    metadata={"configuration": "references.benchmark_sets"},
)
def benchmark_sets(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Evaluation items that training must never see.

    **In:** the files and folders under `references.benchmark_sets`. **Next:** after a change the
    check `configuration` of `scrubbed_corpus` says which snapshots were cleaned against other sets.
    """
    from pipeline.stages.references import benchmark_sets as stage

    return materialise_whole(context, mill, config, stage)


@dg.asset(
    **options("references", "pipeline.filters.run", "parquet"),
    metadata={"configuration": "filter.urls"},
)
def word_lists(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """The lists of hosts and words that the URL rules of `filtered_text` read.

    **In:** the files named in `filter.urls`. **Next:** after a change the check `configuration` of
    `filtered_text` says which snapshots were filtered with other lists.
    """
    from pipeline.stages.references import word_lists as stage

    return materialise_whole(context, mill, config, stage)
