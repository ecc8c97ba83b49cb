"""`batch_ramp` and `phases`: what changes at token counts of a run. No torch here.

Both are counted in tokens, as papers state them, so that they stay where they are when the batch or
the length of a run changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Protocol, TypeVar

from pydantic import Field, field_validator

from training.settings.section import Section


class RampStage(Section):
    """A smaller global batch at the start of a run (Llama 3 grows 4M -> 8M -> 16M tokens)."""

    until_tokens: int = Field(ge=1)
    """Steps that begin before this many tokens were trained on take this batch."""
    global_batch: int = Field(ge=1, le=1_000_000)
    """Sequences of one step, over all ranks."""


class PhaseConfig(Section):
    """A stretch of a run with its own weights of sources: curriculum, annealing."""

    until_tokens: int = Field(ge=1)
    """Where it ends, counted in tokens from the start of the run; the last one never ends."""
    weights: dict[str, float] = Field(min_length=1)
    """Source -> weight, in any scale; a source that is not named has none."""

    @field_validator("weights")
    @classmethod
    def _positive(cls, weights: dict[str, float]) -> dict[str, float]:
        if any(not 0 <= w < float("inf") for w in weights.values()) or not sum(weights.values()):
            message = f"weights {weights} must be 0 or more, and one of them above 0"
            raise ValueError(message)
        return weights


class Ending(Protocol):
    """Whatever ends at a token count."""

    @property
    def until_tokens(self) -> int:
        """Where it ends, in tokens."""


E = TypeVar("E", bound=Ending)


def increasing(stages: Sequence[E], key: str) -> Sequence[E]:
    """The stages again; ValueError naming `key` where one does not end after the one before."""
    for number, (before, after) in enumerate(itertools.pairwise(stages)):
        if after.until_tokens <= before.until_tokens:
            message = (
                f"{key}.{number + 1}.until_tokens {after.until_tokens} must be above "
                f"{before.until_tokens}, where the one before it ends"
            )
            raise ValueError(message)
    return stages
