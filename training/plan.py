"""The data of a run: shards named one by one or by a training plan, split into train and held out.

Shards say in their sidecar which split they belong to; held-out ones are never trained on.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.config import RunConfig
from training.data import HELD_OUT, Loader, Source, open_source
from training.errors import RunConfigError, TrainingError
from training.samples.course import Course
from training.samples.order import Order
from training.shards import ShardError, read_sidecar, shard_path, strip_ending
from training.vocabulary import Vocabulary

WEB = "web"
REPEATED = 4.0
"""Passes from which repeated data teaches clearly less than new (arXiv:2305.16264)."""


@dataclass(frozen=True)
class Data:
    """What a run reads."""

    loader: Loader
    held_out: list[Source]
    """One a source, in name order; empty where nothing is held out."""
    checksum: str
    """SHA-256 over the shards' checksums and the weights: the data of a run must not change."""
    notes: list[str]
    """Sentences for the log: sources, epochs."""


def open_data(config: RunConfig, vocabulary: Vocabulary, *, tokens: bool = True) -> Data:
    """Open the shards of a run and lay down the order of its samples.

    Without `tokens` the `.bin` files need not be there: to say what is where. Raises RunConfigError
    where shards, tokenizer, weights and length do not fit, and TrainingError where the data ends
    before the run does and `second_epoch` is off.
    """
    prefixes, planned = _from_shards(config) if config.plan is None else _from_plan(config)
    phases = _phases(config, planned, prefixes)
    check_shards([p for group in prefixes.values() for p in group], vocabulary)
    train, held_out = {}, []
    for name in sorted(prefixes):
        splits = [(read_sidecar(p).get("split") == HELD_OUT, p) for p in prefixes[name]]
        own = [p for held, p in splits if not held]
        train[name] = open_source(name, own, config.context, config.packing, tokens=tokens)
        if kept := [p for held, p in splits if held]:
            # always packed alike, so that the scores of runs compare
            held_out.append(open_source(name, kept, config.context, tokens=tokens))
    sources = list(train.values())
    order = _order(config, sources, phases)
    course = Course(config)
    check_length(config, order, course)
    notes = _notes(config, order, course)
    if config.plan and not config.phases:
        notes += _check_plan(config, course, planned[-1][0])
    notes += [] if held_out else ["no shard is held out: there will be no bits per byte"]
    return Data(Loader(sources, order), held_out, _checksum(sources, phases), notes)


def _phases(config: RunConfig, planned: Phases, known: Iterable[str]) -> Phases:
    """Those of the run file, if it has any; RunConfigError where they name an unknown source."""
    names = set(known)
    for number, phase in enumerate(config.phases):
        if unknown := sorted(phase.weights.keys() - names):
            message = f"phases.{number}.weights names {unknown[0]}, and no shard is of that source"
            raise RunConfigError(message, hint=f"sources: {', '.join(sorted(names))}")
    return [(p.until_tokens, dict(p.weights)) for p in config.phases] or planned


def _notes(config: RunConfig, order: Order, course: Course) -> list[str]:
    """How often each source is read, with a warning where that is too often."""
    taken = order.taken(course.samples_until(config.steps))
    passes = {
        name: int(n) / rows
        for name, n, rows in zip(order.names, taken, order.n_rows, strict=True)
        if rows
    }
    told = ", ".join(f"{name} {n:.2f}" for name, n in passes.items())
    return [f"passes over each source in {config.steps} steps: {told}"] + [
        f"{name} is read {n:.1f} times; beyond {REPEATED:g} passes repeated data teaches clearly "
        "less than new (arXiv:2305.16264)"
        for name, n in passes.items()
        if n > REPEATED
    ]


