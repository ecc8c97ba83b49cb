"""A mixture of fine-grained experts with shared ones: routing, balance, grouped products.

Scores are sigmoids; the `top_k` experts with the highest score plus bias are chosen; the weights of
their outputs are the scores without bias, normalised (arXiv:2412.19437, section 2.1.2). No token is
dropped and no expert has a capacity. Parameter names are those of Dots1 in `transformers`.

Experts' tokens are brought together by a *dispatcher*, a function that expert parallelism replaces
(`MoE.dispatch`). Tokens are moved by permutations whose backward passes are permutations too: no
atomic additions, so a step gives the same bits again on a GPU.

Shapes in names: N tokens, K experts of a token, X experts, F width of an expert, M = N * K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.network.feedforward import MLP
from training.settings.model import ModelConfig, MoeConfig


class Experts(nn.Module):
    """The routed experts of a layer as two stacks of matrices."""

    def __init__(self, dim: int, c: MoeConfig) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(c.n_experts, 2 * c.expert_ffn, dim))
        self.down_proj = nn.Parameter(torch.empty(c.n_experts, dim, c.expert_ffn))

    def forward(self, x_MD: Tensor, counts_X: Tensor) -> Tensor:
        """[M, D] to [M, D]: the first `counts[0]` tokens go through the first expert, and so on."""
        return grouped_swiglu(x_MD, counts_X, self.gate_up_proj, self.down_proj)


def grouped_swiglu(
    x_MD: Tensor, counts_X: Tensor, gate_up_X2FD: Tensor, down_XDF: Tensor
) -> Tensor:
    """SwiGLU of [M, D] to [M, D], the first `counts[0]` tokens by the first expert, and so on."""
    ends = counts_X.cumsum(0, dtype=torch.int32)
    gate, up = F.grouped_mm(x_MD, gate_up_X2FD.transpose(1, 2), offs=ends).chunk(2, dim=-1)
    return F.grouped_mm(F.silu(gate) * up, down_XDF.transpose(1, 2), offs=ends)


Dispatch = Callable[[Experts, Tensor, Tensor, int], Tensor]
"""(experts, x [N, D], chosen [N, K], n_experts) to each choice's output [N, K, D]."""


