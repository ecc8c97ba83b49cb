"""The part `filter.language`: which languages are told, how, and which are kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from pipeline.config.base import Section
from pipeline.config.languages import check_code

Share = Annotated[float, Field(ge=0, le=1)]


def norwegian(value: Any) -> Any:
    """YAML reads a bare `no` as false; in a list or a mapping of languages it is Norwegian."""
    if isinstance(value, Mapping):
        return {"no" if key is False else key: share for key, share in value.items()}
    if isinstance(value, list):
        return ["no" if code is False else code for code in value]
    return value


Code = Annotated[str, AfterValidator(check_code)]
Codes = Annotated[list[Code], BeforeValidator(norwegian)]
Floors = Annotated[dict[Code, Share], BeforeValidator(norwegian)]

FINEWEB = "FineWeb, arXiv:2406.17557, section 3.3: "


class LanguageConfig(Section):
    """Language identification of documents, by the beginning of their text."""

    enabled: bool = Field(True, description="whether its rules may drop; languages are always told")
    backend: Literal["lid176", "eldc"] = Field(
        "lid176",
        description="lid176: fastText lid.176, which the score floors of published recipes mean. "
        "eldc: the same with a second opinion (package eldc, 60 languages) where it is unsure: "
        "on labelled paragraphs 0.987 for 0.984 of the long, 0.936 for 0.876 of the short",
    )  # fmt: skip
    keep: Codes = Field(
        default_factory=list,
        description="languages to keep, ISO 639-1 where one exists, else 639-3; empty keeps all",
    )
    min_score: Share | None = Field(
        0.65, description=FINEWEB + "lowest score, of languages that min_scores does not name"
    )
    min_scores: Floors = Field(
        default_factory=dict,
        description="lowest score by language, as FineWeb-2 has it: {de: 0.821, sv: 0.857}",
    )
    min_chars: int = Field(
        10, ge=0,
        description="characters below which no language is told. Of labelled paragraphs with 10 to "
        "20 characters lid.176 is right on 77 %, from 20 to 50 on 87 %",
    )  # fmt: skip
    und_score: Share = Field(
        0.15,
        description="score below which no language is told: one web page in 3,000, a mixture of "
        "languages",
    )  # fmt: skip
    und: Literal["drop", "keep"] = Field(
        "drop",
        description="what becomes of documents in no language that can be told (und: no letter, or "
        "below min_chars or und_score). drop: language.too_short below min_chars, else "
        "language.low_score. keep: no language rule takes them",
    )  # fmt: skip
