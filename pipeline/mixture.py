"""The training plan: how much of each source a run reads, and in which phase.

A source is `web` for all snapshots together, else the name of a source (`code`, `books`, ...).
Requested shares are the weights of the configuration, by size where there are none. Nobody is read
more than `mixture.max_epochs` times (arXiv:2305.16264): what a small source cannot give the others
do, in proportion. The plan holds requested and realised shares, and the gate `mixture` says whether
they agree. Training reads the realised weights, phase by phase, and the shards of split `train`;
`held_out` ones are listed for evaluation.

plan.json:

    version 1 · tokenizer · vocab_size · total_tokens
    sources     name -> available_tokens, documents, requested, realised, tokens, epochs
    phases      [until_tokens, weights {source: realised share}, requested {source: share}]
    shards      [name, path (prefix below the root), corpus, source, split, tokens, documents,
                languages {language: tokens}, checksums]
    warnings    sentences      gates      as in a manifest
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pipeline.config.mixture import MixtureConfig, Phase
from pipeline.errors import ConfigError, ContractError
from pipeline.shares import allot, check_names

CODE_VERSION = "1"
LIBRARIES: tuple[str, ...] = ()
REPEATED = 4.0  # passes from which repeated data is worth clearly less than new, arXiv:2305.16264

Shares = dict[str, float]


@dataclass(frozen=True)
class ShardInfo:
    """What the plan says of one shard."""

    name: str
    path: str
    """Prefix relative to the root of the store: `token_shards/<corpus>/<name>`."""
    corpus: str
    source: str
    split: str
    tokens: int
    documents: int
    vocab_size: int
    tokenizer: str
    languages: dict[str, int]
    """Language -> tokens."""
    checksums: dict[str, str]


def shard_info(path: str, sidecar: Mapping[str, Any], corpus: str) -> ShardInfo:
    """A shard as its sidecar (`<name>.json`) describes it."""
    return ShardInfo(
        name=sidecar["name"],
        path=path,
        corpus=corpus,
        source=sidecar["source"],
        split=sidecar["split"],
        tokens=sidecar["tokens"],
        documents=sidecar["documents"],
        vocab_size=sidecar["vocab_size"],
        tokenizer=sidecar["tokenizer"],
        languages={name: sums["tokens"] for name, sums in sidecar["languages"].items()},
        checksums=dict(sidecar["checksums"]),
    )


def build_plan(shards: Iterable[ShardInfo], config: MixtureConfig) -> dict[str, Any]:
    """The plan as JSON; see the top of this file.

    Raises ConfigError where weights name an unknown source or more tokens are asked for than
    `max_epochs` allows, ContractError where shards have different tokenizers or the same name.
    """
    ordered = sorted(shards, key=lambda shard: (shard.corpus, shard.name))
    _check_shards(ordered)
    training = [shard for shard in ordered if shard.split == "train"]
    available = _sums(training)
    phases = _phases(config, available)
    realised = _realise(phases, available, config.max_epochs)
    total = sum(sum(amounts.values()) for amounts in realised)
    sources, warnings = _sources(training, phases, realised, available)
    return {
        "version": 1,
        "tokenizer": ordered[0].tokenizer,
        "vocab_size": ordered[0].vocab_size,
        "total_tokens": round(total),
        "sources": sources,
        "phases": [
            {
                "until_tokens": phase.until_tokens,
                "weights": _shares(amounts),
                "requested": _shares(phase.weights),
            }
            for phase, amounts in zip(phases, realised, strict=True)
        ],
        "shards": [_entry(shard) for shard in ordered],
        "warnings": warnings,
        "gates": [_gate(sources, round(total), config.tolerance)],
    }


def _check_shards(shards: Sequence[ShardInfo]) -> None:
    if not any(shard.tokens for shard in shards if shard.split == "train"):
        message = "there are no token shards to train on"
        raise ContractError(message, hint="materialise token_shards of a snapshot or source first")
    tokenizers = sorted({shard.tokenizer for shard in shards})
    if len(tokenizers) > 1:
        of = {shard.tokenizer: shard.corpus for shard in shards}
        told = ", ".join(f"{name[:19]} (as in {of[name]})" for name in tokenizers)
        message = f"token shards were made with {len(tokenizers)} tokenizers: {told}"
        raise ContractError(message, hint="materialise token_shards again where it is the old one")
    names = Counter(shard.name for shard in shards)
    twice = [name for name, n in names.items() if n > 1]
    if twice:
        message = f"two shards are called {twice[0]}"
        raise ContractError(message, hint="names of shards are unique in a store; take one out")


def _sums(shards: Iterable[ShardInfo]) -> Shares:
    sums: Shares = {}
    for shard in shards:
        sums[shard.source] = sums.get(shard.source, 0.0) + shard.tokens
    return dict(sorted(sums.items()))


def _phases(config: MixtureConfig, available: Shares) -> list[Phase]:
    """The phases asked for, cut at `total_tokens`; without any, one."""
    for number, phase in enumerate(config.phases):
        check_names(f"mixture.phases.{number}.weights", phase.weights, available)
    check_names("mixture.weights", config.weights, available)
    weights = config.weights or available
    named = sum(available[name] for name, weight in weights.items() if weight > 0)
    once = round(named * min(1.0, config.max_epochs))
    phases = config.phases or [Phase(until_tokens=config.total_tokens or once, weights=weights)]
    end = config.total_tokens or phases[-1].until_tokens
    out: list[Phase] = []
    for phase in phases:
        if not out or out[-1].until_tokens < end:
            until = min(phase.until_tokens, end)
            full = {name: phase.weights.get(name, 0.0) for name in available}
            out.append(Phase(until_tokens=until, weights=full))
    return out


def _realise(phases: Sequence[Phase], available: Shares, max_epochs: float) -> list[Shares]:
    """Tokens of each source in each phase; limits run through all of them."""
    left = {name: tokens * max_epochs for name, tokens in available.items()}
    out: list[Shares] = []
    start = 0
    for number, phase in enumerate(phases):
        wanted = phase.until_tokens - start
        amounts = allot(wanted, phase.weights, left)
        given = sum(amounts.values())
        if given < wanted - 0.5:
            key = (
                "mixture.total_tokens" if number == len(phases) - 1 else f"mixture.phases.{number}"
            )
            message = (
                f"{key}: the plan asks for {phase.until_tokens} tokens, but {max_epochs:g} passes "
                f"over the sources with a weight give {int(start + given)}"
            )
            hint = "ask for fewer tokens, weigh more sources, or raise mixture.max_epochs"
            raise ConfigError(message, hint=hint)
        left = {name: left[name] - amounts[name] for name in left}
        out.append(amounts)
        start = phase.until_tokens
    return out


def _shares(amounts: Mapping[str, float]) -> Shares:
    total = sum(amounts.values())
    return {name: round(amount / total, 9) for name, amount in amounts.items()}


def _sources(
    shards: Sequence[ShardInfo],
    phases: Sequence[Phase],
    realised: Sequence[Shares],
    available: Shares,
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    requested = dict.fromkeys(available, 0.0)
    used = dict.fromkeys(available, 0.0)
    for phase, amounts in zip(phases, realised, strict=True):
        length = sum(amounts.values())
        for name, share in _shares(phase.weights).items():
            requested[name] += share * length
            used[name] += amounts[name]
    asked, got = _shares(requested), _shares(used)
    sources: dict[str, dict[str, Any]] = {}
    warnings: list[str] = []
    for name, tokens in available.items():
        epochs = used[name] / tokens if tokens else 0.0
        sources[name] = {
            "available_tokens": int(tokens),
            "documents": sum(shard.documents for shard in shards if shard.source == name),
            "requested": asked[name],
            "realised": got[name],
            "tokens": round(used[name]),
            "epochs": round(epochs, 4),
        }
        warnings += _warnings(name, sources[name])
    return sources, warnings


def _warnings(name: str, source: Mapping[str, Any]) -> list[str]:
    out = []
    if source["epochs"] > REPEATED:
        out.append(
            f"{name} is read {source['epochs']:.1f} times; beyond {REPEATED:g} passes repeated "
            "data teaches clearly less than new (arXiv:2305.16264)"
        )
    if source["requested"] - source["realised"] > 1e-6:
        out.append(
            f"{name} was asked for {source['requested']:.1%} of the tokens and gives "
            f"{source['realised']:.1%}: it ends at mixture.max_epochs"
        )
    if not source["requested"]:
        size = source["available_tokens"]
        out.append(f"{name} ({size} tokens) has no weight: it is not read")
    return out


def _entry(shard: ShardInfo) -> dict[str, Any]:
    entry = asdict(shard)
    # the same for all of them, said once
    del entry["tokenizer"], entry["vocab_size"]
    return entry


def _gate(sources: Mapping[str, Mapping[str, Any]], total: int, tolerance: float) -> dict[str, Any]:
    distance = max(abs(s["requested"] - s["realised"]) for s in sources.values())
    return {
        "name": "mixture",
        "verdict": "pass" if distance <= tolerance else "fail",
        "value": round(distance, 6),
        "threshold": tolerance,
        "sample": total,
        "blocking": True,
    }
