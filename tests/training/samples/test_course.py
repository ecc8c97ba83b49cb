"""The course of samples: against a plain loop over steps and samples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.miniature import write_run
from training.config import load_run
from training.errors import RunConfigError, TrainingError
from training.samples.course import Course
from training.settings.data import RampStage

CONTEXT = 8
Ranges = list[tuple[int, int]]


def config_of(ramp: list[tuple[int, int]], batch: int) -> Any:
    stages = [RampStage(until_tokens=tokens, global_batch=size) for tokens, size in ramp]
    return SimpleNamespace(batch_ramp=stages, global_batch=batch, context=CONTEXT)


def plainly(config: Any, left_out: Ranges, steps: int) -> list[list[int]]:
    """What the steps take, one sample after the other."""
    batches, taken, sample = [], 0, 0
    for _ in range(steps):
        sizes = [s.global_batch for s in config.batch_ramp if taken * CONTEXT < s.until_tokens]
        batch: list[int] = []
        while len(batch) < (sizes[0] if sizes else config.global_batch):
            if not any(begin <= sample < end for begin, end in left_out):
                batch.append(sample)
            sample += 1
        taken += len(batch)
        batches.append(batch)
    return batches


RAMPS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 6)), max_size=3).map(
    lambda ramp: sorted({tokens: size for tokens, size in ramp}.items())
)
LEFT_OUT = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 9)).map(lambda r: (r[0], r[0] + r[1])), max_size=4
)


@given(RAMPS, st.integers(1, 7), LEFT_OUT)
def test_steps_take_the_next_samples_that_are_not_left_out(
    ramp: list[tuple[int, int]], batch: int, left_out: Ranges
) -> None:
    config = config_of(ramp, batch)
    course = Course(config, left_out)
    taken = 0
    for step, wanted in enumerate(plainly(config, left_out, 15), 1):
        assert list(course.indices(step)) == wanted
        assert course.batch_size(step) == len(wanted)
        taken += len(wanted)
        assert course.tokens_until(step) == taken * CONTEXT
        assert course.samples_until(step) == wanted[-1] + 1
    assert course.samples_until(0) == course.tokens_until(0) == 0


@given(LEFT_OUT, st.integers(0, 12), st.integers(1, 20))
def test_what_is_left_out_later_does_not_touch_earlier_steps(
    before: Ranges, step: int, length: int
) -> None:
    config = config_of([(64, 2)], 4)
    course = Course(config, before)
    begin = course.samples_until(step)
    grown = Course(config, [*before, (begin, begin + length)])
    assert [list(grown.indices(s)) for s in range(1, step + 1)] == [
        list(course.indices(s)) for s in range(1, step + 1)
    ]
    assert grown.indices(step + 1)[0] >= begin + length


def test_a_long_run_costs_no_more_than_a_short_one() -> None:
    course = Course(config_of([(2**40, 512)], 2048), [(n * 10**6, n * 10**6 + 7) for n in range(9)])
    step = 10**9
    assert len(course.indices(step)) == course.batch_size(step) == 2048
    assert course.indices(step)[-1] + 1 == course.samples_until(step)


@pytest.mark.parametrize("bad", [(3, 3), (5, 4), (-1, 2)])
def test_a_range_that_is_none_is_refused(bad: tuple[int, int]) -> None:
    with pytest.raises(TrainingError, match="cannot be left out"):
        Course(config_of([], 4), [bad])


def test_a_run_file_states_the_ramp(tmp_path: Path) -> None:
    ramp = [{"until_tokens": 128, "global_batch": 2}, {"until_tokens": 512, "global_batch": 4}]
    course = Course(load_run(write_run(tmp_path, batch_ramp=ramp, global_batch=8)))
    assert [course.batch_size(step) for step in range(1, 8)] == [2, 2, 4, 4, 4, 8, 8]


def test_a_ramp_that_goes_back_or_does_not_divide_is_refused(tmp_path: Path) -> None:
    back = [{"until_tokens": 128, "global_batch": 2}, {"until_tokens": 128, "global_batch": 4}]
    with pytest.raises(RunConfigError, match=r"batch_ramp.1.until_tokens 128 must be above 128"):
        load_run(write_run(tmp_path, batch_ramp=back))
    odd = [{"until_tokens": 128, "global_batch": 3}]
    run = write_run(tmp_path, batch_ramp=odd, nproc_per_node=2)
    with pytest.raises(RunConfigError, match="global_batch 3 cannot be shared by 2 processes"):
        load_run(run)
    even = [{"until_tokens": 128, "global_batch": 2}]
    assert load_run(write_run(tmp_path, batch_ramp=even, nproc_per_node=2)).accumulation(2)
