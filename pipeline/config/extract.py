"""The section `extract`: from a record to its main text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from pipeline.config.base import Section

SHIPPED_MODEL = Path(__file__).parents[1] / "extractor" / "model.npz"
"""The model of mode `best`; trained and described in `pipeline/extractor/MODEL_CARD.md`."""


MODES = ("best", "cascade", "trafilatura", "resiliparse")


class ExtractConfig(Section):
    """How pages become text, and where a page is too much."""

    mode: str = Field(
        default="best",
        description="best: blocks scored by this project's own model (dev F1 0.86 and page F1 0.84 "
        "on hosts it has not seen, at 9 times trafilatura's speed); cascade: trafilatura fast, "
        "resiliparse where it finds twice as many words (0.850 and 0.826, 1.3 times); trafilatura "
        "(0.832 and 0.809); resiliparse (0.784 and 0.752, 12 times)",
    )
    comments: Literal["keep", "drop"] = Field(
        default="keep",
        description="keep: comments count as text where they read like it, as on a forum; drop: in "
        "best, comment sections of pages that call themselves articles and no forum are left out; "
        "in the other modes neither library reads comments",
    )
    second_opinion: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="cascade: resiliparse's text is taken where trafilatura has less than this "
        "share of its words (chosen on 431 pages with gold text)",
    )
    model: str | None = Field(
        default=None,
        min_length=1,
        description="best: a model of `gristmill extractor train`, by default the one that ships "
        "with this version",
    )
    accept: list[str] = Field(
        default=["text/html", "application/xhtml+xml"],
        min_length=1,
        description="media types that are pages; one sent without a type is looked at",
    )
    max_bytes: int = Field(
        default=4 << 20,
        ge=256,
        description="bytes of a decoded page; crawlers cut bodies at 1 MiB, larger ones are data",
    )
    max_nodes: int = Field(
        default=200_000, ge=100, description="tags of a page; trafilatura's time grows with them"
    )
    max_depth: int = Field(
        default=2_000,
        ge=64,
        description="nesting of elements; resiliparse is quadratic in it: 0.2 s at 5,000, "
        "130 s at 100,000",
    )
    cpu_seconds: int = Field(
        default=60,
        ge=1,
        description="CPU time of one page after which its process is ended (extract.hang); far "
        "above the 99th percentile of 0.2 s, so that machine load never decides",
    )

    @field_validator("mode")
    @classmethod
    def _mode_exists(cls, mode: str) -> str:
        if mode not in MODES:
            message = f"mode {mode!r} is unknown; use {', '.join(MODES[:-1])} or {MODES[-1]}"
            raise ValueError(message)
        return mode
