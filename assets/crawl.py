"""Group crawl: from a listing of WARC files to the main text of every page."""

import dagster as dg

from assets.automation import first_time
from assets.materialise import materialise, options
from assets.millwork import Launch, MillResource
from assets.partitions import SNAPSHOTS


@dg.asset(
    **options("crawl", "pipeline.snapshots", "parquet", partitions=SNAPSHOTS),
    metadata={"configuration": "snapshots"},
)
def snapshots(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """The WARC files of a crawl snapshot: name, size, checksum, and the part group of each.

    **In:** the folder, S3 prefix or `warc.paths.gz` listing at `snapshots.location`. **Falls:**
    nothing; `snapshots.files` or `snapshots.sample` take a slice. **Next:** `extracted_text`, which
    starts by itself where `moves_by_itself` is on. Listing a snapshot also registers it: its place
    in the order of deduplication is fixed for good.
    """
    from pipeline.stages.crawl import list_files

    return materialise(context, mill, config, list_files)


@dg.asset(
    **options("crawl", "pipeline.extract", "parquet", "polars", partitions=SNAPSHOTS),
    deps=[snapshots],
    automation_condition=first_time(("snapshots",)),
    metadata={"configuration": "extract"},
)
def extracted_text(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Main text, licence marks and reservations of each HTML page, with its address in the WARC.

    **In:** every record of the snapshot's WARC files. **Falls:** what is no page with text
    (redirects, errors, images, `record.*`), damaged records (`damage.*`), pages without main text
    (`extract.*`). Every record has a row in the decisions, which is also the index that `gristmill
    trace --url` reads. **Next:** look at `damaged` and at the commonest reasons; compare extractors
    with `gristmill try URL`; then `filtered_text`.
    """
    from pipeline.stages.crawl import extract_text

    return materialise(context, mill, config, extract_text)
