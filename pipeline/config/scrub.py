"""Configuration of scrubbing: personal data, and text of evaluation sets."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from pipeline.config.base import Section

Kind = Literal["email", "phone", "ip", "card", "iban", "secret"]


class ScrubConfig(Section):
    """What is replaced by what, and where n-gram overlap with benchmarks is too much."""

    mode: Literal["placeholder", "fake", "fineweb"] = Field(
        "placeholder",
        description=(
            "placeholder: <EMAIL>, <PHONE>, <IP>, <CARD>, <IBAN>, <SECRET>; fake: a made-up value "
            "from reserved ranges, the same for the same original; fineweb: e-mail and public IPv4 "
            "replaced by rotating example values, as datatrove's PIIFormatter does"
        ),
    )
    email: bool = Field(True, description="e-mail addresses, also written [at] and [dot]")
    phone: bool = Field(
        True,
        description="phone numbers that are valid in their numbering plan, with + or ( or a label",
    )
    ip: bool = Field(True, description="public IPv4 and IPv6 addresses; documentation ranges too")
    card: bool = Field(
        True, description="payment cards: issuer's prefix and length, Luhn check digit"
    )
    iban: bool = Field(True, description="IBANs: length by country, check digits (mod 97)")
    secret: bool = Field(
        True, description="keys of AWS, GitHub, Google, Slack, Stripe; PEM private keys"
    )
    keep_in_sources: dict[str, list[Kind]] = Field(
        default={"code": ["phone", "card"]},
        description=(
            "kinds left alone in documents of a source: in code, long numbers are constants, and "
            "altering one breaks the program"
        ),
    )
    keep_in_languages: dict[str, list[Kind]] = Field(
        default_factory=dict, description="kinds left alone in documents of a language"
    )
    seed: str = Field(
        "gristmill", min_length=1,
        description="secret of the fake values: who knows it can test guesses of an original",
    )  # fmt: skip
    benchmarks: list[str] | None = Field(
        None,
        description=(
            "JSONL(.gz) files or folders of evaluation items; documents that hold one are removed. "
            "Default: references.benchmark_sets"
        ),
    )
    contamination_ngram: int = Field(
        13, ge=2, le=50, description="words in a row that count as overlap; GPT-3, arXiv:2005.14165"
    )
    contamination_short: int = Field(
        8, ge=2, le=50,
        description="an item with fewer words than an n-gram counts as a whole from this many on",
    )  # fmt: skip
    contamination_common: int = Field(
        10, ge=1,
        description="n-grams in more items than this are the benchmark's own phrases and ignored; "
        "GPT-3 ignores those that occur more than ten times",
    )  # fmt: skip

    @field_validator("contamination_short")
    @classmethod
    def _short_is_shorter(cls, value: int, info: object) -> int:
        ngram = getattr(info, "data", {}).get("contamination_ngram", value)
        if value > ngram:
            message = f"must not exceed contamination_ngram ({ngram})"
            raise ValueError(message)
        return value
