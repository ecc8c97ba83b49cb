"""A tokenizer and shards small enough that a training run takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from training.shards import write_shard
from training.vocabulary import byte_characters

ROOT = Path(__file__).resolve().parents[2]
VOCABULARY = 300
TINY = {
    "model": {"layers": 2, "dim": 32, "heads": 2, "kv_heads": 1, "ffn": 64},
    "context": 32,
    "global_batch": 4,
    "micro_batch": 2,
    "lr": 3e-3,
    "eval_rows": 8,
    "log_every": 1,
}


def write_tokenizer(path: Path) -> Path:
    """A byte-level tokenizer.json: `<|endoftext|>`, 256 bytes, 43 merges."""
    vocab = {"<|endoftext|>": 0}
    characters = list(byte_characters())
    vocab |= {c: i + 1 for i, c in enumerate(characters)}
    pairs = [(a, b) for a in "etaoinsh" for b in "etaoinsh"][: VOCABULARY - 257]
    vocab |= {a + b: 257 + i for i, (a, b) in enumerate(pairs)}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 0,
                "content": "<|endoftext|>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {
            "type": "ByteLevel",
            "add_prefix_space": True,
            "trim_offsets": True,
            "use_regex": True,
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(pair) for pair in pairs],
        },
    }
    path.write_text(json.dumps(content))
    return path


def write_documents(
    prefix: Path, n_documents: int, *, seed: int = 0, longest: int = 60, **sidecar: Any
) -> Path:
    """A shard of random, learnable documents: each a walk in which a token has few successors."""
    draw = np.random.default_rng(seed)
    documents = []
    for length in draw.integers(5, longest, n_documents):
        steps = draw.integers(0, 3, length)
        ids = (np.cumsum(steps * steps) + draw.integers(0, 40)) % (VOCABULARY - 1) + 1
        documents.append(np.append(ids, 0))
    lengths = np.array([len(d) for d in documents])
    write_shard(prefix, np.concatenate(documents), lengths, vocab_size=VOCABULARY, sidecar=sidecar)
    return prefix


def write_run(root: Path, name: str = "mini", **keys: Any) -> Path:
    """A storage root with tokenizer, two training shards, one held-out shard and a run file."""
    root.mkdir(parents=True, exist_ok=True)
    if not (root / "tokenizer.json").exists():
        write_tokenizer(root / "tokenizer.json")
        write_documents(root / "shards" / "web-0", 120, seed=1, source="web", split="train")
        write_documents(root / "shards" / "code-0", 60, seed=2, source="code", split="train")
        write_documents(root / "shards" / "web-held", 30, seed=3, source="web", split="held_out")
    content = TINY | {"shards": "shards", "tokenizer": "tokenizer.json", "steps": 10, "seed": 7}
    path = root / "runs" / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content | keys))
    return path


def torchrun(
    run: Path, world: int = 2, module: str = "training.train", **environment: str
) -> subprocess.CompletedProcess[str]:
    """The training program, or another one, on `world` gloo processes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world}", "-m", module, str(run)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "MLFLOW_"))}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )


def program(run: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The training program as one process, without an agent."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "MLFLOW_"))}
    env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-m", "training.train", str(run)]
    return subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )


def lines(run: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` of a run."""
    path = run.parents[1] / "checkpoints" / run.stem / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def result(run: Path) -> dict[str, Any]:
    """`result.json` of a run."""
    path = run.parents[1] / "checkpoints" / run.stem / "result.json"
    return dict(json.loads(path.read_text()))
