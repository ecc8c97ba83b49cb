from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from training.errors import RunConfigError
from training.watching.early import early_report, reference_file


def curve(steps: int = 400, *, seed: int = 0, **changes: Any) -> list[dict[str, Any]]:
    """A run as healthy ones are; `changes` map (step, line) to other values."""
    draw = random.Random(seed)
    lines = []
    for step in range(1, steps + 1):
        loss = 4 + 4 * math.exp(-step / 60) + draw.gauss(0, 0.02)
        line: dict[str, Any] = {
            "step": step,
            "tokens": 8192 * step,
            "loss": loss,
            "grad_norm": 0.5 + 2 * math.exp(-step / 40) + abs(draw.gauss(0, 0.03)),
            "entropy": loss - 0.1,
            "batch_entropy": 6.5,
            "skipped": 0.0,
        }
        if step % 10 == 0:
            line["update_ratio"] = 1.5e-3
        for key, change in changes.items():
            line[key] = change(step, line[key])
        lines.append(line)
    return lines


def verdict(lines: list[dict[str, Any]], check: str, **keys: Any) -> tuple[str | None, str | None]:
    """(verdict of one check, verdict of the report)."""
    report = early_report(lines, steps=1000, **keys)
    return next(c["verdict"] for c in report["checks"] if c["name"] == check), report["verdict"]


def test_a_healthy_run_passes_every_check() -> None:
    report = early_report(curve(), steps=1000, reference=curve(seed=1), name="before")
    assert report["verdict"] == "healthy"
    assert report["reasons"] == []
    assert {c["verdict"] for c in report["checks"]} == {"healthy"}
    assert report["steps"] == 400


def test_what_cannot_be_judged_gets_no_verdict() -> None:
    assert early_report([], steps=1000)["verdict"] is None
    assert verdict(curve(39), "loss")[0] is None
    assert verdict(curve(40), "loss")[0] == "healthy"
    assert verdict(curve(40), "unigram")[0] is None, "too few tokens to have learned"


def test_only_the_first_steps_count() -> None:
    late = curve(300, loss=lambda step, loss: loss * 3 if step > 200 else loss)
    assert early_report(late, steps=200)["verdict"] == "healthy"
    assert early_report(late, steps=300)["verdict"] == "stop"


def refusals(*suspects: int, first: int = 100, repeat: int = 0) -> list[dict[str, Any]]:
    """Reports of refused steps of 8 sequences, of which so many stood out."""
    found = {"tokens": repeat} if repeat else None
    return [
        {"step": first + n, "sequences": [{}] * 8, "suspects": list(range(k))}
        | {"longest_repeat": found}
        for n, k in enumerate(suspects)
    ]


@pytest.mark.parametrize(("n", "wanted"), [(0, "healthy"), (1, "healthy"), (4, "healthy"),
                                           (5, "stop")])  # fmt: skip
def test_skips_within_fifty_steps(n: int, wanted: str) -> None:
    lines = curve(skipped=lambda step, _: float(100 <= step < 100 + n))
    assert verdict(lines, "skips", spikes=refusals(*[1] * n)) == (wanted, wanted)


@pytest.mark.parametrize(
    ("spikes", "wanted"),
    [
        (refusals(1), "healthy"),
        (refusals(3), "healthy"),
        (refusals(4), "watch"),
        (refusals(0), "watch"),
        (refusals(0, repeat=63), "watch"),
        (refusals(0, repeat=64), "healthy"),
        (refusals(0) + refusals(1), "healthy"),  # a later report of the same step counts
        ([], "watch"),
        (refusals(1, first=99), "watch"),
    ],
)
def test_refused_data_are_no_reason_to_watch_and_other_skips_are(
    spikes: list[dict[str, Any]], wanted: str
) -> None:
    lines = curve(skipped=lambda step, _: float(step == 100))
    assert verdict(lines, "unexplained_skips", spikes=spikes) == (wanted, wanted)
    assert early_report(curve(), steps=1000, spikes=spikes)["verdict"] == "healthy"


