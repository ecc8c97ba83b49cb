"""Muon for the matrices inside the blocks, fused AdamW for the rest, as one optimiser.

Muon (https://kellerjordan.github.io/posts/muon/) takes the momentum's nearest orthogonal matrix,
by five Newton-Schulz steps in bfloat16, for the update. With the factor `0.2 sqrt(max(rows,
columns))` (arXiv:2502.16982) the update has the size of AdamW's, so learning rate and decay are
shared. The numbers are those of `torch.optim.Muon`, bit for bit where a tensor is not sharded (a
test compares them). That class is not used itself, because

    it takes no stacks      experts are [experts, rows, columns]: one matrix each, iterated together
    it has no `found_inf`   a refused step must leave weights and momentum as they were, on the
                            device, without a look from the host
    it repeats the work     on sharded tensors every rank would iterate every matrix; here each rank
                            takes its turn and hands the result round
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate, Shard

from training.layouts.norms import local

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
EPS = 1e-7
AT_ONCE = 8  # whole matrices that a rank holds at a time


class MuonAdamW(torch.optim.Optimizer):
    """Muon over the groups marked `muon`, fused AdamW over the others.

    Obeys `found_inf` as fused AdamW does: where that 0-dimensional tensor is 1, the step changes
    nothing.
    """

    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None

    def __init__(
        self,
        matrices: Iterable[Tensor],
        others: list[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        momentum: float,
    ) -> None:
        """`matrices`: [rows, columns] or [experts, rows, columns]; `others`: groups for AdamW."""
        self._adamw = torch.optim.AdamW(others, lr=lr, betas=betas, eps=eps, fused=True)
        groups = [group | {"muon": False} for group in self._adamw.param_groups]
        muon = {"params": list(matrices), "lr": lr, "weight_decay": weight_decay}
        super().__init__([*groups, muon | {"momentum": momentum, "muon": True}], {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of both."""
        assert closure is None
        inner: Any = self._adamw  # loading a state replaces both dictionaries, so link them anew
        inner.state = self.state
        inner.param_groups = [group for group in self.param_groups if not group["muon"]]
        inner.grad_scale, inner.found_inf = self.grad_scale, self.found_inf
        inner.step()
        for group in self.param_groups:
            if group["muon"]:
                self._muon(group)

    def _muon(self, group: dict[str, Any]) -> None:
        parameters = [p for p in group["params"] if p.grad is not None]
        for some in _chunks(parameters, AT_ONCE):
            momenta = [self._momentum(p, group["momentum"]) for p in some]
            updates = orthogonal([gradient(p).lerp(m, group["momentum"]) for p, m in momenta])
            for (parameter, momentum), update in zip(momenta, updates, strict=True):
                rows, columns = parameter.shape[-2:]
                rate = group["lr"] * 0.2 * math.sqrt(max(rows, columns))
                moved = parameter * (1 - group["lr"] * group["weight_decay"])
                self._set(parameter, moved.add_(update, alpha=-rate))
                self._set(self.state[parameter]["momentum_buffer"], momentum)

    def _momentum(self, parameter: Tensor, momentum: float) -> tuple[Tensor, Tensor]:
        """(parameter, its momentum after this step); the one kept is not changed yet."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        return parameter, torch.lerp(state["momentum_buffer"], gradient(parameter), 1 - momentum)

    def _set(self, old: Tensor, new: Tensor) -> None:
        """Write `new` into `old` unless the step is refused."""
        here, there = local(old), local(new)
        if self.found_inf is not None:
            there = torch.where(self.found_inf.to(here.device) > 0, here, there)
        here.copy_(there)


def orthogonal(updates: list[Tensor]) -> list[Tensor]:
    """The nearest orthogonal matrix of each, bfloat16, sharded as it was.

    Stacks sharded by their first dimension hold whole matrices already. Others are gathered; each
    rank of their mesh iterates every n-th of them, then hands it to the others.
    """
    out = []
    for turn, update in enumerate(updates):
        if not isinstance(update, DTensor):
            out.append(newton_schulz(update))
        elif _whole_inside(update):
            done: Tensor = newton_schulz(update.to_local())
            out.append(_like(done, update))
        else:
            out.append(_in_turn(update.full_tensor(), update, turn))
    for turn, (update, result) in enumerate(zip(updates, out, strict=True)):
        if isinstance(update, DTensor) and not isinstance(result, DTensor):
            mesh = update.device_mesh
            if mesh.ndim == 1:
                dist.broadcast(result, group_src=turn % mesh.size(), group=mesh.get_group())
            whole = DTensor.from_local(result, mesh, [Replicate()] * mesh.ndim, run_check=False)
            out[turn] = whole.redistribute(placements=update.placements)
    return out


def _in_turn(whole: Tensor, update: DTensor, turn: int) -> Tensor:
    """The result at this rank's turn, else room for it; on a grid of ranks each does all."""
    mesh = update.device_mesh
    if mesh.ndim > 1 or mesh.get_local_rank() == turn % mesh.size():
        return newton_schulz(whole).contiguous()
    return torch.empty_like(whole, dtype=torch.bfloat16, memory_format=torch.contiguous_format)


def _whole_inside(update: DTensor) -> bool:
    return update.ndim == 3 and all(
        isinstance(p, Replicate) or (isinstance(p, Shard) and p.dim == 0) for p in update.placements
    )


def _like(local_part: Tensor, update: DTensor) -> Tensor:
    return DTensor.from_local(
        local_part,
        update.device_mesh,
        update.placements,
        run_check=False,
        shape=update.shape,
        stride=update.stride(),
    )


def newton_schulz(matrix: Tensor) -> Tensor:
    """U V^T of [..., rows, columns], about: singular values come out between 0.5 and 1.5.

    bfloat16, as the iteration forgives rounding; the quintic's coefficients are Keller Jordan's.
    """
    a, b, c = COEFFICIENTS
    wide = matrix.bfloat16()
    tall = wide.shape[-2] > wide.shape[-1]
    wide = wide.mT if tall else wide
    if wide.ndim == 2:
        norm = wide.norm()
    else:
        norm = torch.linalg.vector_norm(wide, dim=(-2, -1), keepdim=True)
    wide = wide / norm.clamp(min=EPS)
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        wide = _add_product(wide, a, _add_product(gram, b, gram, gram, c), wide)
    return wide.mT if tall else wide


def _add_product(x: Tensor, beta: float, left: Tensor, right: Tensor, alpha: float = 1) -> Tensor:
    add = torch.addmm if x.ndim == 2 else torch.baddbmm
    return add(x, left, right, beta=beta, alpha=alpha)


def gradient(parameter: Tensor) -> Tensor:
    """Its gradient, which is there."""
    return cast("Tensor", parameter.grad)


def _chunks(values: list[Tensor], size: int) -> Iterator[list[Tensor]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]
