from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.miniature import write_run


def steps(trainer: Any, n: int) -> list[tuple[float, float]]:
    """(loss, checksum of the batch) of n steps."""
    out = []
    for _ in range(n):
        values, _ = trainer.train_step(False)
        trainer.advance()
        out.append((float(values["loss"]), float(values["batch_checksum"])))
    return out


@pytest.mark.shared
def test_resume_is_exact_also_the_second_time(
    shared: Path, tmp_path: Path, trainer_of: Any
) -> None:
    case = json.loads((shared / "cases/training/resume-data.json").read_text())
    total, stop = case["steps"], case["stop_after"]
    whole = steps(trainer_of(write_run(tmp_path, "whole", steps=total, seed=case["seed"])), total)
    found = []
    for begin, n in ((0, stop), (stop, 2), (stop + 2, total - stop - 2)):
        trainer = trainer_of(write_run(tmp_path, "parts", steps=total, seed=case["seed"]))
        trainer.resume()
        assert trainer.step == begin
        found += steps(trainer, n)
        trainer.save()
        trainer.settle()
    assert [b for _, b in found] == [b for _, b in whole], "the same token batches"
    assert [a for a, _ in found] == pytest.approx([a for a, _ in whole], abs=1e-6)


def test_micro_batches_do_not_change_the_result(tmp_path: Path, trainer_of: Any) -> None:
    runs = [
        steps(trainer_of(write_run(tmp_path, f"m{size}", micro_batch=size)), 3)
        for size in (1, 2, 4)
    ]
    for other in runs[1:]:
        assert [a for a, _ in other] == pytest.approx([a for a, _ in runs[0]], rel=1e-5)


def test_the_loss_is_that_of_the_model_on_the_targets(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trainer_of(write_run(tmp_path))
    batch = trainer.data.loader.batch(trainer.course.indices(1))
    with torch.no_grad():
        logits = trainer.model(
            *(torch.from_numpy(a) for a in (batch.tokens, batch.positions, batch.documents))
        )
    rows = torch.log_softmax(logits.float(), -1)
    picked = rows.gather(-1, torch.from_numpy(batch.targets)[..., None])[..., 0]
    expected = -picked[torch.from_numpy(batch.mask)].mean()
    values, _ = trainer.train_step(False)
    assert float(values["loss"]) == pytest.approx(float(expected), rel=1e-6)
    assert float(values["targets"]) == batch.mask.sum()
    assert float(values["entropy"]) == pytest.approx(math.log(300), rel=0.01), "nothing learnt yet"
    assert 0 < float(values["batch_entropy"]) < math.log(300)


def test_bfloat16_stays_near_float32(tmp_path: Path, trainer_of: Any) -> None:
    full = steps(trainer_of(write_run(tmp_path, "f32")), 3)
    half = steps(trainer_of(write_run(tmp_path, "bf16", dtype="bfloat16")), 3)
    assert [a for a, _ in half] == pytest.approx([a for a, _ in full], rel=1e-2)


def test_held_out_bits_do_not_depend_on_batches(tmp_path: Path, trainer_of: Any) -> None:
    one = trainer_of(write_run(tmp_path, "one", micro_batch=1)).evaluate().total
    two = trainer_of(write_run(tmp_path, "two", micro_batch=4)).evaluate().total
    assert one.bits_per_byte == pytest.approx(two.bits_per_byte, rel=1e-6)
    assert one.tokens == two.tokens
    assert one.bits_per_byte > one.unigram_bits_per_byte, "nothing learnt yet"
