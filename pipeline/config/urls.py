"""The part `filter.urls`: lists of addresses and of words in addresses."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from pipeline.config.base import Section


class UrlConfig(Section):
    """Lists, plain or .gz, one entry a line, '#' starts a comment. Off without lists."""

    ut1: Path | None = Field(
        None,
        description="a folder of lists as UT1 publishes them (dsi.ut-capitole.fr/blacklists): "
        "<category>/domains and <category>/urls; URLs without scheme, with all that is below them",
    )
    ut1_categories: list[str] = Field(
        default_factory=list, description="folders of `ut1` to read; empty: all that are there"
    )
    domains: Path | None = Field(None, description="hosts to drop, with all their subdomains")
    urls: Path | None = Field(None, description="whole URLs to drop, as they stand in the crawl")
    banned_words: Path | None = Field(None, description="drop if the URL has one as a word")
    banned_substrings: Path | None = Field(
        None, description="drop if the URL has one anywhere, signs between letters aside"
    )
    soft_words: Path | None = Field(None, description="drop if the URL has several as words")
    soft_threshold: int = Field(
        2, ge=1, description="FineWeb, arXiv:2406.17557: soft words to drop"
    )

    @model_validator(mode="after")
    def _categories_of_something(self) -> UrlConfig:
        if self.ut1_categories and self.ut1 is None:
            message = "ut1_categories are folders of ut1, which is not set"
            raise ValueError(message)
        return self