def test_a_norm_that_was_refused_is_no_spike_of_the_run() -> None:
    lines = curve(grad_norm=lambda s, v: v * (40 if s == 300 else 1))
    assert verdict(lines, "gradient_spikes")[0] == "watch"
    lines[299]["skipped"] = 1.0
    assert verdict(lines, "gradient_spikes")[0] == "healthy"


@pytest.mark.parametrize(
    ("key", "name", "change", "wanted"),
    [
        ("grad_norm", "gradient_spikes", lambda s, v: v * (7 if s == 300 else 1), "healthy"),
        ("grad_norm", "gradient_spikes", lambda s, v: v * (12 if s == 300 else 1), "watch"),
        ("grad_norm", "gradient_trend", lambda s, v: v * (1.5 if s > 300 else 1), "healthy"),
        ("grad_norm", "gradient_trend", lambda s, v: v * (3 if s > 300 else 1), "watch"),
        ("grad_norm", "gradient_trend", lambda s, v: v * (30 if s > 300 else 1), "stop"),
        ("loss", "loss", lambda s, v: 8.0, "watch"),
        ("loss", "loss", lambda s, v: v + (5 if s > 350 else 0), "stop"),
        ("loss", "loss", lambda s, v: math.nan if s > 350 else v, "stop"),
        ("loss", "loss", lambda s, v: "nan" if s > 350 else v, "stop"),
        ("entropy", "entropy", lambda s, v: v * 0.8, "healthy"),
        ("entropy", "entropy", lambda s, v: v * 0.5, "watch"),
        ("entropy", "entropy", lambda s, v: v * 0.1, "stop"),
        ("batch_entropy", "unigram", lambda s, v: 4.3, "healthy"),
        ("batch_entropy", "unigram", lambda s, v: 4.08, "watch"),
        ("batch_entropy", "unigram", lambda s, v: 3.9, "stop"),
    ],
)
def test_each_check_has_its_bounds(key: str, name: str, change: Any, wanted: str) -> None:
    lines = curve(**{key: change})
    assert verdict(lines, name)[0] == wanted
    if wanted == "stop":
        assert verdict(lines, name)[1] == "stop"


def test_held_out_text_counts_before_the_entropy_of_the_batch() -> None:
    lines = curve(batch_entropy=lambda s, v: 3.0)
    assert verdict(lines, "unigram")[0] == "stop"
    lines[-1] |= {"held_out_bits_per_byte": 1.5, "unigram_bits_per_byte": 3.0}
    assert verdict(lines, "unigram")[0] == "healthy"


def test_refused_steps_do_not_count_against_a_reference() -> None:
    lines = curve(loss=lambda s, v: v * (4 if s % 10 == 0 else 1))
    for line in lines[9::10]:
        line["skipped"] = 1.0
    assert verdict(lines, "reference", reference=curve(seed=1), name="other")[0] == "healthy"


@pytest.mark.parametrize(("ratio", "wanted"), [(2e-2, "healthy"), (5e-2, "watch"), (1e-5, "watch")])
def test_updates_are_near_a_thousandth_of_the_weights(ratio: float, wanted: str) -> None:
    lines = curve()
    for line in lines:
        if "update_ratio" in line:
            line["update_ratio"] = ratio
    assert verdict(lines, "updates")[0] == wanted


@pytest.mark.parametrize(
    ("factor", "wanted"), [(1.04, "healthy"), (1.06, "watch"), (1.3, "stop"), (0.5, "healthy")]
)
def test_the_reference_is_met_at_equal_tokens(factor: float, wanted: str) -> None:
    reference = [dict(line, tokens=line["tokens"] // 2) for line in curve(800, seed=2)]
    ours = [dict(line, loss=line["loss"] * factor) for line in reference[1::2]]
    for line in ours[-1:]:
        assert line["tokens"] == reference[-1]["tokens"]
    assert verdict(ours, "reference", reference=reference, name="other")[0] == wanted
    short = reference[:100]
    assert verdict(ours, "reference", reference=short, name="other")[0] is None


def test_a_reference_that_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "good" / "metrics.jsonl").touch()
    assert reference_file(tmp_path, "good").name == "metrics.jsonl"
    with pytest.raises(RunConfigError, match=r"watch\.reference is 'bad'") as caught:
        reference_file(tmp_path, "bad")
    assert "there: good" in str(caught.value)
