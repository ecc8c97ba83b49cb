"""Held-out text: bits per byte by source and language.

Bits per byte = sum of nats of the target tokens / (ln 2 x their UTF-8 bytes). Special tokens stand
for no byte: they count neither nats nor bytes. It does not depend on the tokenizer, so runs with
different ones compare. Beside it stands the entropy of the same tokens taken one by one, in the
same unit: a model that has learnt no more than how often each token occurs reaches just that.

The curve by position tells what context is worth: nats of a token by how many of its document
stand before it.

During training all ranks share the rows; as a program one process reads them all:
`python -m training.evaluate FOLDER [--step N] [--languages FILE.json] --out FILE`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from training.config import LANGUAGES
from training.data import Source
from training.errors import TrainingError
from training.model import Decoder
from training.network.losses import token_losses
from training.plan import open_data
from training.samples.order import permute, round_keys
from training.samples.reading import Row
from training.sampling import open_model, sample_continuations
from training.saving.files import write_text
from training.shards import Ints, ShardError
from training.vocabulary import Vocabulary
from training.watching.scores import Scores, score_of

Line = dict[str, Any]
Nats = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(tokens, positions, documents, targets), each [B, T], to the nats of each target."""
Groups = Mapping[str, Sequence[str]]
"""Shard name to [documents]: the group (language) of each document."""


def choose_rows(sources: Sequence[Source], limit: int | None) -> list[tuple[int, int]]:
    """(source, row) of at most `limit` held-out rows, in proportion to size, always the same."""
    total = sum(source.n_rows for source in sources)
    flat = [(s, row) for s, source in enumerate(sources) for row in range(source.n_rows)]
    if limit is None or total <= limit:
        return flat
    keys = round_keys(0, "held-out", 0)
    return sorted(flat[permute(i, total, keys)] for i in range(limit))


@dataclass(frozen=True)
class _Sums:
    """What is added up over rows and ranks."""

    groups: Tensor
    """[groups, 3]: nats, bytes, tokens."""
    histogram: Tensor
    """[groups, vocabulary]: how often each token is a target."""
    positions: Tensor
    """[buckets, 2]: nats and tokens; bucket b holds positions from 2^b - 1 on."""

    @classmethod
    def zero(cls, n_groups: int, vocab_size: int, context: int) -> _Sums:
        """Nothing yet."""
        shapes = ((n_groups, 3), (n_groups, vocab_size), (context.bit_length(), 2))
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def scores(self, labels: list[tuple[str, str]], context: int) -> Scores:
        """As scores of these groups."""
        each = [score_of(*both) for both in zip(self.groups, self.histogram, strict=True)]
        total = score_of(self.groups.sum(0), self.histogram.sum(0))
        curve = [
            {
                "from": 2**bucket - 1,
                "to": min(2 ** (bucket + 1) - 2, context - 1),
                "nats_per_token": round(nats / tokens, 6),
                "tokens": int(tokens),
            }
            for bucket, (nats, tokens) in enumerate(self.positions.tolist())
            if tokens
        ]
        return Scores(total, dict(zip(labels, each, strict=True)), curve)


