from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pytest

from training.settings.spikes import SpikeConfig
from training.spikes.rewind import Ladder, Rewind, latest_start, too_many


def ladder(**keys: Any) -> Ladder:
    return Ladder(SpikeConfig(**keys))


def climb(one: Ladder, losses: list[float], refused: Collection[int] = (), start: int = 1) -> Any:
    """(step, verdict) of the first verdict over these losses, or None."""
    for step, loss in enumerate(losses, start):
        if (found := one.observe(step, loss, step in refused)) is not None:
            return step, found
    return None


def test_five_refused_steps_among_fifty_take_the_run_back() -> None:
    step, found = climb(ladder(), [3.0] * 400, {300, 310, 320, 330, 349})
    assert (step, found.first_bad, found.spike) == (349, 300, 349)
    assert "5 steps from 300 to 349 were refused" in found.reason
    assert climb(ladder(), [3.0] * 400, {300, 310, 320, 330, 350}) is None, "51 steps"
    assert climb(ladder(), [3.0] * 400, {300, 310, 320, 330}) is None
    assert climb(ladder(rewind=False), [3.0] * 400, {300, 310, 320, 330, 349}) is None


def test_a_loss_that_stays_high_takes_the_run_back_to_before_its_rise() -> None:
    step, found = climb(ladder(), [3.0] * 300 + [3.3] * 300)
    # 0.3 * (1 - 0.98^n) > 0.1 from the 21st value on, for 100 steps
    assert found.first_bad == found.spike == 321
    assert step == 420
    assert "was 3.000" in found.reason


def test_a_small_or_short_rise_or_one_huge_value_is_no_reason() -> None:
    assert climb(ladder(), [3.0] * 300 + [3.09] * 400) is None
    assert climb(ladder(), [3.0] * 300 + [3.3] * 60 + [2.9] * 300) is None
    assert climb(ladder(), [3.0] * 300 + [1e6] + [3.0] * 300) is None, "it moves the mean by 0.02"


def test_other_data_have_another_loss() -> None:
    one = ladder()
    assert climb(one, [3.0] * 300) is None
    for step in range(301, 700):
        assert one.observe(step, 4.0, refused=False, phase=1) is None


def test_its_memory_goes_through_a_checkpoint() -> None:
    losses, refused = [3.0] * 300 + [3.3] * 300, {100, 500, 501}
    whole = climb(ladder(), losses, refused)
    first = ladder()
    assert climb(first, losses[:350], refused) is None
    second = ladder()
    second.restore(json.loads(json.dumps(first.state())))
    assert climb(second, losses[350:], refused, start=351) == whole


@pytest.mark.parametrize(("steps", "expected"), [([100, 200], False), ([100, 200, 300], True)])
def test_three_rewinds_in_ten_thousand_steps_are_the_most(steps: list[int], expected: bool) -> None:
    settings = SpikeConfig()
    events = [{"step": step} for step in steps]
    assert too_many(settings, events, 400) is expected
    assert not too_many(settings, events, 10_100), "the first no longer counts"


def test_the_checkpoint_lies_a_hundred_steps_before_the_first_bad_one() -> None:
    assert latest_start(SpikeConfig(), Rewind(300, 349, "")) == 200
