"""A process group of one, in the test's own process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch.distributed as dist

from training.config import load_run
from training.plan import open_data
from training.trainer import Trainer
from training.vocabulary import Vocabulary
from training.world import World, join


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("MASTER_ADDR", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    yield join("cpu", 60)
    dist.destroy_process_group()


@pytest.fixture
def trainer_of(world: World) -> Any:
    """run file -> a Trainer of this one process."""

    def make(path: Any) -> Trainer:
        config = load_run(path)
        vocabulary = Vocabulary.open(config.tokenizer)
        return Trainer(config, world, vocabulary, open_data(config, vocabulary))

    return make
