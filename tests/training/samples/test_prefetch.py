"""Reading ahead: the same batches as without it, whatever is asked for next."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from tests.training.miniature import write_run
from training.config import load_run
from training.data import Batch, Loader
from training.plan import open_data
from training.samples.course import Course
from training.samples.prefetch import Prefetch
from training.shards import ShardError
from training.vocabulary import Vocabulary


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path)


@pytest.fixture
def loader(run: Path) -> Loader:
    config = load_run(run)
    return open_data(config, Vocabulary.open(config.tokenizer)).loader


def same(one: Batch, other: Batch) -> bool:
    return one.checksum == other.checksum and np.array_equal(one.targets, other.targets)


def test_batches_are_those_of_the_loader_also_after_a_rewind(run: Path, loader: Loader) -> None:
    before = Course(load_run(run))
    after = Course(load_run(run), [(before.samples_until(2), before.samples_until(3))])
    prefetch = Prefetch(loader, rank=1, world=2)
    for course, step in [
        (before, 1),
        (before, 2),
        (before, 3),
        (after, 3),
        (after, 4),
        (before, 1),
    ]:
        indices = course.indices(step)
        batch = prefetch.batch(indices, course.indices(step + 1))
        assert same(batch, loader.batch(indices, 1, 2))
    prefetch.close()


class Broken(Loader):
    """A loader of which some samples cannot be read."""

    threads: list[str]

    def batch(self, indices: object, rank: int = 0, world: int = 1) -> Batch:
        self.threads.append(threading.current_thread().name)
        if indices == range(4, 8):
            raise ShardError("the file is gone")
        return super().batch(indices, rank, world)  # type: ignore[arg-type]


def test_an_error_is_raised_by_the_step_that_wants_the_batch_and_nothing_is_left(
    loader: Loader,
) -> None:
    broken = Broken(loader.sources, loader.order)
    broken.threads = []
    prefetch = Prefetch(broken)
    prefetch.batch(range(4), range(4, 8))
    with pytest.raises(ShardError, match="the file is gone"):
        prefetch.batch(range(4, 8), range(8, 12))
    prefetch.batch(range(8, 12), range(12, 16))
    prefetch.batch(range(12, 16))
    names = [name.partition("_")[0] for name in broken.threads]
    assert names == ["MainThread", "prefetch", "MainThread", "prefetch"]
    prefetch.close()
    assert not any(t.name.startswith("prefetch") for t in threading.enumerate())
