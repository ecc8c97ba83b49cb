from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.miniature import write_run
from training.errors import TrainingError
from training.guards import Guard
from training.layouts.norms import clip_gradients, gradient_norm, local
from training.saving.identity import identity_of
from training.saving.state import state_of
from training.settings.spikes import SpikeConfig

CPU = torch.device("cpu")


def guard(**keys: Any) -> Guard:
    return Guard(SpikeConfig(**keys), 10, CPU)


def refused(gate: Guard, losses: list[float] | torch.Tensor, norm: float = 1.0) -> list[int]:
    """Places of the losses that were refused, at the same gradient norm."""
    out = []
    for place, loss in enumerate(losses):
        found = gate.judge(torch.as_tensor(loss), torch.tensor(norm))
        if found.refused:
            out.append(place)
    return out


def level(n: int) -> list[float]:
    """Values around 3.2: median 3.2 and MAD 0.1 of any 65 or more, so the limit is 4.386."""
    return [3.0 + 0.1 * (place % 5) for place in range(n)]


def clean(n: int = 600, seed: int = 0) -> torch.Tensor:
    """A falling loss with noise: 3 nats, down by 0.3 in 600 steps, deviation 0.03."""
    draw = torch.Generator().manual_seed(seed)
    return 3 - torch.arange(n) * 5e-4 + torch.randn(n, generator=draw) * 0.03


@pytest.mark.parametrize("seed", range(5))
def test_no_clean_step_is_refused_and_every_spike_is(seed: int) -> None:
    assert refused(guard(), clean(seed=seed)) == []
    for bad, value in (([300], 8.0), ([300], 3.6), ([300, 301, 302, 320, 340], 8.0)):
        losses = clean(seed=seed)
        losses[bad] = value
        assert refused(guard(), losses) == bad
    losses = clean(seed=seed)
    losses[300] = math.nan
    assert refused(guard(), losses) == [300], "a NaN does not blind the gate for what follows"


def test_a_steep_start_and_a_low_loss_are_no_spikes() -> None:
    steep = 8 * torch.exp(-torch.arange(480) / 60) + 2 + torch.randn(480).abs() * 0.05
    assert refused(guard(), steep) == []
    losses = clean()
    losses[300] = 0.1
    assert refused(guard(), losses) == [], "one-sided"


def test_the_gate_is_armed_by_accepted_values_only() -> None:
    base = level(64)
    assert refused(guard(), [*base, 6.0]) == [64]
    assert refused(guard(), [*base[1:], 6.0]) == [], "63 values: less than 10 x the median"
    assert refused(guard(), [*base[1:], 33.0]) == [63], "more than 10 x the median"
    assert refused(guard(), [*base[1:], math.nan, 6.0]) == [63], "a refused one arms nothing"
    assert refused(guard(), [1e9]) == [], "nothing to compare the first with"
    assert refused(guard(), [math.inf]) == [0]


def test_the_limit_is_eight_deviations_or_two_percent() -> None:
    gate = guard()
    refused(gate, level(100))
    assert refused(gate, [4.38]) == []
    assert refused(gate, [4.39]) == [0]
    flat = guard()
    refused(flat, [3.0] * 80)
    assert refused(flat, [3.059]) == []
    assert refused(flat, [3.061]) == [0]


def test_norms_are_judged_like_losses_and_skip_off_leaves_what_is_finite() -> None:
    gate = guard()
    refused(gate, level(80))
    assert refused(gate, [3.0], norm=1.02) == []
    assert refused(gate, [3.0], norm=1.03) == [0]
    assert refused(gate, [3.0], norm=math.inf) == [0]
    off = guard(skip=False)
    refused(off, level(80))
    assert refused(off, [300.0, math.nan, 3.0]) == [1]


def test_norms_have_a_floor_of_their_own() -> None:
    gate = guard(norm_floor=6.0)
    refused(gate, level(100))
    assert refused(gate, [3.2], norm=6.9) == []
    assert refused(gate, [3.2], norm=7.1) == [0]
    assert refused(gate, [4.39]) == [0], "that of the loss is as before"


