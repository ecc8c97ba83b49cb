from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.miniature import write_run
from training.checkpoint import identity_of, state_of
from training.errors import TrainingError
from training.norms import gradient_norm


def poison(trainer: Any, value: float) -> Any:
    """Put one bad value into a gradient of the next backward pass."""
    parameter = trainer.model.layers[0].mlp.up_proj.weight

    def spoil(p: torch.nn.Parameter) -> None:
        assert p.grad is not None
        p.grad.to_local().view(-1)[3] = value

    return parameter.register_post_accumulate_grad_hook(spoil)


@pytest.mark.shared
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_bad_gradient_changes_nothing_and_training_goes_on(
    shared: Path, tmp_path: Path, trainer_of: Any, value: float
) -> None:
    case = json.loads((shared / "cases/training/bad-gradient.json").read_text())
    trainer = trainer_of(write_run(tmp_path, clip=case["clip"]))
    skipped = []
    identities = [identity_of(state_of(trainer.model, trainer.optimizer))]
    for step in range(1, 10):
        hook = poison(trainer, value) if step == 7 else None
        values, _ = trainer.train_step(False)
        trainer.advance()
        if hook:
            hook.remove()
        if values["skipped"]:
            skipped.append(step)
        trainer.guard.check(step)
        identities.append(identity_of(state_of(trainer.model, trainer.optimizer)))
    assert skipped == [7]
    assert identities[7] == identities[6], "weights and optimiser as before the step"
    assert len(set(identities)) == 9, "every other step moved them"
    assert int(trainer.guard.in_row) == 0


def test_too_many_skips_in_a_row_end_the_run(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trainer_of(write_run(tmp_path, max_skips=2))
    poison(trainer, float("nan"))
    trainer.train_step(False)
    trainer.guard.check(1)
    trainer.train_step(False)
    with pytest.raises(TrainingError, match="2 steps in a row up to step 2"):
        trainer.guard.check(2)


def test_clipping_bounds_the_gradient(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trainer_of(write_run(tmp_path, clip=0.01))
    values, _ = trainer.train_step(False)
    assert float(values["grad_norm"]) > 0.1, "the norm before clipping is what is logged"
    assert float(gradient_norm(trainer.model.parameters(), trainer.world)) == pytest.approx(
        0.01, rel=1e-3
    )
