"""Group curation: from every page's text to a corpus without junk, duplicates and personal data."""

import dagster as dg

from assets.automation import first_time
from assets.crawl import extracted_text
from assets.materialise import beta_asset, in_flight, materialise, options
from assets.millwork import Launch, MillResource
from assets.partitions import SNAPSHOTS, SOURCES
from assets.references import benchmark_sets, quality_classifier, word_lists
from pipeline.errors import UsageError
from pipeline.manifest import Manifest
from pipeline.mill import Mill

EARLIER_TRIES = 30
EARLIER_SECONDS = 60
"""A snapshot waits at most half an hour for earlier ones that are being made, outside the pool."""


@dg.asset(
    **options("curation", "pipeline.filters.run", "parquet", "polars", partitions=SNAPSHOTS),
    deps=[extracted_text, word_lists],
    automation_condition=first_time(("extracted_text",)),
    metadata={"configuration": "filter"},
)
def filtered_text(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Documents in wanted languages that pass the published heuristic rules.

    **In:** extracted documents. **Falls:** unwanted or undetermined languages (`language.*`), then
    Gopher, C4 and FineWeb rules, each under its own name. The signals of every document are kept,
    dropped ones too. **Next:** read the dropped examples against the funnel, ask `gristmill try`
    for a page's values against the thresholds; then `scored_text`.
    """
    from pipeline.stages.curation import filter_text

    return materialise(context, mill, config, filter_text)


@dg.asset(
    **options("curation", "pipeline.quality", "parquet", "fasttext", partitions=SNAPSHOTS),
    deps=[filtered_text, quality_classifier],
    automation_condition=first_time(("filtered_text", "quality_classifier")),
    metadata={"configuration": "score"},
)
def scored_text(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Quality and safety scores, and the split into train and held_out (by host).

    **In:** filtered documents and the promoted classifier. **Falls:** `quality.below` under
    `score.min_quality`, `score.min_grade` (classifiers trained on grades) or the threshold of the
    document's language in `score.selection`; `safety.above` over the safety limit; none is set by
    default. **Next:** look at the distribution of scores before setting a limit; `selection` fits
    one a language. A new classifier moves nothing: the
    check `configuration` says which snapshots are behind; backfill them together, since
    `deduped_corpus` refuses scores of two classifiers.
    """
    from pipeline.stages.curation import score_text

    return materialise(context, mill, config, score_text)


@beta_asset(
    **options("curation", "pipeline.dedup.run", "parquet", "polars", partitions=SNAPSHOTS),
    deps=[scored_text],
    automation_condition=first_time(("scored_text",)),
    pool="dedup",
    backfill_policy=dg.BackfillPolicy.single_run(),
    metadata={"configuration": "dedup"},
)
def deduped_corpus(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """One copy of each document, over all snapshots registered so far.

    **In:** scored documents, and of earlier snapshots the manifests, signatures and texts of
    candidates; those are read through the store, since a dependency on all partitions would make
    every old one stale. **Falls:** equal texts (`exact.text`) and documents whose measured
    similarity to one kept before passes `dedup.threshold` (`near.minhash`; the decision names the
    kept page). Earlier snapshots never change; one that failed waits for a person, who mends it or
    names it in `dedup.skip_missing` and materialises this one. **Next:** the check `chain` says
    when an earlier snapshot was re-made with another result; a backfill of several runs in one run,
    in order.
    """
    from pipeline.stages.corpus import dedup_corpus

    def after_earlier(opened: Mill, snapshot: str) -> Manifest:
        wait_for_earlier(context, opened, snapshot)
        return dedup_corpus(opened, snapshot)

    return materialise(context, mill, config, after_earlier)


def wait_for_earlier(context: dg.AssetExecutionContext, mill: Mill, snapshot: str) -> None:
    """Step back while an earlier registered snapshot is being made by another run.

    The step ends and is tried again, so it gives its slot in the pool to the one it waits for. Only
    running ones are waited for, and within a bound: a failed one blocks nobody for ever, it is an
    error that names the cure (`dedup.skip_missing`).
    """
    from pipeline.stages.corpus import earlier_snapshots

    try:
        earlier_snapshots(mill, snapshot)
    except UsageError as error:
        waiting = [
            name
            for name in earlier_missing(mill, snapshot)
            if in_flight(context.instance, "deduped_corpus", name, context.run.run_id)
        ]
        if not waiting or context.op_execution_context.retry_number >= EARLIER_TRIES:
            raise
        context.log.info(f"{snapshot} waits for {', '.join(waiting)}, registered before it")
        raise dg.RetryRequested(EARLIER_TRIES, EARLIER_SECONDS) from error


def earlier_missing(mill: Mill, snapshot: str) -> list[str]:
    """Snapshots registered before this one that are not deduplicated yet."""
    from pipeline.mill import registered_snapshots

    order = registered_snapshots(mill.root)
    before = order[: order.index(snapshot)] if snapshot in order else []
    return [name for name in before if mill.find("deduped_corpus", name) is None]


@dg.asset(
    **options("curation", "pipeline.scrub.run", "parquet", "polars", partitions=SNAPSHOTS),
    deps=[deduped_corpus, benchmark_sets],
    automation_condition=first_time(("deduped_corpus",)),
    metadata={"configuration": "scrub"},
)
def scrubbed_corpus(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Personal data replaced by typed placeholders; documents that hold benchmark items removed.

    **In:** deduplicated documents. **Falls:** `contamination.ngram`, texts that overlap with
    `references.benchmark_sets`. Replacements are counted by kind, and recorded as edits, so any
    byte leads back to the extracted text. **Next:** `token_shards`; the text here is what is
    trained on.
    """
    from pipeline.stages.curation import scrub_text

    return materialise(context, mill, config, scrub_text)


@dg.asset(
    **options("curation", "pipeline.sources", "parquet", "polars", partitions=SOURCES),
    deps=[benchmark_sets],
    metadata={"configuration": "sources, dedup, scrub"},
)
def source_texts(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Code, books, papers, encyclopedias: texts that are no crawl, deduplicated and scrubbed.

    **In:** `<source>.jsonl.gz` or `.parquet` in `sources.location`; the partition is the name of
    the file. **Falls:** unreadable lines (`input.*`), duplicates within the source, contamination.
    **Next:** `token_shards` of the same name, and the source's weight in `mixture.weights`.
    """
    from pipeline.stages.sources import source_texts as stage

    return materialise(context, mill, config, stage)
