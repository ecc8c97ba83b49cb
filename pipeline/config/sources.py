"""Section `sources`: where code, books, papers and other texts that are no crawl come from."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class SourcesConfig(Section):
    """Each source is one JSONL(.gz) or Parquet file, named after it; see `pipeline.sources`."""

    location: str | None = Field(
        None,
        description="Folder or prefix with `<source>.jsonl.gz` files; null: no sources.",
    )
