"""What is shown of a run's steps, also where their numbers are odd."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from assets.model_display import CURVE_ROWS, early_check, loss_curve, numbers_of, short


def lines(*losses: Any) -> list[dict[str, Any]]:
    return [{"step": n, "loss": loss, "skipped": 0.0} for n, loss in enumerate(losses, 1)]


def shown(*losses: Any) -> list[tuple[Any, Any]]:
    return [(r.data["step"], r.data["loss"]) for r in loss_curve(lines(*losses)).records]


@pytest.mark.parametrize("steps", [1, 2, 19, 20, 21, 39, 40, 4000])
def test_first_and_last_step_are_shown_and_not_many_more(steps: int) -> None:
    found = shown(*[3.0] * steps)
    assert (found[0][0], found[-1][0]) == (1, steps)
    assert len(found) <= CURVE_ROWS + 1
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("odd", [math.nan, math.inf, "nan", "inf", "-inf"])
def test_a_loss_that_is_not_finite_has_no_bar(odd: float | str) -> None:
    records = loss_curve(lines(4.0, odd, 2.0)).records
    assert [str(r.data["loss"]) for r in records] == ["4.0", str(odd), "2.0"]
    assert [len(str(r.data[" "])) for r in records] == [24, 0, 12]


def test_runs_without_steps_and_without_loss() -> None:
    assert loss_curve([]).records == []
    assert shown(0.0) == [(1, 0.0)]


def test_a_refused_step_is_marked() -> None:
    found = lines(4.0, 9.0, 3.0)
    found[1]["skipped"] = 1.0
    assert [r.data[" "] for r in loss_curve(found).records][1] == "refused"


def test_numbers_are_short() -> None:
    assert (short(1.23456), short(12), short(math.nan), short(None)) == (1.235, 12, "nan", None)


def test_tokens_of_the_run_and_of_the_held_out_text_are_told_apart() -> None:
    held_out = {"bits_per_byte": 2.9, "tokens": 16_217}
    result = {"status": "complete", "tokens": 204_800, "loss": 6.590969, "parameters": 7,
              "active_parameters": 7, "held_out": held_out}  # fmt: skip
    assert numbers_of(result) == {
        "status": "complete", "tokens": 204_800, "loss": 6.591, "parameters": 7,
        "held_out_bits_per_byte": 2.9, "held_out_tokens": 16_217,
    }  # fmt: skip
    assert numbers_of(result | {"active_parameters": 3})["active_parameters"] == 3
    assert "held_out_tokens" not in numbers_of(result | {"held_out": None})


@pytest.mark.parametrize(
    ("verdict", "passed", "severity"),
    [
        ("healthy", True, "WARN"),
        ("watch", False, "WARN"),
        ("stop", False, "ERROR"),
        (None, True, "WARN"),
    ],
)
def test_the_early_verdict_is_a_check(
    tmp_path: Path, verdict: str | None, passed: bool, severity: str
) -> None:
    found = {"verdict": verdict, "reasons": ["norms rise"], "steps": 40, "of_steps": 1000}
    (tmp_path / "early_report.json").write_text(json.dumps(found))
    check = early_check(tmp_path)
    assert (check.passed, check.severity.name) == (passed, severity)
    assert "40 of the first 1000 steps: norms rise" in str(check.description)


def test_a_run_without_the_report_has_nothing_to_judge(tmp_path: Path) -> None:
    assert early_check(tmp_path).passed
