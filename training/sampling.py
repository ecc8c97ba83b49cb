"""A trained model in one process, and text continued by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from training.checkpoint import load_weights
from training.config import RunConfig, recorded
from training.data import Source
from training.errors import TrainingError
from training.model import Decoder
from training.samples.order import permute, round_keys
from training.verify import find, read_record
from training.vocabulary import Vocabulary


@dataclass(frozen=True)
class OpenedRun:
    """A run's model with the weights of one checkpoint, on the CPU in float32."""

    config: RunConfig
    vocabulary: Vocabulary
    model: Decoder
    path: Path
    """The checkpoint."""
    identity: str


def open_model(folder: Path, step: int | None = None) -> OpenedRun:
    """Load the checkpoint `step` (default: the newest good one) of the run in `folder`.

    Raises TrainingError where nothing was trained there, or the checkpoint does not verify.
    """
    record = recorded(folder)
    if record is None:
        message = f"{folder} holds no run"
        raise TrainingError(message, hint="materialise checkpoints, or `gristmill train RUN.yaml`")
    places = folder / "checkpoints"
    found = find(places)
    path = found.path if step is None else places / f"step-{step}"
    if path is None or not path.is_dir():
        message = f"{places} has no good checkpoint{'' if step is None else f' of step {step}'}"
        raise TrainingError(message, hint="; ".join(found.skipped) or "train the run first")
    config = RunConfig(**record["config"])
    vocabulary = Vocabulary.open(config.tokenizer)
    model = Decoder(config.model, vocabulary.size, config.context)
    model.init_positions()
    load_weights(path, model)
    return OpenedRun(config, vocabulary, model.eval(), path, read_record(path)["identity"])


@torch.no_grad()
def continue_tokens(
    model: Decoder,
    prompt: Sequence[int],
    n_tokens: int,
    *,
    end_id: int | None,
    temperature: float = 0.8,
    seed: int = 0,
) -> list[int]:
    """Sample up to `n_tokens` ids after `prompt`, ending at `end_id`; a seed, one continuation.

    The whole context is computed anew for each token: meant for a few samples of a small model.
    """
    generator = torch.Generator().manual_seed(seed)
    context = model.cos.shape[0]
    ids = list(prompt)
    for _ in range(n_tokens):
        window = torch.tensor([ids[-context:]], device=model.cos.device)
        logits = model(window)[0, -1].float().cpu()
        if temperature <= 0:
            chosen = int(logits.argmax())
        else:
            weights = torch.softmax(logits / temperature, -1)
            chosen = int(torch.multinomial(weights, 1, generator=generator))
        if chosen == end_id:
            break
        ids.append(chosen)
    return ids[len(prompt) :]


def sample_continuations(
    model: Decoder,
    sources: Sequence[Source],
    vocabulary: Vocabulary,
    *,
    n: int = 3,
    prompt_tokens: int = 24,
    n_tokens: int = 60,
) -> list[dict[str, str]]:
    """Continue the beginnings of `n` held-out documents. It is crawl text: escape what is shown."""
    out = []
    long_enough = [
        (shard, int(document))
        for source in sources
        for shard in source.shards
        for document in np.flatnonzero(shard.lengths > prompt_tokens)
    ]
    keys = round_keys(0, "prompts", 0)
    for number in range(min(n, len(long_enough))):
        shard, document = long_enough[permute(number, len(long_enough), keys)]
        prompt = shard.document(document)[:prompt_tokens].tolist()
        ids = continue_tokens(model, prompt, n_tokens, end_id=vocabulary.end_id, seed=number)
        out.append({"prompt": vocabulary.text(prompt), "continuation": vocabulary.text(ids)})
    return out
