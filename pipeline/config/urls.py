"""The part `filter.urls`: lists of addresses and of words in addresses."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from pipeline.config.base import Section


class UrlConfig(Section):
    """Lists of addresses and words, one entry a line, '#' starts a comment. Off without lists."""

    domains: Path | None = Field(None, description="hosts to drop, with all their subdomains")
    urls: Path | None = Field(None, description="whole URLs to drop")
    banned_words: Path | None = Field(None, description="drop if the URL has one as a word")
    banned_substrings: Path | None = Field(
        None, description="drop if the URL has one anywhere, signs between letters aside"
    )
    soft_words: Path | None = Field(None, description="drop if the URL has several as words")
    soft_threshold: int = Field(
        2, ge=1, description="FineWeb, arXiv:2406.17557: soft words to drop"
    )
