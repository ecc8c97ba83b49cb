"""Experts shared by ranks: every token travels to the ranks of its experts and back.

Each rank of the `expert` mesh holds an equal share of the experts of a layer (GShard,
arXiv:2006.16668). Two messages go out, how many tokens then the tokens, and one comes back; their
backward passes are the same messages the other way. No capacity, so nothing is dropped. The sizes
of messages must be known to the host, which waits for the device once a layer.

Gradients of experts need no sum over the `expert` ranks: the tokens of all of them were here.
"""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor

from training.layouts.norms import local
from training.network.moe import Experts, MoE, count, grouped_swiglu, permute, sort_by, spread


def share_experts(model: nn.Module, mesh: DeviceMesh) -> list[nn.Module]:
    """Leave on each rank of the mesh, of one dimension, its experts; returns the modules of them,
    which are to be sharded over other ranks than the rest of the model."""
    found: list[nn.Module] = []
    for module in model.modules():
        if isinstance(module, MoE):
            experts = module.experts
            for name, parameter in list(experts.named_parameters()):
                # every rank holds all of it alike, so each cuts out its own part
                part = distribute_tensor(parameter.detach(), mesh, [Shard(0)], src_data_rank=None)
                setattr(experts, name, nn.Parameter(part))
            experts.forward = partial(_forward, experts)  # type: ignore[method-assign]
            module.dispatch = partial(dispatch_to_ranks, mesh.get_group())
            found.append(experts)
    return found


def _forward(experts: Experts, x_MD: Tensor, counts: Tensor) -> Tensor:
    """Experts of this rank; their parameters are DTensors that were cut along the experts."""
    gate_up, down = (local(p) for p in (experts.gate_up_proj, experts.down_proj))
    return grouped_swiglu(x_MD, counts, gate_up, down)


def dispatch_to_ranks(
    group: dist.ProcessGroup, experts: Experts, x_ND: Tensor, chosen_NK: Tensor, n_experts: int
) -> Tensor:
    """Outputs [N, K, D] of the chosen experts, wherever they are in the group."""
    ranks = dist.get_world_size(group)
    order, inverse = sort_by(chosen_NK.flatten())
    counts = count(chosen_NK.flatten(), n_experts)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts, group=group)
    by_rank = theirs.view(ranks, -1)  # tokens from each rank for each expert here
    sizes = torch.stack([by_rank.sum(1), counts.view(ranks, -1).sum(1)]).tolist()
    received, sent = sizes
    arrived = _exchange(spread(x_ND, order, inverse, chosen_NK.shape[1]), received, sent, group)
    # they come by rank, then expert; experts want them by expert
    numbers = torch.arange(by_rank.shape[1], device=x_ND.device).repeat(ranks)
    numbers = numbers.repeat_interleave(theirs, output_size=sum(received))
    here, back = sort_by(numbers)
    y = permute(experts(permute(arrived, here, back), by_rank.sum(0)), back, here)
    returned = _exchange(y, sent, received, group)
    return permute(returned, inverse, order).view(*chosen_NK.shape, -1)


def _exchange(x: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup) -> Tensor:
    """Rows of `x`, `sent[r]` of them to rank r; returns `received[r]` rows of each, by rank."""
    exchange: Any = _Exchange.apply  # it has no types
    return cast(Tensor, exchange(x, received, sent, group))


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        ctx.sizes, ctx.group = (received, sent), group
        out = x.new_empty(sum(received), *x.shape[1:])
        dist.all_to_all_single(out, x.contiguous(), received, sent, group=group)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        received, sent = ctx.sizes
        out = grad.new_empty(sum(sent), *grad.shape[1:])
        dist.all_to_all_single(out, grad.contiguous(), sent, received, group=ctx.group)
        return out, None, None, None
