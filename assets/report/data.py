"""What the report shows, as plain records: filled from manifests, drawn by `assets.report.page`.

Texts of pages must be scrubbed before they come here; drawing escapes and cuts them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from assets.spikes import Spike


@dataclass(frozen=True)
class Stage:
    """One stage of one partition in the funnel."""

    partition: str
    name: str
    records_in: int
    kept: int
    reasons: dict[str, int]
    unit: str = "documents"
    """What is counted: `records` for extraction, else `documents`."""


@dataclass(frozen=True)
class Example:
    """A page and its fate; `reason` None where it was kept."""

    url: str
    text: str
    reason: str | None = None
    value: float | None = None
    threshold: float | None = None


@dataclass(frozen=True)
class Pair:
    """A near-duplicate and the page it was dropped for; texts may be whole, a window is shown."""

    kept_url: str
    kept_text: str
    dropped_url: str
    dropped_text: str
    similarity: float


@dataclass(frozen=True)
class TracedToken:
    """One token of a shard and where it came from."""

    token: str
    token_id: int
    shard: str
    offset: int
    doc_id: str
    url: str
    licence: str | None
    warc_file: str
    warc_offset: int
    warc_length: int
    context: str
    """Text around the token, containing it."""


@dataclass(frozen=True)
class TokenRow:
    """Tokens of one source or language."""

    name: str
    documents: int
    tokens: int
    text_bytes: int


@dataclass(frozen=True)
class Check:
    """One asset check as the reader should see it: `verdict` is pass, warn or fail."""

    name: str
    verdict: str
    text: str


@dataclass(frozen=True)
class ReportData:
    """Everything the page shows; an empty part leaves its section out."""

    title: str
    lead: str
    facts: Sequence[tuple[str, str, str]] = ()
    """Headline numbers: label, value, note."""
    funnel: Sequence[Stage] = ()
    kept: Sequence[Example] = ()
    dropped: Sequence[Example] = ()
    pairs: Sequence[Pair] = ()
    languages: Sequence[tuple[str, int, int]] = ()
    """Code, documents, bytes of text."""
    hosts: Sequence[tuple[str, int, int]] = ()
    """Host, documents that came in, documents kept."""
    score_counts: Sequence[int] = ()
    """Documents by quality score, equal bins over [0, 1]."""
    score_threshold: float | None = None
    tokens: Sequence[TokenRow] = ()
    losses: Sequence[tuple[int, float]] = ()
    """Step, training loss in nats per token."""
    held_out: Sequence[tuple[int, float]] = ()
    """Step, held-out bits per byte."""
    unigram_bits_per_byte: float | None = None
    early: str = ""
    """A sentence on the early-run report."""
    spikes: Sequence[Spike] = ()
    """Steps that were refused, with the documents in them."""
    token: TracedToken | None = None
    prompt: str = ""
    continuation: str = ""
    checks: Sequence[Check] = ()
    times: Sequence[tuple[str, float]] = ()
    """Step of the run, seconds."""
    commands: Sequence[tuple[str, str]] = ()
    """What it does, the command."""
    footer: str = "Made by Gristmill. This page is one file and makes no request."
