"""The part `filter.language`: which languages are told, and which are kept."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class LanguageConfig(Section):
    """Language identification (fastText lid.176)."""

    enabled: bool = Field(True, description="whether its rules may drop; languages are always told")
    keep: list[str] = Field(
        default_factory=list,
        description="languages to keep, ISO 639-1 where one exists, else 639-3; empty keeps all",
    )
    min_score: float | None = Field(
        0.65, ge=0, le=1, description="FineWeb, arXiv:2406.17557, section 3.3: lowest score"
    )
    min_chars: int = Field(
        20, ge=0,
        description="characters below which no language is told: under 20 fastText is right for "
        "fewer than four texts in five (measured on paragraphs in 25 languages)",
    )  # fmt: skip
    und_score: float = Field(
        0.3, ge=0, le=1,
        description="score below which a language is undetermined (und): the lowest floor of any "
        "language in FineWeb-2 (github.com/huggingface/fineweb-2, configs)",
    )  # fmt: skip