class HeldOut:
    """Held-out rows of a run, scored by all ranks together."""

    def __init__(
        self,
        sources: Sequence[Source],
        vocabulary: Vocabulary,
        *,
        limit: int | None = None,
        groups: Groups | None = None,
    ) -> None:
        self.sources, self.vocabulary = list(sources), vocabulary
        self.rows = choose_rows(sources, limit)
        self._lengths = torch.from_numpy(vocabulary.lengths())
        self._groups = groups or {}
        for shard in (shard for source in sources for shard in source.shards):
            told = len(self._groups.get(shard.name, shard.lengths))
            if told != len(shard.lengths):
                message = f"{shard.name} has {len(shard.lengths)} documents, and {told} languages"
                raise TrainingError(message, hint=f"materialise it again, or delete {LANGUAGES}")
        names = {(s.name, g) for s in sources for x in s.shards for g in self._labels(x.name)}
        self.labels = sorted(names)
        """(source, language) of each group."""

    def _labels(self, shard: str) -> set[str]:
        return set(self._groups.get(shard, ())) or {""}

    def _group_ids(self, source: Source, shard: int, row: Row) -> Ints:
        """[context] number of the group of every token."""
        name = source.shards[shard].name
        known = self._groups.get(name)
        ids = {label: number for number, label in enumerate(self.labels)}
        if known is None:
            return np.full(len(row.tokens), ids[source.name, ""], np.int64)
        table = np.array([ids[source.name, group] for group in known], np.int64)
        return table[np.maximum(row.doc_index, 0)]

    def score(
        self,
        nats: Nats,
        device: torch.device,
        *,
        batch: int,
        rank: int = 0,
        world: int = 1,
        add_up: Callable[[Tensor], Tensor] | None = None,
    ) -> Scores:
        """Score of every group and of all together; all ranks make equally many forward passes.

        `rank` of `world`: which share of the rows is read here; `add_up` sums a tensor over them.
        Nothing is drawn at random.
        """
        context = self.sources[0].rows[0].context if self.sources else 1
        sums = _Sums.zero(len(self.labels), self.vocabulary.size, context)
        per_rank = math.ceil(len(self.rows) / world)
        for start in range(0, per_rank, batch):
            numbers = [rank + world * i for i in range(start, min(start + batch, per_rank))]
            self._add(nats, device, numbers, sums)
        if add_up is not None:
            for tensor in (sums.groups, sums.histogram, sums.positions):
                tensor.copy_(add_up(tensor.to(device)))
        return sums.scores(self.labels, context)

    @torch.no_grad()
    def _add(
        self,
        nats_of: Nats,
        device: torch.device,
        numbers: Sequence[int],
        sums: _Sums,
    ) -> None:
        rows, groups = [], []
        for number in numbers:
            # a rank with fewer rows repeats the last one without weight: passes must be equal
            source, row_number = self.rows[min(number, len(self.rows) - 1)]
            shard, _ = self.sources[source].place(row_number)
            row = self.sources[source].read(row_number)
            if number >= len(self.rows):
                row = row._replace(loss_mask=np.zeros_like(row.loss_mask))
            rows.append(row)
            groups.append(self._group_ids(self.sources[source], shard, row))
        fields = [torch.from_numpy(np.stack(f)) for f in zip(*rows, strict=True)]
        tokens, positions, documents, mask, targets = fields
        moved = (field.to(device) for field in (tokens, positions, documents, targets))
        nats = nats_of(*moved).flatten()
        lengths = self._lengths[targets].flatten()
        counted = (mask.flatten() & (lengths > 0)).double()
        group = torch.from_numpy(np.stack(groups)).flatten()
        ones = torch.ones_like(counted)
        values = torch.stack([nats.cpu().double(), lengths.double(), ones], 1) * counted[:, None]
        bucket = torch.log2(positions.flatten().double() + 1).long()
        sums.groups.index_add_(0, group, values)
        sums.histogram.index_put_((group, targets.flatten().long()), counted, accumulate=True)
        sums.positions.index_add_(0, bucket, values[:, [0, 2]])


def nats_of_model(model: Decoder) -> Nats:
    """Nats of each target by a whole model in this process."""

    def nats(tokens: Tensor, positions: Tensor, documents: Tensor, targets: Tensor) -> Tensor:
        logits = model(tokens, positions, documents).flatten(0, 1)
        return token_losses(logits, targets.flatten())[0].view(targets.shape)

    return nats


def languages_of(folder: Path) -> Groups:
    """The languages that stand in the folder of a run; none where nobody put them there."""
    path = folder / LANGUAGES
    return read_languages(path, hint="delete it: the asset writes it anew") if path.exists() else {}


def read_languages(path: Path, hint: str) -> Groups:
    """Shard name to the language of each document; TrainingError where the file is no such."""
    try:
        return {
            str(name): list(found) for name, found in dict(json.loads(path.read_bytes())).items()
        }
    except (OSError, ValueError, TypeError) as error:
        message = f"{path} is damaged or not there"
        raise TrainingError(message, hint=hint) from error


def evaluate_run(
    folder: Path, *, step: int | None, groups: Groups | None, rows: int | None
) -> Line:
    """Scores of a run's checkpoint on its held-out shards, and some continuations, as JSON values.

    `groups`: the language of every document by shard, default those in the folder of the run;
    `rows`: most sequences to score, default all.
    """
    opened = open_model(folder, step)
    sources = open_data(opened.config, opened.vocabulary).held_out
    out: Line = {"checkpoint": opened.path.name, "identity": opened.identity}
    if not sources:
        return out | {"total": None, "groups": [], "positions": [], "continuations": []}
    groups = languages_of(folder) if groups is None else groups
    held_out = HeldOut(sources, opened.vocabulary, limit=rows, groups=groups)
    nats = nats_of_model(opened.model)
    scores = held_out.score(nats, torch.device("cpu"), batch=opened.config.micro_batch)
    continuations = sample_continuations(opened.model, sources, opened.vocabulary)
    return out | {
        "total": scores.total.summary(),
        "groups": scores.table(),
        "positions": scores.positions,
        "continuations": continuations,
    }


def main(arguments: list[str] | None = None) -> int:
    """`training.evaluate FOLDER --out FILE`: the scores of a run's checkpoint as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the run, ROOT/checkpoints/<name>")
    parser.add_argument("--step", type=int, help="default: the newest good checkpoint")
    parser.add_argument("--languages", type=Path, help="JSON: shard name to [language a document]")
    parser.add_argument("--rows", type=int, help="most held-out sequences; default: all")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        if given.rows is not None and given.rows < 1:
            message = f"--rows is {given.rows}, and must be 1 or more"
            raise TrainingError(message, hint="leave it out to score all")
        hint = "a JSON object: shard name to [language of each document]"
        groups = read_languages(given.languages, hint) if given.languages else None
        found = evaluate_run(given.folder, step=given.step, groups=groups, rows=given.rows)
    except (TrainingError, ShardError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return getattr(error, "exit_code", 1)
    write_text(given.out, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
