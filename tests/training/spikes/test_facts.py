"""A planted document, a NaN on one rank, and what the report says of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.miniature import (
    ROOT,
    VOCABULARY,
    lines,
    program,
    result,
    torchrun,
    write_run,
)
from tests.training.planted import N_DOCUMENTS, STUCK, plant, planted_run, rows_at
from training.settings.spikes import SpikeConfig
from training.spikes.facts import longest_run, sequence_losses, suspects
from training.spikes.ledger import read_ledger


def spikes(run: Path) -> list[dict[str, Any]]:
    folder = run.parents[1] / "checkpoints" / run.stem / "spikes"
    return [json.loads(path.read_text()) for path in sorted(folder.glob("step-*.json"))]


@pytest.mark.slow
def test_a_planted_document_is_skipped_and_named_and_does_no_harm(tmp_path: Path) -> None:
    plant(tmp_path / "clean")
    [document] = rows_at(60)
    plant(tmp_path / "planted", [document])
    clean = planted_run(tmp_path / "clean", "run")
    run = planted_run(tmp_path / "planted", "run")
    for path in (clean, run):
        done = program(path)
        assert done.returncode == 0, done.stderr
    assert result(clean)["skipped_steps"] == [], "no false alarm"
    assert result(run)["skipped_steps"] == [60]
    [report] = spikes(run)
    assert report["step"] == 60
    first = report["sequences"][0]
    assert [d["document"] for d in first["documents"]] == [document], "the highest loss comes first"
    assert first["documents"][0]["shard"] == "web-0"
    assert report["suspects"] == [first["index"]]
    repeat = report["longest_repeat"]
    assert (repeat["tokens"], repeat["period"], repeat["ids"]) == (31, 1, [STUCK])
    assert repeat["document"]["document"] == document
    assert [STUCK, 31] in report["new_tokens"]["ids"]
    assert report["duplicates"]["sequences"] == []
    last = [lines(path)[-1]["loss"] for path in (clean, run)]
    assert last[1] == pytest.approx(last[0], rel=0.01)
    [event] = read_ledger(run.parents[1] / "checkpoints" / "run").of("skip")
    assert event["rows"] == [["web", document]]


@pytest.mark.slow
def test_nan_on_one_rank_is_refused_by_all_and_nothing_moves(tmp_path: Path) -> None:
    run = write_run(tmp_path, "nan", steps=6, eval_every=0, checkpoint_every=3)
    script = tmp_path / "spoil.py"
    script.write_text(
        "import math, os, sys\n"
        "from training import gradients, train\n"
        "import training.parallel as p\n"
        "inner, calls = gradients.accumulate, []\n"
        "def spoiled(model, *a, **k):\n"
        "    calls.append(1)\n"
        "    bad = len(calls) == 4 and os.environ['RANK'] == '1'\n"
        "    factor = math.nan if bad else 1.0\n"
        "    hook = model.register_forward_hook(lambda m, i, out: out * factor)\n"
        "    try:\n"
        "        return inner(model, *a, **k)\n"
        "    finally:\n"
        "        hook.remove()\n"
        "p.accumulate = spoiled\n"
        "sys.exit(train.main(sys.argv[1:]))\n"
    )
    done = torchrun(run, 2, "spoil", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    assert done.returncode == 0, done.stderr
    assert result(run)["skipped_steps"] == [4]
    assert [line["skipped"] for line in lines(run)] == [0, 0, 0, 1, 0, 0]
    [report] = spikes(run)
    bad = [s["loss"] for s in report["sequences"]]
    assert bad[:2] == ["nan", "nan"], "the share of the rank that went wrong"
    assert all(isinstance(loss, float) for loss in bad[2:])
    assert "not finite" in report["reason"]


def test_which_sequences_stand_out() -> None:
    losses = sequence_losses(np.array([[30.0, 10], [31.0, 10], [29.0, 10], [0.0, 0], [90.0, 10]]))
    assert losses.tolist() == [3.0, 3.1, 2.9, 0.0, 9.0]
    settings = SpikeConfig()
    assert suspects(losses[[0, 1, 2, 4]], settings) == [3]
    assert suspects(losses[[0, 1, 2]], settings) == []
    assert suspects(np.array([3.0, np.nan, 3.1, np.inf]), settings) == [1, 3]
    assert suspects(np.array([np.nan, np.nan]), settings) == [0, 1]


def test_the_longest_run_stays_in_its_row() -> None:
    same = np.array([[0, 1, 1], [1, 1, 0], [0, 0, 0]], dtype=bool)
    assert longest_run(same) == (2, 0, 1)
    assert longest_run(~same) == (3, 2, 0)
    assert longest_run(np.zeros((2, 3), bool))[0] == 0


def test_duplicates_in_a_batch_are_named(tmp_path: Path, trainer_of: Any) -> None:
    plant(tmp_path, range(N_DOCUMENTS))
    trainer = trainer_of(planted_run(tmp_path, "run"))
    from training.spikes.facts import spike_report

    indices = trainer.course.indices(1)
    event = dict.fromkeys(("action", "loss", "grad_norm", "median", "limit", "reason"), 1.0)
    report = spike_report(
        event | {"step": 1, "suspects": []},
        trainer.data.loader,
        indices,
        np.ones(len(indices)),
        np.zeros(VOCABULARY, np.int32),
    )
    assert report["duplicates"]["sequences"] == [list(indices)]
    assert len(report["duplicates"]["documents"][0]) == 8
    assert report["new_tokens"]["number"] == 2
    assert report["batch_entropy"] == pytest.approx(0.139, abs=1e-3)
