"""The section `score`: quality and safety scores, their classifiers, the held-out split."""

from __future__ import annotations

from pydantic import Field, model_validator

from pipeline.config.base import Section

FASTTEXT = "fastText, arXiv:1607.01759: "
MEASURED = "measured on documents of 2.4 kB: "
KINDS_LEFT_OUT = "measured on 1,577 labels, kinds of sources left out: "
FITTED = "asset"
"""The value of `score.selection` that means the promoted asset `selection` of the store."""


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
        5, ge=1, le=1000,
        description=KINDS_LEFT_OUT + "fastText's own; with more the classifier learns the kinds of "
        "sources it was shown instead of quality",
    )  # fmt: skip
    min_lines: int = Field(
        25_000, ge=0,
        description="lines that training sees in all at least: small label sets are passed over "
        "more often. Measured: dev AUC of 200 labels 0.93 in place of 0.77",
    )  # fmt: skip
    learning_rate: float = Field(0.1, gt=0, le=10, description=KINDS_LEFT_OUT + "fastText's own")
    min_count: int = Field(1, ge=1, description=FASTTEXT + "times a word must occur")
    segment_words: int = Field(
        30, ge=0, le=100_000,
        description=KINDS_LEFT_OUT + "texts are cut into pieces of so many words to train on; 0: "
        "whole texts",
    )  # fmt: skip
    seed: int = Field(1, ge=0, description="of the model's first weights and order")
    dev_share: float = Field(
        0.1, ge=0, lt=1,
        description="share of the labels that is held back for the report where they name no split",
    )  # fmt: skip
    quantised_rows: int = Field(
        50_000, ge=0,
        description="words and word pairs that the quantised copy keeps, those with the largest "
        "weights; 0: all",
    )  # fmt: skip
    leave_out: int = Field(
        5, ge=0, le=100,
        description="folds of kinds that the report leaves out of training at once, where labels "
        "name the kind of source (`reason`); 0: no such report",
    )  # fmt: skip
    leave_out_rows: int = Field(
        10_000, ge=1, description="rows that report uses at most: it trains a model a kind"
    )


class SelectConfig(Section):
    """How the asset `selection` fits its thresholds."""

    keep: float = Field(
        0.1, gt=0, le=1,
        description="share of each language that is kept; DCLM, arXiv:2406.11794: the top tenth",
    )  # fmt: skip
    min_documents: int = Field(
        1000, ge=1,
        description="documents a language must have for a threshold of its own; the tenth of 1,000 "
        "is known to about a tenth of itself (1/sqrt(100))",
    )  # fmt: skip
    snapshots: list[str] = Field(
        default_factory=list, description="scored snapshots to fit on; empty: all that are there"
    )


class ScoreConfig(Section):
    """Which documents `scored_text` keeps, and which are never trained on."""

    min_quality: float | None = Field(
        None, ge=0, le=1,
        description="documents below are dropped; off: a threshold belongs to a classifier. DCLM "
        "(arXiv:2406.11794) keeps the top tenth of its pages, 0.018112 with its classifier",
    )  # fmt: skip
    min_grade: float | None = Field(
        None, ge=0, le=5,
        description="expected grade, 0 to 5, below which documents are dropped; for classifiers "
        "trained on grades. FineWeb-Edu (arXiv:2406.17557) keeps 3 and above, its larger set 2",
    )  # fmt: skip
    selection: str | None = Field(
        None,
        description="thresholds by language: a file that `gristmill classifier select` wrote, or "
        "`asset` for the promoted one of the store",
    )
    max_safety: float | None = Field(
        None, ge=0, le=1, description="documents above are dropped; off without a safety classifier"
    )
    held_out: float = Field(
        0.01, ge=0, le=1,
        description="share of hosts (web) and of records (sources) that is kept for evaluation",
    )  # fmt: skip
    classifier: ClassifierConfig = Field(default_factory=ClassifierConfig)
    select: SelectConfig = Field(default_factory=SelectConfig)

    @model_validator(mode="after")
    def _one_way(self) -> ScoreConfig:
        ways = {"min_quality": self.min_quality, "min_grade": self.min_grade,
                "selection": self.selection}  # fmt: skip
        named = [name for name, value in ways.items() if value is not None]
        if len(named) > 1:
            message = f"{' and '.join(named)} both say who is kept; set one of them"
            raise ValueError(message)
        return self
