"""Configuration of what a person is shown of the pages."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class DisplayConfig(Section):
    """Crawl text is untrusted: what is shown is scrubbed, escaped and short, or off."""

    excerpts: bool = Field(True, description="show excerpts of pages in the UI, logs and reports")
    excerpt_chars: int = Field(200, ge=20, le=200, description="longest excerpt, characters")
    examples: int = Field(5, ge=0, le=20, description="examples a table shows")