def _check_plan(config: RunConfig, course: Course, planned: int) -> list[str]:
    """RunConfigError where the plan ends within the warm-up; a note where the run is longer."""
    if course.tokens_until(config.warmup_steps) >= planned:
        message = (
            f"plan {config.plan} is made for {planned:,} tokens, and the warm-up of "
            f"{config.warmup_steps} steps alone reads {course.tokens_until(config.warmup_steps):,}"
        )
        hint = "lower warmup_steps or the batch, or raise mixture.total_tokens"
        raise RunConfigError(message, hint=hint)
    wanted = course.tokens_until(config.steps)
    if wanted > planned:
        return [f"the plan is made for {planned:,} tokens, this run reads {wanted:,}"]
    return []


def earlier_plan(
    config: RunConfig, vocabulary: Vocabulary, data: str, *, tokens: bool = True
) -> Path | None:
    """The plan beside that of the run whose data have this checksum, as the run file names it.

    `mixture` keeps every plan under a name with its hash; the run's own is none of them any more.
    """
    if config.plan is None:
        return None
    for path in sorted(config.plan.parent.glob(f"{config.plan.stem.partition('-')[0]}-*.json")):
        try:
            other = config.model_copy(update={"plan": path})
            found = open_data(other, vocabulary, tokens=tokens).checksum
        except (TrainingError, ShardError):
            continue  # its shards are gone, or it is another file
        if found == data:
            root = config.parent_root.parent
            return path.relative_to(root) if path.is_relative_to(root) else path
    return None


def check_shards(prefixes: Sequence[Path], vocabulary: Vocabulary) -> None:
    """RunConfigError where a shard was made with another tokenizer, or one with more entries."""
    for prefix in prefixes:
        sidecar = read_sidecar(prefix)
        told = str(sidecar.get("tokenizer", vocabulary.checksum))
        if told.removeprefix("sha256:") != vocabulary.checksum:
            message = f"shard {prefix.name} was made with tokenizer {told[:20]}…, not this one"
            raise RunConfigError(message, hint="name the tokenizer the shards were made with")
        if sidecar["vocab_size"] > vocabulary.size:
            message = (
                f"shard {prefix.name} is of a vocabulary of {sidecar['vocab_size']} entries, the "
                f"tokenizer has {vocabulary.size}"
            )
            raise RunConfigError(message, hint="name the tokenizer the shards were made with")


Phases = list[tuple[int, dict[str, float]]]
"""(tokens from the start at which it ends, weight by source)."""


def _from_shards(config: RunConfig) -> tuple[dict[str, list[Path]], Phases]:
    """Shards given one by one or as folders: grouped by source, weighted by size."""
    groups: dict[str, list[Path]] = {}
    sizes: dict[str, float] = {}
    for prefix in expand(config.shards):
        sidecar = read_sidecar(prefix)
        name = str(sidecar.get("source") or WEB)
        groups.setdefault(name, []).append(prefix)
        if sidecar.get("split") != HELD_OUT:
            sizes[name] = sizes.get(name, 0.0) + float(sidecar["tokens"])
    return groups, [(0, sizes)]


def _from_plan(config: RunConfig) -> tuple[dict[str, list[Path]], Phases]:
    """Shards and realised weights of a plan.json (`pipeline.mixture` describes it)."""
    assert config.plan is not None
    try:
        plan = json.loads(config.plan.read_bytes())
        told = {str(shard["path"]): shard for shard in plan["shards"]}
        sums = {path: str(shard["checksums"]["bin"]) for path, shard in told.items()}
        sources = {path: str(shard["source"]) for path, shard in told.items()}
        phases = [_phase(phase) for phase in plan["phases"]]
        if not told or not phases:
            message = "no shards or no phases"
            raise ValueError(message)
    except (AttributeError, OSError, ValueError, LookupError, TypeError, OverflowError) as error:
        message = f"plan {config.plan} is no training plan"
        raise RunConfigError(message, hint="name the plan.json that `mixture` wrote") from error
    root = _root_of(config, list(told))
    groups: dict[str, list[Path]] = {}
    for path in told:
        if read_sidecar(root / path)["checksums"]["bin"] != sums[path]:
            message = f"shard {path} is not the one that plan {config.plan} was made of"
            raise TrainingError(message, hint="materialise the mixture again")
        groups.setdefault(sources[path], []).append(root / path)
    return groups, phases


