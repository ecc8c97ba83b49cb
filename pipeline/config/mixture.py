"""Section `mixture`: how much of each source a training run sees, and when."""

from __future__ import annotations

from itertools import pairwise

from pydantic import Field, field_validator, model_validator

from pipeline.config.base import Section
from pipeline.config.tokenizer import check_weights


class Phase(Section):
    """A stretch of training with its own weights, for example the final annealing."""

    until_tokens: int = Field(ge=1, description="The phase ends here, in tokens from the start.")
    weights: dict[str, float] = Field(
        description="Share by source, any scale; a source that is not named gets nothing."
    )

    @field_validator("weights")
    @classmethod
    def _not_negative(cls, weights: dict[str, float]) -> dict[str, float]:
        return check_weights(weights)


class MixtureConfig(Section):
    """The training plan: requested weights, capped by how often a source may be repeated."""

    total_tokens: int | None = Field(
        None, ge=1, description="Tokens to train on; null: the last phase's end, else all once."
    )
    weights: dict[str, float] = Field(
        default_factory=dict,
        description="Share by source (web, code, ...), any scale; a source that is not named gets "
        "nothing; empty: by size.",
    )
    phases: list[Phase] = Field(
        default_factory=list, description="In order; they take the place of `weights`."
    )
    max_epochs: float = Field(
        4.0,
        gt=0,
        description="Passes over a source at most; up to 4 repeated data is nearly as good as new "
        "(arXiv:2305.16264).",
    )
    tolerance: float = Field(
        0.02,
        ge=0,
        le=1,
        description="Gate `mixture`: largest distance of a realised share from the requested one.",
    )

    @field_validator("weights")
    @classmethod
    def _not_negative(cls, weights: dict[str, float]) -> dict[str, float]:
        return check_weights(weights)

    @model_validator(mode="after")
    def _phases_in_order(self) -> MixtureConfig:
        ends = [phase.until_tokens for phase in self.phases]
        if any(later <= earlier for earlier, later in pairwise(ends)):
            message = f"phases must end one after the other; until_tokens are {ends}"
            raise ValueError(message)
        if self.phases and self.weights:
            message = "weights and phases cannot both be set; give every phase its weights"
            raise ValueError(message)
        if self.phases and self.total_tokens and self.total_tokens > ends[-1]:
            message = (
                f"total_tokens {self.total_tokens} is after the end of the last phase {ends[-1]}"
            )
            raise ValueError(message)
        return self
