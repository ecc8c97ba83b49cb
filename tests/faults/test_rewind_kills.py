"""Killed anywhere in a rewind, or between a skip and its report: the same course afterwards."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.training.miniature import lines, program, result
from tests.training.planted import BACK, plant, planted_run, rows_at
from training.faults import POINTS
from training.spikes.ledger import read_ledger

pytestmark = pytest.mark.faults

WHERE = ("kind", "step", "to_step", "from_sample", "to_sample", "rewinds", "rows")
KEYS: dict[str, Any] = {"steps": 44, "spikes": BACK}


def course(run: Path) -> list[tuple[float, float]]:
    return [(line["batch_checksum"], line["loss"]) for line in lines(run)]


def told(run: Path) -> dict[str, Any]:
    """What must come out the same: ledger, reports, lines that a rewind took back."""
    out = run.parents[1] / "checkpoints" / run.stem
    before = (out / "metrics-before-rewind-1.jsonl").read_text().splitlines()
    return {
        "ledger": [{k: event.get(k) for k in WHERE} for event in read_ledger(out).events],
        "reports": sorted(path.name for path in (out / "spikes").iterdir()),
        "before": [json.loads(line)["step"] for line in before],
        "skipped": result(run)["skipped_steps"],
        "rewinds": result(run)["rewinds"],
    }


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rewind")
    plant(root, rows_at(30, 33))
    return root


@pytest.fixture(scope="module")
def whole(root: Path) -> Path:
    run = planted_run(root, "whole", **KEYS)
    done = program(run)
    assert done.returncode == 0, done.stderr
    return run


@pytest.mark.parametrize(
    "point", [p for p in POINTS if p.startswith(("training.rewind", "training.skip"))]
)
def test_killed_in_a_rewind_the_course_is_the_same(root: Path, whole: Path, point: str) -> None:
    run = planted_run(root, point.replace(".", "-"), **KEYS)
    killed = program(run, GRISTMILL_FAULT=point)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = program(run)
    assert done.returncode == 0, done.stderr
    ours, theirs = course(run), course(whole)
    assert [batch for batch, _ in ours] == [batch for batch, _ in theirs]
    assert [loss for _, loss in ours] == pytest.approx([loss for _, loss in theirs], rel=1e-5)
    assert told(run) == told(whole)
