"""The section `labeller`: labels from a larger model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from pipeline.config.base import Section, without_password

VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")


def _is_http(address: str) -> bool:
    """Whether requests can be sent there."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
        host.encode("idna")
    except ValueError:  # brackets, a port over 65,535, a label of nothing
        return False
    return parts.scheme in ("http", "https") and bool(host) and not re.search(r"\s", address)


def _endpoint(address: str | None) -> str | None:
    without_password(address)
    if address is not None and not _is_http(address):
        message = "it is no http(s):// address, such as https://host.example/v1"
        raise ValueError(message)
    return address.rstrip("/") if address else address


def _variable(name: str | None) -> str | None:
    """A pasted key is refused, and not shown again."""
    if name is not None and (not VARIABLE.match(name) or name.lower().startswith("sk_")):
        message = "it is no name of an environment variable; a key is a password, and stands there"
        raise ValueError(message)
    return name


class LabellerConfig(Section):
    """Whom to ask, what, and for how much. The key is read from the environment only."""

    base_url: Annotated[str | None, AfterValidator(_endpoint)] = Field(
        None, description="address of the API, up to and with /v1; off without"
    )
    model: str | None = Field(None, description="name of the model, as the endpoint knows it")
    api_key_env: Annotated[str | None, AfterValidator(_variable)] = Field(
        None, description="environment variable that holds the key; none is sent without"
    )
    input: list[str] = Field(
        default_factory=list,
        description="JSONL, Parquet or dataset folders whose texts the asset quality_labels has "
        "labelled, where references.quality_labels is not set",
    )
    prompt: str | None = Field(
        None,
        description="file with the question, `{text}` where the text goes; without: educational "
        "value, 0 to 5, after FineWeb-Edu (arXiv:2406.17557)",
    )
    answers: Literal["grade", "yes_no"] = Field(
        "grade", description="what an answer is: one digit 0 to 5, or yes or no (1 or 0)"
    )
    batch: int = Field(
        1, ge=1, le=50,
        description="texts a request; answers come as numbered lines, and texts without one are "
        "asked again by themselves",
    )  # fmt: skip
    concurrency: int = Field(4, ge=1, le=256, description="requests at a time")
    max_chars: int = Field(
        4000, ge=100, le=200_000, description="characters of a text that are sent"
    )
    max_tokens: int = Field(16, ge=1, le=8192, description="tokens an answer may have, a text")
    timeout: float = Field(60.0, gt=0, le=3600, description="seconds to wait for an answer")
    attempts: int = Field(
        6, ge=1, le=30, description="tries for a request that was refused or broke off"
    )
    first_wait: float = Field(
        1.0, ge=0, le=60,
        description="seconds before the second try; doubled for each further one, never less than "
        "the endpoint's Retry-After",
    )  # fmt: skip
    limit: int = Field(
        1000, ge=1, description="texts asked about at most, those with the lowest hash of the text"
    )
    max_cost: float = Field(
        5.0, ge=0,
        description="in the currency of the prices; an estimate above is refused, and nothing more "
        "is asked once so much is spent",
    )  # fmt: skip
    price_input: float | None = Field(
        None, ge=0, description="price of a million tokens sent; 0 for a model of your own"
    )
    price_output: float | None = Field(
        None, ge=0, description="price of a million tokens of answers"
    )
    accept_cost: bool = Field(
        False, description="ask although the estimate is over max_cost, or prices are not known"
    )
    cache: str | None = Field(
        None,
        description="file that keeps every answer, so that none is paid for twice; default: "
        "`labels.sqlite` in $GRISTMILL_CACHE, else in ~/.cache/gristmill",
    )
