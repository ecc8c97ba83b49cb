"""Configuration of what stages refer to: labels, benchmark sets, word lists."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class ReferencesConfig(Section):
    """Files outside the crawl that shape decisions. Each enters keys by its content."""

    quality_labels: str | None = Field(
        None, description="JSONL(.gz) with `text, label` and optionally `split` (train, dev)"
    )
    positive_label: str = Field(
        "1", description="label of the good class where labels are not 1/0 or true/false"
    )
    language_labels: str | None = Field(
        None,
        description="JSONL(.gz) with `text, lang` and optionally `size` (long, short): the check "
        "`language_accuracy` tells on them how often the language of filtered_text is right",
    )
    benchmark_sets: list[str] = Field(
        default_factory=list, description="JSONL files or folders that training must never see"
    )
    quality_model: str | None = Field(
        None, description="a fastText model to score with instead of training one from labels"
    )
    safety_model: str | None = Field(None, description="a fastText safety model")
