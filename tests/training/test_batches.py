"""The same global batches at 1, 2 and 4 gloo ranks, after any resume and at any number of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.miniature import ROOT, write_run
from training.batches import batch_hash, main
from training.errors import TrainingError
from training.spikes.ledger import open_ledger

RAMP = [{"until_tokens": 256, "global_batch": 4}]
PHASES = [
    {"until_tokens": 600, "weights": {"web": 3, "code": 1}},
    {"until_tokens": 900, "weights": {"web": 1, "code": 1}},
]


def torchrun(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={ranks}", "-m", "training.batches", *arguments]
    env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A ramp, a change of weights in a batch, a range left out in the middle of one, two epochs."""
    path = write_run(tmp_path, global_batch=8, batch_ramp=RAMP, phases=PHASES, steps=30)
    event = {"kind": "leave_out", "step": 3, "from_sample": 18, "to_sample": 25}
    open_ledger(tmp_path / "checkpoints" / "mini").enter(event)
    return path


def shown(text: str) -> dict[int, list[str]]:
    """Step -> the hashes in its line of the table."""
    rows = [line.split() for line in text.splitlines()[1:]]
    return {int(row[0]): row[3:] for row in rows}


@pytest.mark.slow
def test_gloo_ranks_read_the_same_global_batches(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = torchrun(4, str(run), "--steps", "1:25")
    assert done.returncode == 0, done.stderr
    found = shown(done.stdout)
    assert found.keys() == set(range(1, 26))
    assert all(len(hashes) == 3 and len(set(hashes)) == 1 for hashes in found.values())
    assert len({hashes[0] for hashes in found.values()}) == 25
    # started at step 13, by another number of processes
    later = torchrun(2, str(run), "--steps", "13:25", "--ranks", "2")
    assert later.returncode == 0, later.stderr
    assert {step: hashes[:1] for step, hashes in found.items() if step > 12} == shown(later.stdout)
    assert main([str(run), "--steps", "1:25"]) == 0
    assert shown(capsys.readouterr().out) == found


def test_one_process_reads_the_shares_of_all_ranks(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(run), "--steps", "1:6", "--ranks", "1,2,4"]) == 0
    text = capsys.readouterr().out
    assert all(len(set(hashes)) == 1 for hashes in shown(text).values())
    assert "16..30" in text, "samples 18 to 24 are left out"
    assert main([str(run), "--steps", "1:6", "--ranks", "1,3"]) == 2
    assert "cannot be shared by 3 processes" in capsys.readouterr().err


def test_shares_that_are_not_the_whole_batch_are_found() -> None:
    parts = [{0: "a", 1: "b"}, {2: "c"}]
    assert batch_hash(parts, range(3)) == batch_hash([{2: "c", 0: "a"}, {1: "b"}], range(3))
    assert batch_hash(parts, range(3)) != batch_hash([{0: "a", 1: "b"}, {2: "d"}], range(3))
    for wrong in ([*parts, {2: "c"}], parts[:1]):
        with pytest.raises(TrainingError, match="the shares hold samples"):
            batch_hash(wrong, range(3))
