"""Where the weights of a run come from: new, another run, or a model from outside."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from training.checkpoint import Checkpoints, load_weights
from training.config import RunConfig
from training.errors import TrainingError
from training.hf_import import load_hf
from training.hf_layout import check_hf
from training.verify import find, read_record

STAMPS = ("configuration", "tokenizer", "data")


def start_weights(
    config: RunConfig,
    vocab_size: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    checkpoints: Checkpoints,
) -> None:
    """Give a new run the weights it starts from, and its parent's moments if it takes them over.

    New weights are there already. TrainingError where those from elsewhere do not fit.
    """
    if config.weights is not None:
        check_hf(config.weights, config.model, vocab_size, config.tokenizer)
        load_hf(config.weights, model)
    if config.parent is None:
        return
    path = parent_of(config)
    load_weights(path, model, no_dist=False)
    if "optimizer" in config.from_parent:
        checkpoints.load(path, model, optimizer, STAMPS)


def parent_of(config: RunConfig) -> Path:
    """The checkpoint folder that `parent: name@step` names; TrainingError where it is not there."""
    name, _, step = str(config.parent).partition("@")
    folder = config.parent_root / name / "checkpoints"
    path = find(folder).path if step == "latest" else folder / f"step-{step}"
    if path is None or not path.is_dir():
        message = f"parent {config.parent}: {folder} holds no such checkpoint"
        there = ", ".join(sorted(p.name for p in folder.glob("step-*"))) or "none"
        raise TrainingError(message, hint=f"there: {there}")
    return path


def samples_of_parent(config: RunConfig) -> int:
    """Samples that the parent had gone through, where the run goes on behind them; else 0."""
    if config.parent is None or "samples" not in config.from_parent:
        return 0
    return int(read_record(parent_of(config))["progress"]["next_sample"])


def what_changed(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, list[str]]:
    """Name -> [hash in the checkpoint, hash of this run], of all that differ."""
    return {k: [str(before.get(k)), now[k]] for k in now if before.get(k) != now[k]}
