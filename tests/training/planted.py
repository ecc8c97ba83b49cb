"""A storage root with one shard in which a document is one row, some of them one token repeated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.training.miniature import VOCABULARY, write_run, write_tokenizer
from training.samples.order import Order
from training.shards import write_shard

KEYS: dict[str, Any] = {
    "steps": 120,
    "global_batch": 8,
    "micro_batch": 8,
    "warmup_steps": 5,
    "eval_every": 0,
    "checkpoint_every": 10,
    "keep_checkpoints": 20,
}
QUICK = {"armed_after": 16, "window": 64, "norm_floor": 0.02}
BACK = QUICK | {"rewind_skips": 2, "rewind_within": 10, "rewind_distance": 5, "leave_out": 5}
"""A gate and a ladder that two planted rows take a short run back with."""
N_DOCUMENTS, SEED = 1200, 7
STUCK = 260  # a token that no other document has


def walk(draw: np.random.Generator, length: int) -> Any:
    steps = draw.integers(0, 3, length)
    return (np.cumsum(steps * steps) + draw.integers(0, 40)) % 200 + 1


def rows_at(*steps: int) -> list[int]:
    """Documents that the fourth sequence of these steps is; every document is one row."""
    order = Order(["web"], [N_DOCUMENTS], [(0, [1.0])], SEED)
    return [order[(step - 1) * 8 + 3].row for step in steps]


def plant(root: Path, documents: Sequence[int] = ()) -> None:
    """A storage root whose one shard holds, at these documents, one token again and again."""
    draw = np.random.default_rng(3)
    texts = [np.append(walk(draw, 31), 0) for _ in range(N_DOCUMENTS)]
    for n in documents:
        texts[n] = np.append(np.full(31, STUCK), 0)
    lengths = np.array([len(d) for d in texts])
    root.mkdir(parents=True, exist_ok=True)
    write_tokenizer(root / "tokenizer.json")
    prefix, sidecar = root / "shards" / "web-0", {"source": "web", "split": "train"}
    write_shard(prefix, np.concatenate(texts), lengths, vocab_size=VOCABULARY, sidecar=sidecar)


def planted_run(root: Path, name: str, **keys: Any) -> Path:
    """A run over it, with a gate that is armed early."""
    return write_run(root, name, **KEYS | {"spikes": QUICK, "seed": SEED} | keys)
