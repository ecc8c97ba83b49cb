"""Bits per byte of held-out text, by source and language; how: `training.evaluate`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Score:
    """Sums over the target tokens of some held-out text."""

    nats: float
    bytes: float
    tokens: float
    unigram_nats: float
    """Nats of the tokens under their own frequencies."""

    @property
    def bits_per_byte(self) -> float:
        """Of the model; NaN where there is no text."""
        return self.nats / math.log(2) / self.bytes if self.bytes else math.nan

    @property
    def unigram_bits_per_byte(self) -> float:
        """Entropy of the tokens one by one, in bits per byte of the same text."""
        return self.unigram_nats / math.log(2) / self.bytes if self.bytes else math.nan

    def summary(self) -> dict[str, float]:
        """As JSON values; `tokens` are those with text."""
        return {
            "bits_per_byte": round(self.bits_per_byte, 6),
            "unigram_bits_per_byte": round(self.unigram_bits_per_byte, 6),
            "tokens": int(self.tokens),
            "bytes": int(self.bytes),
        }


@dataclass(frozen=True)
class Scores:
    """Held-out text as a whole, and by (source, language)."""

    total: Score
    groups: dict[tuple[str, str], Score]
    positions: list[dict[str, float]]
    """`from, to` (tokens of the document before it), `nats_per_token, tokens`."""

    def metrics(self) -> dict[str, float]:
        """Bits per byte by group, as `held_out/<source>[/<language>]`."""
        return {
            "/".join(filter(None, ("held_out", *group))): score.bits_per_byte
            for group, score in self.groups.items()
            if score.bytes
        }

    def table(self) -> list[dict[str, Any]]:
        """One row a group with text: `source, language, bits_per_byte, ...`."""
        return [
            {"source": source, "language": language} | score.summary()
            for (source, language), score in self.groups.items()
            if score.bytes
        ]


def score_of(sums: Tensor, counts: Tensor) -> Score:
    """From [nats, bytes, tokens] and the token counts [V]."""
    nats, n_bytes, tokens = sums.tolist()
    return Score(nats, n_bytes, tokens, _self_information(counts))


def _self_information(counts: Tensor) -> float:
    """Nats of all tokens under their own frequencies."""
    seen = counts[counts > 0]
    return float(-(seen * (seen / seen.sum()).log()).sum()) if len(seen) else 0.0
