"""What stands in the report of a spike: what was in the batch of a step that was refused.

`<out>/spikes/step-N.json`, written by the first rank, for people and for whoever looks the
documents up: only here shards and documents are named by number. Everything is read again from the
shards by the sample indices of the step, so a step that is not refused costs nothing.

    sequences        of the whole batch, the highest loss first: index, loss, source, documents
    suspects         numbers of the sequences whose loss stands out of the batch
    duplicates       sequences and documents that are in the batch more than once, token for token
    longest_repeat   the longest stretch in which some 1 to 64 tokens come again and again: the
                     commonest cause (OLMo 2, arXiv:2501.00656, section 3.1)
    new_tokens       ids that no accepted step has had before
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data import Batch, Loader
from training.saving.files import write_text
from training.settings.spikes import TO_SIGMA, SpikeConfig
from training.spikes.ledger import Event

SPIKES = "spikes"
LONGEST_PERIOD = 64
SHOWN = 100  # new tokens that are listed
LEAST_ROOM = 0.1  # of the median: below that no sequence stands out of its batch
Floats = NDArray[np.float64]
Ids = NDArray[np.integer[Any]]


def sequence_losses(per_sequence: Floats) -> Floats:
    """[sequences]: nats a target, from nats and targets; 0 where there is no target."""
    targets = per_sequence[:, 1]
    return np.divide(per_sequence[:, 0], targets, out=np.zeros(len(targets)), where=targets > 0)


def suspects(losses: Floats, settings: SpikeConfig) -> list[int]:
    """Numbers of the sequences whose loss is not finite or stands out of the batch's."""
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return list(range(len(losses)))
    median = float(np.median(finite))
    mad = float(np.median(np.abs(finite - median)))
    room = max(settings.mads * TO_SIGMA * mad, LEAST_ROOM * abs(median))
    return np.flatnonzero(~np.isfinite(losses) | (losses - median > room)).tolist()


def spike_report(
    event: Event,
    loader: Loader,
    indices: Sequence[int],
    losses: Floats,
    seen: NDArray[np.int32],
) -> dict[str, Any]:
    """The facts about one step as JSON values.

    `event`: that of the ledger; `losses` [sequences]; `seen` [vocabulary]: the accepted step that
    first had a token, 0 where none did.
    """
    batch = loader.batch(indices)
    places = segments_of(loader, indices)
    names = [source.name for source in loader.sources]
    sources = loader.order.many(indices)[0].tolist()
    sequences = [
        {
            "index": int(index),
            "loss": number(losses[n]),
            "source": names[sources[n]],
            "documents": places[n],
        }
        for n, index in enumerate(indices)
    ]
    told = {k: event[k] for k in ("step", "action", "loss", "grad_norm", "median", "limit")}
    order = np.argsort(-np.nan_to_num(losses, nan=np.inf, posinf=np.inf), kind="stable")
    ids = batch.tokens[batch.documents >= 0]
    return told | {
        "reason": event["reason"],
        "suspects": [int(indices[n]) for n in event["suspects"]],
        "sequences": [sequences[n] for n in order],
        "duplicates": duplicates(batch, indices, places),
        "longest_repeat": longest_repeat(batch, indices, places),
        "new_tokens": new_tokens(ids, seen, int(event["step"])),
        "batch_entropy": entropy(ids),
    }


def segments_of(loader: Loader, indices: Sequence[int]) -> list[list[dict[str, Any]]]:
    """Of each sample: shard, document in it, first token in the shard, tokens; by segment."""
    out: dict[int, list[dict[str, Any]]] = {int(index): [] for index in indices}
    for one in loader.segments(indices):
        found = {"shard": one.shard, "document": one.document, "first_token": one.first_token}
        out[one.sequence].append(found | {"tokens": one.n_tokens})
    return list(out.values())


