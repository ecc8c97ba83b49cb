"""Configuration of the data's quality gates."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from pipeline.config.base import Section

Share = Annotated[float, Field(ge=0, le=1)]


class Band(Section):
    """A lower and an upper bound of a share, both allowed."""

    low: Share = 0.0
    high: Share = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> Band:
        if self.low > self.high:
            message = f"low {self.low} is above high {self.high}"
            raise ValueError(message)
        return self


class YieldBands(Section):
    """Kept documents per record or document that came in, by stage."""

    extracted_text: Band = Field(
        Band(low=0.02), description="of all records; a Common Crawl WARC holds three a page"
    )
    filtered_text: Band = Field(Band(low=0.01, high=0.999), description="of extracted documents")
    scored_text: Band = Field(Band(low=0.02), description="of filtered documents")
    deduped_corpus: Band = Field(Band(low=0.05), description="of scored documents")
    scrubbed_corpus: Band = Field(Band(low=0.5), description="of deduplicated documents")
    source_texts: Band = Field(Band(low=0.05), description="of the source's records")
    token_shards: Band = Field(Band(low=0.9), description="of scrubbed documents")


class GatesConfig(Section):
    """Thresholds of the gates every stage writes into its manifest."""

    min_sample: int = Field(
        50, ge=1, description="records below which a share is `not_enough_sample`, not a verdict"
    )
    yields: YieldBands = YieldBands()
    host_documents: int = Field(
        50, ge=1, description="hosts with at least so many documents are looked at one by one"
    )
    host_removal: Share = Field(
        0.95, description="a host that loses a larger share in one stage counts as wiped out"
    )
    non_english: Share = Field(
        0.2, description="lowest share of the clean text that is not English; reported only"
    )
    language_accuracy: Share = Field(
        0.98,
        description="lowest share of the long texts of references.language_labels whose language "
        "is told right; asked by a check, not when the stage runs",
    )
    hosts_wiped_out: Share = Field(
        0.5, description="largest share of the looked-at hosts that may be wiped out"
    )


class AcceptGate(Section):
    """A failed gate that a person takes on, with the reason on record."""

    name: str = Field(min_length=1, description="name of the gate, as the manifest has it")
    reason: str = Field(min_length=3, description="why its failure is acceptable here")
