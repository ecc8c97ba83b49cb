"""The stages of a snapshot and of a source in order, for planning and for running them all."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.manifest import Manifest
from pipeline.mill import Mill
from pipeline.stages.corpus import dedup_corpus
from pipeline.stages.crawl import extract_text, list_files
from pipeline.stages.curation import filter_text, score_text, scrub_text
from pipeline.stages.sources import source_texts
from pipeline.stages.tokens import token_shards

Stages = list[tuple[str, Callable[[Mill, str], Manifest]]]

SNAPSHOT_STAGES: Stages = [
    ("snapshots", list_files),
    ("extracted_text", extract_text),
    ("filtered_text", filter_text),
    ("scored_text", score_text),
    ("deduped_corpus", dedup_corpus),
    ("scrubbed_corpus", scrub_text),
    ("token_shards", token_shards),
]

SOURCE_STAGES: Stages = [("source_texts", source_texts), ("token_shards", token_shards)]
