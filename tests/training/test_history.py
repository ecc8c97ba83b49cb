"""Going back, leaving out, quarantine, and runs that start from others: the program in one process.

A group of one process serves a whole test, so that runs of some seconds need no start of their own.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.training.miniature import lines, result, write_run
from tests.training.planted import BACK, plant, planted_run, rows_at
from training import train
from training.config import check_same_run, load_run
from training.errors import QuarantineError, RunConfigError, TrainingError
from training.ranks.process import StopRequest
from training.spikes.ledger import read_ledger
from training.verify import complete_steps, step_of
from training.world import World


@pytest.fixture
def run_here(world: World) -> Iterator[Any]:
    """Run a run file to its end, as `training.train` does."""

    def run(path: Path) -> None:
        config = load_run(path)
        check_same_run(config)
        train.train(config, world, StopRequest(20))

    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


def out(run: Path) -> Path:
    return run.parents[1] / "checkpoints" / run.stem


def edit(run: Path, **keys: Any) -> Path:
    run.write_text(yaml.safe_dump(yaml.safe_load(run.read_text()) | keys))
    return run


def test_two_spikes_take_the_run_back_and_their_samples_are_left_out(
    tmp_path: Path, run_here: Any
) -> None:
    plant(tmp_path, rows_at(30, 33))
    run = planted_run(tmp_path, "run", steps=50, spikes=BACK)
    run_here(run)
    ledger = read_ledger(out(run))
    assert [event["step"] for event in ledger.of("skip")] == [30, 33]
    [back] = ledger.rewinds
    assert (back["step"], back["first_bad"], back["to_step"]) == (33, 30, 20)
    assert (back["from_sample"], back["to_sample"]) == (20 * 8, 38 * 8)
    found = lines(run)
    assert [line["step"] for line in found] == list(range(1, 51)), "one line a step"
    assert sum(line["skipped"] for line in found) == 0, "of the history that counts"
    kept = (out(run) / "metrics-before-rewind-1.jsonl").read_text().splitlines()
    before = [json.loads(line) for line in kept]
    assert [line["step"] for line in before] == list(range(21, 34))
    assert before[0]["batch_checksum"] != found[20]["batch_checksum"]
    assert result(run)["rewinds"] == 1
    assert result(run)["status"] == "complete"
    assert [step_of(p) for p in complete_steps(out(run) / "checkpoints")] == [50, 40, 30, 20, 10]


def test_after_three_rewinds_the_run_ends(tmp_path: Path, run_here: Any) -> None:
    plant(tmp_path, rows_at(30, 33))
    run = planted_run(tmp_path, "run", steps=50, spikes=BACK | {"rewinds": 0})
    with pytest.raises(TrainingError, match="2 steps from 30 to 33 were refused"):
        run_here(run)


def test_without_a_checkpoint_old_enough_the_run_goes_on(tmp_path: Path, run_here: Any) -> None:
    plant(tmp_path, rows_at(30, 33))
    run = planted_run(tmp_path, "run", steps=40, checkpoint_every=100, spikes=BACK)
    run_here(run)
    assert result(run)["skipped_steps"] == [30, 33]
    assert result(run)["rewinds"] == 0


def test_the_same_batch_again_under_other_weights_is_quarantined(
    tmp_path: Path, run_here: Any
) -> None:
    [document] = rows_at(30)
    plant(tmp_path, [document])
    run = planted_run(tmp_path, "run", steps=50, stop_after=32)
    run_here(run)
    for step in (30, 32):
        shutil.rmtree(out(run) / "checkpoints" / f"step-{step}")
    run_here(run)
    assert len(read_ledger(out(run)).events) == 1, "done again after a crash: nothing new"
    for step in (30, 32):
        shutil.rmtree(out(run) / "checkpoints" / f"step-{step}")
    edit(run, lr=2e-3, stop_after=None)
    with pytest.raises(RunConfigError, match="started with another configuration"):
        run_here(run)
    edit(run, accept_change=["configuration"])
    for _ in range(2):
        with pytest.raises(QuarantineError, match="samples 232 to 240") as caught:
            run_here(run)
        assert caught.value.exit_code == 4
    ledger = read_ledger(out(run))
    [event] = ledger.of("quarantine")
    assert event["rows"] == [["web", document]]
    assert ["web-0", document] in event["documents"]
    assert [e["kind"] for e in ledger.events] == ["skip", "accept", "skip", "quarantine"]
    edit(run, accept_change=["configuration", "quarantine"])
    run_here(run)
    assert result(run)["status"] == "complete"
    assert read_ledger(out(run)).of("leave_out")[0]["from_sample"] == 232
    assert sum(line["skipped"] for line in lines(run)) == 0, "left out at its second coming"


def test_annealing_goes_on_behind_its_parent(
    tmp_path: Path, run_here: Any, trainer_of: Any
) -> None:
    write_run(tmp_path)
    parent = write_run(tmp_path, "stable", steps=40, stop_after=20, eval_every=0, seed=5)
    run_here(parent)
    whole = write_run(tmp_path, "whole", steps=40, eval_every=0, seed=5)
    run_here(whole)
    phases = [
        {"until_tokens": 20 * 4 * 32, "weights": {"web": 1, "code": 1}},
        {"until_tokens": 10**6, "weights": {"code": 1}},
    ]
    anneal = write_run(
        tmp_path, "anneal", steps=10, eval_every=0, seed=5, schedule="linear", warmup_steps=0,
        parent="stable@20", from_parent=["optimizer", "samples"], phases=phases,
    )  # fmt: skip
    trainer = trainer_of(anneal)
    trainer.resume()
    assert trainer.course.indices(1)[0] == 80, "behind the samples of the parent"
    order = trainer.data.loader.order
    assert {order[n].source for n in trainer.course.indices(1)} == {order.names.index("code")}
    theirs = trainer_of(parent)
    theirs.resume()
    ours, before = trainer.optimizer.state, theirs.optimizer.state
    for a, b in zip(trainer.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(a.full_tensor(), b.full_tensor())
        assert torch.equal(ours[a]["exp_avg"].full_tensor(), before[b]["exp_avg"].full_tensor())
    run_here(anneal)
    rates = [line["lr"] for line in lines(anneal)]
    assert rates == pytest.approx([3e-3 * (1 - n / 11) for n in range(1, 11)])
    edit(anneal, steps=12)
    shutil.rmtree(out(parent))
    with pytest.raises(RunConfigError, match="steps: 10 is now 12"):
        run_here(anneal)
    run_here(edit(anneal, steps=10))  # done, and its parent is not needed any more


def test_continued_pretraining_starts_from_a_model_of_another_layout(
    tmp_path: Path, run_here: Any, trainer_of: Any
) -> None:
    from training.export import export
    from training.sampling import open_model

    first = write_run(tmp_path, "first", steps=5, eval_every=0)
    run_here(first)
    export(open_model(out(first)), tmp_path / "hf")
    run = write_run(tmp_path, "more", steps=5, eval_every=0, lr=1e-4, weights=str(tmp_path / "hf"))
    trainer, theirs = trainer_of(run), trainer_of(first)
    theirs.resume()
    assert trainer.resume() == [f"started from the weights in {tmp_path / 'hf'}"]
    for a, b in zip(trainer.model.parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(a.full_tensor(), b.full_tensor())
    run_here(run)
    with pytest.raises(RunConfigError, match="give one of them"):
        load_run(edit(run, parent="first@5"))
    with pytest.raises(RunConfigError, match="is no folder of a Hugging Face model"):
        load_run(write_run(tmp_path, "none", weights="nowhere"))
    other = write_run(tmp_path, "other", weights=str(tmp_path / "hf"), model={"layers": 3})
    with pytest.raises(TrainingError, match="layers"):
        trainer_of(other).resume()
