"""The norm of a gradient whose pieces lie on many ranks, and clipping by it.

`torch.nn.utils.get_total_norm` reduces once for every dimension of a mesh and knows nothing of
parameters on other meshes (experts) or in other processes (stages of a pipeline). Here every rank
adds up the squares of what it holds, each divided by the number of ranks that hold the same, and
one reduction over the world gives the same norm on all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

from training.world import World


def copies(parameter: Tensor, world: World) -> int:
    """Ranks that hold the same piece of a parameter as this one, itself included."""
    pieces = 1
    if isinstance(parameter, DTensor):
        for size, placement in zip(parameter.device_mesh.shape, parameter.placements, strict=True):
            pieces *= 1 if isinstance(placement, Replicate) else size
    return world.size // (world.layout.pipeline * pieces)


def local(tensor: Tensor) -> Tensor:
    """The piece of a tensor that this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@torch.no_grad()
def gradient_norm(parameters: Iterable[Tensor], world: World) -> Tensor:
    """Norm of all gradients over all ranks: 0-dimensional, float32, the same on every rank."""
    by_copies: dict[int, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            piece = local(parameter.grad)
            if piece.numel():
                by_copies.setdefault(copies(parameter, world), []).append(piece)
    total = torch.zeros((), dtype=torch.float64, device=world.device)
    for number, pieces in by_copies.items():
        total += torch.stack(torch._foreach_norm(pieces)).double().square().sum() / number
    if world.size > 1:
        dist.all_reduce(total)
    return total.sqrt().float()


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], most: float, norm: Tensor) -> None:
    """Scale gradients to a norm of `most` where theirs is above; no copy to the host."""
    pieces = [local(p.grad) for p in parameters if p.grad is not None]
    if pieces:
        torch._foreach_mul_(pieces, torch.clamp(most / (norm + 1e-6), max=1.0))