def _phase(told: dict[str, Any]) -> tuple[int, dict[str, float]]:
    """A phase of a plan; ValueError where its weights are none."""
    weights = {str(name): float(weight) for name, weight in told["weights"].items()}
    if not all(0 <= weight < math.inf for weight in weights.values()) or not any(weights.values()):
        message = f"weights {weights}"
        raise ValueError(message)
    return int(told["until_tokens"]), weights


def _root_of(config: RunConfig, paths: Sequence[str]) -> Path:
    """The folder that paths of a plan start from: `data_root`, else what fits around the plan."""
    assert config.plan is not None
    places = [config.data_root] if config.data_root else [*config.plan.parents][:3]
    for place in places:
        if all(shard_path(place / path, "idx").exists() for path in paths):
            return place
    message = f"the shards of plan {config.plan} are not below {' or '.join(map(str, places))}"
    hint = f"set data_root to the folder that holds {paths[0] if paths else 'them'}"
    raise RunConfigError(message, hint=hint)


def expand(places: Iterable[Path]) -> list[Path]:
    """Prefixes of all shards named by `places`: prefixes, their files, or folders of them.

    A dataset folder names its shards through its current manifest; older parts beside them do not
    count.
    """
    out: list[Path] = []
    for place in places:
        if not place.is_dir():
            out.append(strip_ending(place))
            continue
        current = place / "current"
        if current.exists():
            file = place / "manifests" / f"{current.read_text().strip()}.json"
            parts = json.loads(file.read_bytes())["content"]["parts"]
            paths = [place / part["path"] for part in parts if part["path"].endswith(".bin")]
        else:
            paths = sorted(place.glob("*.idx"))
        out += [strip_ending(path) for path in paths]
    missing = [p for p in out if not shard_path(p, "idx").exists()]
    if missing or not out:
        message = f"there is no shard {missing[0] if missing else ' '.join(map(str, places))}"
        raise RunConfigError(message, hint="shards are <prefix>.bin/.idx/.json, or folders of them")
    return sorted(set(out), key=lambda p: p.name)


def _order(config: RunConfig, sources: list[Source], phases: Phases) -> Order:
    """Phases in tokens become phases in samples; RunConfigError for one that has none to take."""
    rows = {s.name: s.n_rows for s in sources}
    for number, (_, weights) in enumerate(phases):
        lacking = [name for name, weight in weights.items() if weight and not rows.get(name)]
        if lacking or not any(weights.values()):
            what = f"source {lacking[0]}" if lacking else "any source"
            message = f"phase {number} takes samples of {what}, and no shard to train on has tokens"
            hint = "give shards that are not held out and not empty, or take its weight away"
            raise RunConfigError(message, hint=hint)
    ends = [
        (tokens // config.context, [weights.get(s.name, 0.0) for s in sources])
        for tokens, weights in phases
    ]
    return Order([s.name for s in sources], [s.n_rows for s in sources], ends, config.seed)


def check_length(config: RunConfig, order: Order, course: Course) -> None:
    """TrainingError where the data ends before the run does and `second_epoch` is off.

    To be asked again with the course of a run that left samples out.
    """
    if config.second_epoch:
        return
    wanted = course.samples_until(config.steps)
    ends = order.samples_in_one_pass(wanted)
    if ends < wanted:
        enough = bisect_right(range(config.steps), ends, key=course.samples_until) - 1
        message = (
            f"the data ends after step {enough} of {config.steps}, and second_epoch is off "
            f"({sum(order.n_rows)} sequences, global_batch {config.global_batch})"
        )
        raise TrainingError(message, hint=f"set steps: {enough}, or second_epoch: true")


def _checksum(sources: list[Source], phases: Phases) -> str:
    shards: list[Any] = [
        [source.name, shard.name, shard.sidecar["checksums"]["bin"]]
        for source in sources
        for shard in source.shards
    ]
    text = json.dumps([shards, phases], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
