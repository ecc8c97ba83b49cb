"""`mixture`: the training plan over the token shards of every corpus that is there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipeline.config import Config, section_json
from pipeline.dataset import checksum, read_bytes
from pipeline.driver import Receipt, StageSpec
from pipeline.errors import UsageError
from pipeline.inputs import AtOnce, Input, Loaded
from pipeline.manifest import Gate, InputRef, Manifest
from pipeline.mill import Mill, run_stage
from pipeline.part import PartResult
from pipeline.stages.artifacts import artifact, kept_decisions, mirror, only_extra
from pipeline.stages.tokens import token_corpora

PLAN_FILE = "plan.json"


@dataclass(frozen=True)
class PlanSource(AtOnce):
    """The sidecars of every shard there is: what a plan is made of."""

    sidecars: tuple[tuple[str, str, str], ...]
    """Prefix below the root, corpus, sidecar as JSON."""
    label: str = "token shards"
    origin: str | None = None
    group: int | None = None
    size_bytes: int = 0

    @property
    def checksums(self) -> tuple[str, ...]:
        return tuple(checksum("\0".join(one).encode()) for one in self.sidecars)

    def load(self) -> Loaded:
        return Loaded(self.sidecars, len(self.sidecars))


def plan_input(mill: Mill) -> Input:
    """Every shard of every corpus that is there."""
    found, refs = [], []
    for corpus in token_corpora(mill):
        dataset = mill.open("token_shards", corpus)
        refs.append(InputRef(asset="token_shards", partition=corpus, hash=dataset.manifest.hash))
        for entry in dataset.entries():
            if entry.path.endswith(".json"):
                prefix = f"token_shards/{corpus}/{entry.path.removesuffix('.json')}"
                found.append((prefix, corpus, read_bytes(dataset.store, entry).decode()))
    if not found:
        message = "there are no token shards to plan with"
        raise UsageError(message, hint="materialise token_shards of a snapshot or source first")
    return Input((PlanSource(tuple(found)),), tuple(refs), None, ())


def mixture(mill: Mill) -> Manifest:
    """`mixture`: the training plan over all token shards."""
    from pipeline import mixture as stage

    section = section_json(mill.config.mixture)
    spec = StageSpec("mixture", stage.CODE_VERSION, stage.LIBRARIES, None, section)
    work = partial(_plan, config=mill.config)
    out = mill.folder("mixture")
    rules = [plan_gate]
    manifest = run_stage(mill, spec, plan_input(mill), work, out, rules=rules, summarise=only_extra)
    return mirror(mill, manifest, PLAN_FILE)


def read_plan(mill: Mill, manifest: Manifest) -> dict[str, Any]:
    """The plan that a manifest of `mixture` names."""
    plan: dict[str, Any] = json.loads(read_bytes(mill.folder("mixture"), manifest.content.parts[0]))
    return plan


def plan_gate(receipts: Sequence[Receipt], _: Any) -> Gate:
    """The gate that the plan itself holds: requested against realised shares."""
    return Gate.model_validate(receipts[0].extra["gates"][0])


def _plan(sidecars: tuple[tuple[str, str, str], ...], *, config: Config) -> PartResult:
    import polars as pl

    from pipeline.mixture import build_plan, shard_info

    shards = [shard_info(prefix, json.loads(text), corpus) for prefix, corpus, text in sidecars]
    plan = build_plan(shards, config.mixture)
    names = pl.DataFrame({"doc_id": [s.name for s in shards]}).with_columns(
        url=pl.lit(None, pl.String)
    )
    data = json.dumps(plan, indent=1, ensure_ascii=False).encode() + b"\n"
    extra = {k: plan[k] for k in ("total_tokens", "sources", "warnings", "gates")}
    return artifact(PLAN_FILE, data, kept_decisions(names, "mixture"), **extra)
