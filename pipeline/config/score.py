"""The section `score`: quality and safety scores, their classifiers, the held-out split."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section

FASTTEXT = "fastText, arXiv:1607.01759: "
MEASURED = "measured on documents of 2.4 kB: "


class ClassifierConfig(Section):
    """Training of a fastText classifier. One thread and a seed: same labels, same model bytes."""

    dim: int = Field(
        16, ge=1, le=1000,
        description=MEASURED + "as accurate as 100 at twice the speed and a fifth of the size",
    )  # fmt: skip
    word_ngrams: int = Field(2, ge=1, le=10, description="DCLM, arXiv:2406.11794: word pairs")
    bucket: int = Field(
        200_000, ge=1,
        description=MEASURED + "slots for word pairs; fastText's 2,000,000 add 0.1 GB for nothing",
    )  # fmt: skip
    epochs: int = Field(
        15, ge=1, le=1000,
        description="measured on 1,577 labels: dev accuracy 0.936, with fastText's 5 passes 0.885",
    )  # fmt: skip
    learning_rate: float = Field(
        0.3, gt=0, le=10, description=MEASURED + "0.1, the library's, needs more passes"
    )
    min_count: int = Field(1, ge=1, description=FASTTEXT + "times a word must occur")
    seed: int = Field(1, ge=0, description="of the model's first weights and order")
    dev_share: float = Field(
        0.1, ge=0, lt=1,
        description="share of the labels that is held back for the report where they name no split",
    )  # fmt: skip


class ScoreConfig(Section):
    """Which documents `scored_text` keeps, and which are never trained on."""

    min_quality: float | None = Field(
        None, ge=0, le=1,
        description="documents below are dropped; off: a threshold belongs to a classifier. DCLM "
        "(arXiv:2406.11794) keeps the top tenth of its pages, 0.018112 with its classifier",
    )  # fmt: skip
    max_safety: float | None = Field(
        None, ge=0, le=1, description="documents above are dropped; off without a safety classifier"
    )
    held_out: float = Field(
        0.01, ge=0, le=1,
        description="share of hosts (web) and of records (sources) that is kept for evaluation",
    )  # fmt: skip
    classifier: ClassifierConfig = Field(default_factory=ClassifierConfig)