class Router(nn.Module):
    """Chooses experts; counts the tokens that each of them was given since the last step."""

    e_score_correction_bias: Tensor
    load: Tensor

    def __init__(self, dim: int, c: MoeConfig) -> None:
        super().__init__()
        self.c = c
        self.weight = nn.Parameter(torch.empty(c.n_experts, dim))
        bias = torch.zeros(c.n_experts, dtype=torch.float32)
        self.register_buffer("e_score_correction_bias", bias)
        load = torch.zeros(c.n_experts, dtype=torch.int64)
        self.register_buffer("load", load, persistent=False)
        self.loss_scale: Tensor | None = None

    def forward(self, x_BTD: Tensor) -> tuple[Tensor, Tensor]:
        """Numbers of the chosen experts and the weights of their outputs, both [N, K].

        In training it adds to `load`; a layer that is computed again for its backward pass counts
        twice, which changes neither the order nor the ratios of loads.
        """
        logits = F.linear(x_BTD.flatten(0, 1).float(), self.weight.float())
        scores = logits.sigmoid()
        chosen = (scores.detach() + self.e_score_correction_bias).topk(self.c.top_k, -1).indices
        weights = scores.gather(1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.c.scaling
        if self.training:
            with torch.no_grad():
                self.load += count(chosen.flatten(), self.c.n_experts)
            if self.c.aux_loss or self.c.router_z_loss:
                weights = self._with_losses(weights, logits, scores, chosen, x_BTD.shape[0])
        return chosen, weights

    def _with_losses(
        self, weights: Tensor, logits: Tensor, scores: Tensor, chosen: Tensor, n_rows: int
    ) -> Tensor:
        """The same weights, which carry the gradients of the router's own losses."""
        if self.loss_scale is None:
            message = "set_loss_scale() comes before a training pass: the router has its own losses"
            raise RuntimeError(message)
        loss = self.c.aux_loss * balance_loss(scores, chosen, n_rows)
        loss = loss + self.c.router_z_loss * logits.logsumexp(-1).square().sum()
        return cast(Tensor, _Attach.apply(weights, loss, self.loss_scale))  # type: ignore[no-untyped-call]


class MoE(nn.Module):
    """Router, routed experts and shared experts, in place of a dense block."""

    def __init__(self, c: ModelConfig) -> None:
        super().__init__()
        assert c.moe is not None
        self.n_experts = c.moe.n_experts
        self.gate = Router(c.dim, c.moe)
        self.experts = Experts(c.dim, c.moe)
        self.shared_experts = MLP(c.dim, c.moe.expert_ffn * c.moe.shared)
        self.dispatch: Dispatch = dispatch_here

    def forward(self, x_BTD: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]."""
        chosen, weights = self.gate(x_BTD)
        y_NKD = self.dispatch(self.experts, x_BTD.flatten(0, 1), chosen, self.n_experts)
        routed = (y_NKD * weights[..., None].type_as(y_NKD)).sum(1)
        return routed.view_as(x_BTD) + cast(Tensor, self.shared_experts(x_BTD))


def dispatch_here(experts: Experts, x_ND: Tensor, chosen_NK: Tensor, n_experts: int) -> Tensor:
    """Outputs [N, K, D] of the chosen experts, all of which are in this process."""
    order, inverse = sort_by(chosen_NK.flatten())
    sorted_MD = spread(x_ND, order, inverse, chosen_NK.shape[1])
    y_MD = experts(sorted_MD, count(chosen_NK.flatten(), n_experts))
    return permute(y_MD, inverse, order).view(*chosen_NK.shape, -1)


def count(numbers: Tensor, n: int) -> Tensor:
    """How often each of 0..n-1 is among `numbers` (int64); static in shape, unlike `bincount`."""
    zeros = torch.zeros(n, dtype=torch.int64, device=numbers.device)
    return zeros.scatter_add(0, numbers, torch.ones_like(numbers))


def sort_by(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """The stable order that sorts `numbers`, and its inverse."""
    order = numbers.argsort(stable=True)
    places = torch.arange(len(order), device=order.device)
    return order, torch.empty_like(order).scatter_(0, order, places)


def spread(x_ND: Tensor, order: Tensor, inverse: Tensor, k: int) -> Tensor:
    """Each token k times, in `order`: [N, D] to [N * k, D]."""
    return cast(Tensor, _Spread.apply(x_ND, order, inverse, k))  # type: ignore[no-untyped-call]


def permute(x_MD: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
    """Rows in `order`, whose inverse is known."""
    return cast(Tensor, _Permute.apply(x_MD, order, inverse))  # type: ignore[no-untyped-call]


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_ND: Tensor, order: Tensor, inverse: Tensor, k: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.k = k
        return x_ND.index_select(0, order // k)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse).view(-1, ctx.k, grad.shape[1]).sum(1), None, None, None


class _Permute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_MD: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return x_MD.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (inverse,) = ctx.saved_tensors
        return grad.index_select(0, inverse), None, None


class _Attach(torch.autograd.Function):
    """Passes a tensor on and sends `scale` into a loss that belongs to it.

    So a layer's own loss needs no way through the blocks above, and survives recomputation.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, loss: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(scale)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        (scale,) = ctx.saved_tensors
        return grad, scale, None


def balance_loss(scores_NX: Tensor, chosen_NK: Tensor, n_rows: int) -> Tensor:
    """Sum over tokens of the balance loss of their sequence (arXiv:2412.19437, eq. 17-20).

    For a sequence: sum over experts of (share of its choices, times X) * (mean share of its
    scores); 1 where all experts are chosen alike.
    """
    n, n_experts = scores_NX.shape
    length, k = n // n_rows, chosen_NK.shape[1]
    zeros = scores_NX.new_zeros(n_rows, n_experts)
    choices = chosen_NK.view(n_rows, -1)
    counts = zeros.scatter_add(1, choices, torch.ones_like(choices, dtype=zeros.dtype))
    shares = (scores_NX / scores_NX.sum(-1, keepdim=True)).view(n_rows, length, -1).sum(1)
    return (counts * (n_experts / (k * length)) * shares).sum()


def set_loss_scale(model: nn.Module, scale: Tensor) -> None:
    """What the summed loss of a pass will be multiplied by; the routers' own losses need it too."""
    for module in model.modules():
        if isinstance(module, Router):
            module.loss_scale = scale


def routers(model: nn.Module) -> list[Router]:
    """The routers of a model, from the bottom."""
    return [module for module in model.modules() if isinstance(module, Router)]


@torch.no_grad()
def update_biases(
    model: nn.Module,
    rate: float,
    skipped: Tensor,
    sum_over_ranks: Callable[[Tensor], Any] | None = None,
) -> Tensor | None:
    """Move the biases towards an even load, after the optimiser; returns loads [layers, X].

    bias += rate * sign(mean load - load), less its mean (arXiv:2408.15664). Nothing moves where
    `skipped` (0-dimensional) is true. The loads are those of the global batch; they start anew at
    0. `sum_over_ranks` adds a tensor up in place over the ranks that read different sequences.
    Without experts there is nothing to do: None. Never waits for the device.
    """
    found = routers(model)
    if not found:
        return None
    loads = torch.stack([router.load for router in found])
    if sum_over_ranks is not None:
        sum_over_ranks(loads)
    counts = loads.double()
    moves = torch.sign(counts.mean(1, keepdim=True) - counts)
    moves -= moves.mean(1, keepdim=True)
    moves *= rate * (1 - skipped.double())
    for router, move in zip(found, moves, strict=True):
        router.e_score_correction_bias += move.float()
        router.load.zero_()
    return loads
