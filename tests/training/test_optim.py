from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import Muon

from tests.training.miniature import write_run
from training.config import load_run
from training.muon import MuonAdamW, newton_schulz
from training.optim import build_optimizer
from training.saving.identity import identity_of
from training.saving.state import state_of


def matrices(*shapes: tuple[int, ...]) -> list[torch.nn.Parameter]:
    draw = torch.Generator().manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in shapes]


def own(parameters: list[torch.nn.Parameter]) -> MuonAdamW:
    return MuonAdamW(
        parameters, [{"params": matrices((3,))}], lr=0.02, betas=(0.9, 0.95), eps=1e-8,
        weight_decay=0.1, momentum=0.95,
    )  # fmt: skip


def descend(optimizer: torch.optim.Optimizer, parameters: list[Any], steps: int = 3) -> None:
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        optimizer.step()


def test_matrices_move_as_in_the_published_implementation() -> None:
    shapes = ((8, 24), (24, 8), (16, 16))
    ours, theirs = matrices(*shapes), matrices(*shapes)
    descend(own(ours), ours)
    peer = Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    descend(peer, theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-6)
        assert not torch.equal(a, matrices(tuple(a.shape))[0])


def test_a_stack_of_experts_moves_as_its_matrices_one_by_one() -> None:
    alone = matrices((6, 12, 8))
    singles = [torch.nn.Parameter(m.detach().clone()) for m in alone[0]]
    together, apart = own(alone), own(singles)
    draw = torch.Generator().manual_seed(2)
    for _ in range(2):
        alone[0].grad = torch.randn(alone[0].shape, generator=draw)
        for one, gradient in zip(singles, alone[0].grad, strict=True):
            one.grad = gradient.clone()
        together.step()
        apart.step()
    assert torch.allclose(alone[0], torch.stack(list(singles)), rtol=0, atol=2e-3)  # bfloat16


@pytest.mark.parametrize("shape", [(64, 16), (16, 64), (4, 32, 16)])
def test_singular_values_come_near_one(shape: tuple[int, ...]) -> None:
    values = torch.linalg.svdvals(newton_schulz(matrices(shape)[0].detach()).float())
    assert 0.5 < values.min() <= values.max() < 1.5


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_refused_step_leaves_weights_and_state_bit_for_bit(
    tmp_path: Path, trainer_of: Any, optimizer: str
) -> None:
    trainer = trainer_of(write_run(tmp_path, optimizer=optimizer))
    trainer.train_step(False)
    before = identity_of(state_of(trainer.model, trainer.optimizer))
    flags: Any = trainer.optimizer
    for bad in (math.nan, math.inf, 1.0):
        for parameter in trainer.model.parameters():
            parameter.grad.fill_(bad)
        flags.found_inf = torch.ones(())
        trainer.optimizer.step()
        assert identity_of(state_of(trainer.model, trainer.optimizer)) == before
    flags.found_inf = torch.zeros(())
    trainer.optimizer.step()
    assert identity_of(state_of(trainer.model, trainer.optimizer)) != before


def test_decay_is_on_matrices_and_muon_takes_those_of_the_blocks(
    tmp_path: Path, trainer_of: Any
) -> None:
    trainer = trainer_of(write_run(tmp_path, optimizer="muon"))
    names = {parameter: name for name, parameter in trainer.model.named_parameters()}
    groups = {
        (bool(group["muon"]), group["weight_decay"]): {names[p] for p in group["params"]}
        for group in trainer.optimizer.param_groups
    }
    assert groups[False, 0.1] == {"lm_head.weight"}
    assert "embed_tokens.weight" in groups[False, 0.0]
    assert all("norm" in n or n == "embed_tokens.weight" for n in groups[False, 0.0])
    assert all(n.endswith("proj.weight") for n in groups[True, 0.1])
    assert len(groups[True, 0.1]) == 2 * 7
    plain = build_optimizer(trainer.model, load_run(write_run(tmp_path)))
    assert [group["weight_decay"] for group in plain.param_groups] == [0.1, 0.0]


def test_muon_resumes_exactly(tmp_path: Path, trainer_of: Any) -> None:
    def losses(trainer: Any, n: int) -> list[float]:
        out = []
        for _ in range(n):
            out.append(float(trainer.train_step(False)[0]["loss"]))
            trainer.advance()
        return out

    whole = losses(trainer_of(write_run(tmp_path, "whole", optimizer="muon")), 6)
    trainer = trainer_of(write_run(tmp_path, "parts", optimizer="muon"))
    first = losses(trainer, 3)
    state = copy.deepcopy(trainer.optimizer.state_dict())
    trainer.save()
    trainer.settle()
    again = trainer_of(write_run(tmp_path, "parts", optimizer="muon"))
    again.resume()
    assert again.step == 3
    assert len(again.optimizer.state_dict()["state"]) == len(state["state"])
    assert first + losses(again, 3) == pytest.approx(whole, abs=1e-6)
    assert whole[-1] < whole[0]