def test_what_stands_out_step_after_step_is_let_through_until_it_ends() -> None:
    gate = guard()
    refused(gate, level(100))
    assert refused(gate, [9.0, 9.0, 9.0, 9.0, 9.0, 3.2, 9.0]) == [0, 1, 2, 6]
    assert refused(gate, [math.nan] * 5) == [0, 1, 2, 3, 4], "never what is not finite"
    assert refused(guard(in_row=1), [*level(64), 9.0, 9.0]) == [64]


def test_set_back_forgets_the_level_of_the_data_before() -> None:
    gate = guard()
    refused(gate, level(80))
    gate.set_back()
    assert refused(gate, [2 * value for value in level(80)]) == []


def test_state_comes_back_as_it_was() -> None:
    gate, other = guard(), guard()
    refused(gate, [*level(80), math.nan])
    other.load_state_dict({name: t.clone() for name, t in gate.state_dict().items()})
    assert (float(other.in_row), int(other.streak)) == (1, 1)
    assert refused(other, [4.39, 3.0]) == refused(gate, [4.39, 3.0]) == [0]


def toy(*, clip: bool, skip: bool) -> tuple[list[float], list[int]]:
    """A published experiment: a batch 500 times too large at step 60 of a small regression.

    "The loss spiked at step 60" of a model of 16-64-1; losses of 120 steps and refused steps, where
    a refused step shows the loss before it.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
    truth = torch.randn(16, 1)
    gate = guard(skip=skip)
    losses: list[float] = []
    skipped: list[int] = []
    for step in range(120):
        inputs = torch.randn(32, 16, generator=torch.Generator().manual_seed(step))
        inputs = inputs * 500 if step == 60 else inputs
        loss = ((model(inputs) - inputs @ truth) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
        if clip:
            clip_gradients(model.parameters(), 1.0, norm)
        if gate.step(optimizer, loss.detach(), norm).refused:
            skipped.append(step)
        losses.append(losses[-1] if step in skipped else loss.item())
    return losses, skipped


@pytest.mark.parametrize(
    ("clip", "skip", "printed", "skipped"),
    [
        (False, False, ("0.136", "147602", "5.689", "12.254"), []),
        (True, False, ("0.113", "180806", "0.029", "0.034"), []),
        (True, True, ("0.113", "0.1", "0.030", "0.036"), [60]),
    ],
)
def test_the_published_experiment_comes_out_to_the_printed_digits(
    clip: bool, skip: bool, printed: tuple[str, ...], skipped: list[int]
) -> None:
    losses, found = toy(clip=clip, skip=skip)
    at = [losses[step] for step in (59, 60, 70, 119)]
    digits = [len(text.partition(".")[2]) for text in printed]
    assert [f"{v:.{n}f}" for v, n in zip(at, digits, strict=True)] == list(printed)
    assert found == skipped


def poison(trainer: Any, value: float) -> Any:
    """Put one bad value into a gradient of the next backward pass."""
    parameter = trainer.model.layers[0].mlp.up_proj.weight

    def spoil(p: torch.nn.Parameter) -> None:
        assert p.grad is not None
        local(p.grad).view(-1)[3] = value

    return parameter.register_post_accumulate_grad_hook(spoil)


@pytest.mark.shared
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_bad_gradient_changes_nothing_and_training_goes_on(
    shared: Path, tmp_path: Path, trainer_of: Any, value: float, optimizer: str
) -> None:
    case = json.loads((shared / "cases/training/bad-gradient.json").read_text())
    trainer = trainer_of(write_run(tmp_path, clip=case["clip"], optimizer=optimizer))
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
    trainer.review.look(trainer.seen)
    assert [event["step"] for event in trainer.ledger.of("skip")] == [7]


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
    found = gradient_norm(trainer.model.parameters(), trainer.world)
    assert float(found) == pytest.approx(0.01, rel=1e-3)
