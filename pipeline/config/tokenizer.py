"""Section `tokenizer`: the byte-level BPE vocabulary and the sample it is trained on."""

from __future__ import annotations

from pydantic import Field, field_validator

from pipeline.config.base import Section

ALPHABET = 256
N_SPECIALS = 8


class TokenizerConfig(Section):
    """What shapes `tokenizer.json`. It is frozen once trained: every shard depends on it."""

    vocab_size: int = Field(
        32_768,
        ge=ALPHABET + N_SPECIALS,
        le=1_000_000,
        description="Entries, 256 bytes and 8 special tokens included; 32,768 as nanochat; below "
        "65,500 a token takes two bytes on disk.",
    )
    unfreeze: bool = Field(
        False,
        description="Allow another tokenizer in place of the frozen one; all token shards, plans "
        "and runs become stale.",
    )
    min_frequency: int = Field(
        2, ge=1, description="Occurrences below which a pair is not merged; 2: no token seen once."
    )
    digits: int = Field(
        3, ge=1, le=9, description="Longest group of digits in one token; 3 as GPT-4 (cl100k_base)."
    )
    max_piece: int = Field(
        48,
        ge=8,
        le=1024,
        description="Longest run of letters, signs or blanks that is merged as one piece, in "
        "characters: longer than any common word, so that an inlined file of 200,000 letters costs "
        "linear time (huggingface/tokenizers#422).",
    )
    sample_bytes: int = Field(
        1_000_000_000,
        ge=1_000,
        description="UTF-8 bytes of text trained on, at most; our choice, no published figure.",
    )
    weights: dict[str, float] = Field(
        default_factory=dict,
        description="Share of the sample by source (web, code, ...), any scale; empty: by size.",
    )
    language_alpha: float = Field(
        0.7,
        ge=0.0,
        le=1.0,
        description="Within a source a language gets its bytes to this power, lest small ones "
        "drown; 0.7 as multilingual BERT, 1: by size.",
    )

    @field_validator("weights")
    @classmethod
    def _not_negative(cls, weights: dict[str, float]) -> dict[str, float]:
        return check_weights(weights)


def check_weights(weights: dict[str, float]) -> dict[str, float]:
    """`weights` if they are finite, not negative and not all zero; ValueError otherwise."""
    for name, weight in weights.items():
        if not 0 <= weight < float("inf"):
            message = f"weight of {name!r} is {weight}; it must be finite and not negative"
            raise ValueError(message)
    if weights and not sum(weights.values()):
        message = "all weights are zero"
        raise ValueError(message)
    return weights
