"""Manifests: what a stage made of which inputs, hashed without anything volatile.

A manifest is `{"content": {...}, "run": {...}}`, stored immutably as `manifests/<hash>.json` where
the hash is the SHA-256 of the canonical JSON of `content`; the pointer file `current` names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pipeline.errors import ContractError
from pipeline.layout import canonical, content_key, sha256_hex

KINDS = ("parts", "decisions", "signals", "signatures", "pairs", "clusters", "index")
"""The lists of files a manifest may hold; `parts` and `decisions` always stand there."""

Verdict = Literal["pass", "fail", "not_enough_sample"]


class Frozen(BaseModel):
    """A part of a manifest: immutable, nothing unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Entry(Frozen):
    """One file of a dataset, relative to its folder."""

    key: str
    path: str
    rows: int
    bytes: int
    checksum: str
    source: str | None = None
    """Base name of the input file (WARC, JSONL) that the part descends from."""
    group: int | None = None


class InputRef(Frozen):
    """Something that was read: another manifest (`asset` or `stage`), or a file by checksum."""

    asset: str | None = None
    stage: str | None = None
    partition: str | None = None
    hash: str | None = None
    file: str | None = None
    checksum: str | None = None


class Counts(Frozen):
    """Records in = kept + dropped, and the dropped by reason."""

    records_in: int
    kept: int
    dropped: int
    reasons: dict[str, int]

    @classmethod
    def total(cls, parts: Iterable[Counts]) -> Counts:
        """The sum over parts, reasons in alphabetical order."""
        records_in = kept = dropped = 0
        reasons: dict[str, int] = {}
        for part in parts:
            records_in += part.records_in
            kept += part.kept
            dropped += part.dropped
            for reason, n in part.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + n
        ordered = dict(sorted(reasons.items()))
        return cls(records_in=records_in, kept=kept, dropped=dropped, reasons=ordered)


class Gate(Frozen):
    """The verdict of one quality gate over a sample of `sample` records."""

    name: str
    verdict: Verdict
    value: float | None
    threshold: float | list[float | None] | None
    sample: int
    blocking: bool
    detail: str | None = None


class Content(Frozen):
    """What is hashed."""

    stage: str
    partition: str | None
    inputs: list[InputRef]
    config: dict[str, Any]
    code_version: str
    libraries: dict[str, str]
    parts: list[Entry]
    decisions: list[Entry]
    signals: list[Entry] | None = None
    signatures: list[Entry] | None = None
    pairs: list[Entry] | None = None
    clusters: list[Entry] | None = None
    index: list[Entry] | None = None
    output: str
    counts: Counts
    damaged: list[dict[str, Any]]
    gates: list[Gate]
    accepted_gates: list[dict[str, str]] | None = None
    """Failed gates that a person took on with `accept_gate`: `name, reason`."""
    summary: dict[str, Any] = Field(default_factory=dict)
    """Figures of the stage itself (languages, hosts, bytes per token, model scores)."""

    def entries(self, kind: str) -> list[Entry]:
        """The files of a kind, in part order."""
        return getattr(self, kind) or []


class Manifest(Frozen):
    """Content and the volatile block beside it."""

    content: Content
    run: dict[str, Any]

    @property
    def hash(self) -> str:
        """The name of the manifest: SHA-256 of its canonical content."""
        return content_key(_json_content(self.content))

    def to_bytes(self) -> bytes:
        """The file as stored, readable by a person."""
        value = {"content": _json_content(self.content), "run": self.run}
        return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str) -> Manifest:
        """Read one back; its content must hash to `name`. Raises ContractError."""
        try:
            raw = json.loads(data)
            actual = sha256_hex(canonical(raw["content"]))
        except (ValueError, KeyError, TypeError) as error:
            message = f"manifest {name} is not readable: {error}"
            raise ContractError(message, hint=_REMAKE) from error
        if actual != name:
            message = f"manifest {name} has the content of {actual}"
            raise ContractError(message, hint=f"it was altered: {_REMAKE}")
        return cls.model_validate(raw)

    def failed_gates(self) -> list[Gate]:
        """The blocking gates that failed and were not accepted when the manifest was made."""
        accepted = {gate["name"] for gate in self.content.accepted_gates or ()}
        gates = self.content.gates
        return [g for g in gates if g.blocking and g.verdict == "fail" and g.name not in accepted]


def _json_content(content: Content) -> dict[str, Any]:
    """As stored and hashed: absent kinds of files and absent fields of entries are left out."""
    value = content.model_dump(mode="json")
    for name in (*KINDS, "accepted_gates"):
        if value[name] is None:
            del value[name]
    for name in ("inputs", *(kind for kind in KINDS if kind in value)):
        value[name] = [{k: v for k, v in entry.items() if v is not None} for entry in value[name]]
    return value


def output_hash(parts: Iterable[Entry]) -> str:
    """The data version of a dataset: equal for equal parts, whatever made them."""
    return content_key(sorted([e.path, e.rows, e.checksum] for e in parts))


def part_key(
    *,
    stage: str,
    checksums: Iterable[str],
    config: Mapping[str, Any],
    code_version: str,
    libraries: Mapping[str, str],
) -> str:
    """The address of a part's work: same key, same bytes, nothing to do."""
    return content_key(
        {
            "stage": stage,
            "inputs": list(checksums),
            "config": dict(config),
            "code_version": code_version,
            "libraries": dict(libraries),
        }
    )


_REMAKE = "remove the file `current` of its folder and materialise the stage again"