def duplicates(
    batch: Batch, indices: Sequence[int], places: list[list[dict[str, Any]]]
) -> dict[str, Any]:
    """Groups of equal content: `sequences` by index, `documents` by shard and number."""
    sequences: dict[bytes, list[Any]] = defaultdict(list)
    documents: dict[bytes, list[Any]] = defaultdict(list)
    for tokens, index, segments in zip(batch.tokens, indices, places, strict=True):
        sequences[_hash(tokens)].append(int(index))
        at = 0
        for segment in segments:
            key = _hash(tokens[at : at + segment["tokens"]])
            documents[key].append({k: segment[k] for k in ("shard", "document", "first_token")})
            at += segment["tokens"]
    return {
        "sequences": [group for group in sequences.values() if len(group) > 1],
        "documents": [group for group in documents.values() if len(group) > 1],
    }


def _hash(tokens: Ids) -> bytes:
    return hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()


def longest_repeat(
    batch: Batch, indices: Sequence[int], places: list[list[dict[str, Any]]]
) -> dict[str, Any] | None:
    """The longest stretch inside one document that equals itself `period` tokens later, or None.

    Of equal ones that of the smallest period. At least two whole periods count.
    """
    best = (0, 0, 0, 0)  # tokens, period, sequence, first place in it
    width = batch.tokens.shape[1]
    for period in range(1, min(LONGEST_PERIOD, width - 1) + 1):
        same = batch.tokens[:, period:] == batch.tokens[:, :-period]
        same &= batch.documents[:, period:] == batch.documents[:, :-period]
        same &= batch.documents[:, period:] >= 0
        length, sequence, first = longest_run(same)
        if length >= period and length + period > best[0]:
            best = (length + period, period, sequence, first)
    length, period, sequence, first = best
    if not length:
        return None
    return {
        "sequence": int(indices[sequence]),
        "tokens": length,
        "period": period,
        "first_token": first,
        "ids": batch.tokens[sequence, first : first + period].tolist(),
        "document": segment_at(places[sequence], first),
    }


def longest_run(same: NDArray[np.bool_]) -> tuple[int, int, int]:
    """Length, row and column of the longest run of true in a row of [rows, columns]."""
    rows, columns = same.shape
    apart = np.zeros((rows, columns + 1), np.bool_)  # a false behind every row
    apart[:, :columns] = same
    breaks = np.concatenate([[-1], np.flatnonzero(~apart)])
    lengths = np.diff(breaks) - 1
    longest = int(np.argmax(lengths))
    row, column = divmod(int(breaks[longest]) + 1, columns + 1)
    return int(lengths[longest]), row, column


def segment_at(segments: list[dict[str, Any]], place: int) -> dict[str, Any] | None:
    """The segment of a sequence that holds this token of it."""
    at = 0
    for segment in segments:
        at += segment["tokens"]
        if place < at:
            return segment
    return None


def new_tokens(ids: Ids, seen: NDArray[np.int32], step: int) -> dict[str, Any]:
    """How many kinds of token are new at this step, and the commonest of them with their counts."""
    found, counts = np.unique(ids, return_counts=True)
    fresh = (seen[found] == 0) | (seen[found] >= step)
    pairs = sorted(zip(counts[fresh].tolist(), found[fresh].tolist(), strict=True), reverse=True)
    return {"number": len(pairs), "ids": [[token, count] for count, token in pairs[:SHOWN]]}


def entropy(ids: Ids) -> float:
    """Nats of a token drawn from the batch."""
    share = np.unique(ids, return_counts=True)[1] / len(ids)
    return float(-(share * np.log(share)).sum())


def number(value: float) -> float | str:
    """As JSON can hold it: `nan` and `inf` as text."""
    return float(value) if np.isfinite(value) else str(float(value))


def report_files(out: Path) -> list[Path]:
    """The reports of a run folder, by step, those after a rewind last."""
    found = (out / SPIKES).glob("step-*.json")
    return sorted(found, key=lambda p: [int(n) for n in p.stem.split("-") if n.isdigit()])


def write_report(out: Path, report: dict[str, Any], rewinds: int) -> Path:
    """Write it; a step that spikes again after a rewind has a file of its own."""
    again = f"-after-rewind-{rewinds}" if rewinds else ""
    path = out / SPIKES / f"step-{report['step']}{again}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(report, indent=1) + "\n")
    return path
