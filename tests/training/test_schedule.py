from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.training.miniature import write_run
from training.config import RunConfig, load_run
from training.errors import RunConfigError
from training.schedule import learning_rate


def rates(path: Path, **keys: Any) -> list[float]:
    config = load_run(write_run(path, steps=100, lr=1.0, warmup_steps=10, **keys))
    return [learning_rate(step, config) for step in range(1, 101)]


def test_wsd_warms_up_stays_and_falls_over_the_last_fifth(tmp_path: Path) -> None:
    found = rates(tmp_path)
    assert found[:10] == pytest.approx([0.1 * n for n in range(1, 11)])
    assert found[9:80] == [1.0] * 71, "steps 10 to 80 are stable"
    steps = [a - b for a, b in pairwise(found[79:])]
    assert steps == pytest.approx([1 / 21] * 20), "a straight line"
    assert found[-1] == pytest.approx(1 / 21), "the last step still moves the weights"


@pytest.mark.parametrize(("schedule", "floor"), [("wsd", 0.0), ("cosine", 0.1), ("linear", 0.0)])
def test_each_schedule_falls_to_its_published_floor_or_the_given_one(
    tmp_path: Path, schedule: str, floor: float
) -> None:
    found = rates(tmp_path, schedule=schedule)
    assert found[9] == 1.0
    assert found[9:] == sorted(found[9:], reverse=True)
    assert floor < found[-1] < floor + 0.05
    assert 0.5 < rates(tmp_path, schedule=schedule, min_lr_ratio=0.5)[-1] < 0.55


def test_cosine_is_half_way_down_in_the_middle_of_its_decay(tmp_path: Path) -> None:
    config = load_run(
        write_run(tmp_path, steps=109, lr=1.0, warmup_steps=10, schedule="cosine", min_lr_ratio=0)
    )
    assert learning_rate(60, config) == pytest.approx(0.5)


def test_annealing_starts_at_the_full_rate_without_warm_up(tmp_path: Path) -> None:
    config = load_run(write_run(tmp_path, steps=9, lr=1.0, warmup_steps=0, schedule="linear"))
    found = [learning_rate(step, config) for step in range(1, 10)]
    assert found == pytest.approx([1 - n / 10 for n in range(1, 10)])


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"steps": 10, "warmup_steps": 10}, "warmup_steps 10 must be below steps 10"),
        (
            {"steps": 100, "warmup_steps": 81},
            "warmup_steps 81 and a decay of 20 steps (decay_share 0.2) are more than steps 100",
        ),
    ],
)
def test_a_run_shorter_than_its_schedule_is_refused(
    tmp_path: Path, keys: dict[str, Any], named: str
) -> None:
    with pytest.raises(RunConfigError) as caught:
        load_run(write_run(tmp_path, **keys))
    assert named in caught.value.message
    fits: RunConfig = load_run(write_run(tmp_path, **keys | {"warmup_steps": 8}))
    assert fits.warmup_steps == 8
