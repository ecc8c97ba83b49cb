"""Group references: what stages refer to. Re-making one promotes it, and moves nothing else."""

import dagster as dg

from assets.materialise import materialise_whole, options
from assets.millwork import Launch, MillResource


@dg.asset(
    **options("references", "pipeline.quality", "parquet"),
    metadata={"configuration": "references.quality_labels"},
)
def quality_labels(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Texts with a label, from which the quality classifier learns.

    **In:** the JSONL file `references.quality_labels` with `text, label` and optionally `split`.
    **Falls:** lines without a text or a label (`input.bad_line`). **Next:** `quality_classifier`.
    """
    from pipeline.stages.references import quality_labels as stage

    return materialise_whole(context, mill, config, stage)


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
    report (accuracy on the dev rows); materialising promotes the model: new snapshots are scored
    with it, the check `configuration` of `scored_text` lists those that are behind.
    """
    from pipeline.stages.references import quality_classifier as stage

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
