"""Cross-entropy, log-normaliser and entropy of predictions in one pass over the vocabulary.

    nats_i = z_i - x_{i, target},    z_i = log sum_v exp x_{i, v}

Their gradient needs only the probabilities: d nats / d x = p - onehot(target), d z / d x = p. So
the forward pass takes one log-softmax, and the backward pass turns it into the gradient in place:
nothing else of the size of the logits is made. The usual pair of cross-entropy and log-sum-exp
makes four such tensors.

With tensor parallelism every rank holds a part of the vocabulary; then only maxima and sums of
[tokens] travel, never logits (Megatron-LM, arXiv:1909.08053).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _TokenLosses(torch.autograd.Function):
    """See `token_losses`."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, wanted: Tensor, stride: int, group: dist.ProcessGroup | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        scores = logits.float()
        if group is None:
            log_p, normaliser = torch.log_softmax(scores, -1), None
            first = 0
        else:
            normaliser = _normaliser(scores, group)
            log_p = scores - normaliser[:, None]
            first = scores.shape[1] * dist.get_rank(group)
        counted = wanted >= 0
        place = wanted - first
        here = counted & (place >= 0) & (place < scores.shape[1])
        place = torch.where(here, place, 0)[:, None]
        picked = log_p.gather(1, place)[:, 0] * here
        if normaliser is None:
            # the log-normaliser is what log-softmax took off, at any place
            normaliser = scores[:, 0] - log_p[:, 0]
        seen = log_p[::stride]
        entropy = -(seen.exp() * seen).sum(-1)
        if group is not None:
            both = torch.cat([picked, entropy])
            dist.all_reduce(both, group=group)
            picked, entropy = both.split([len(picked), len(entropy)])
        ctx.save_for_backward(log_p, place, here, counted)
        ctx.dtype = logits.dtype
        ctx.mark_non_differentiable(entropy)
        return -picked, normaliser * counted, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None, None, None]:
        by_nats, by_normaliser = gradients[0], gradients[1]
        log_p, place, here, counted = ctx.saved_tensors
        both = (by_nats + by_normaliser) * counted
        out = log_p.exp_().mul_(both[:, None])  # log_p is not needed again
        out.scatter_add_(1, place, -(by_nats * here)[:, None])
        return out.to(ctx.dtype), None, None, None


def _normaliser(scores: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[N]: log of the sum of exponentials over the vocabulary of all ranks of `group`."""
    most = scores.max(-1).values
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
    total = (scores - most[:, None]).exp_().sum(-1)
    dist.all_reduce(total, group=group)
    return most + total.log()


def token_losses(
    logits: Tensor, wanted: Tensor, *, stride: int = 1, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(nats [N], log-normaliser [N], entropy [N / stride]) of predictions, float32.

    `logits` [N, V], any floating dtype; `wanted` [N]: target ids, negative where there is none:
    nats and log-normaliser are 0 there. Entropy is that of every `stride`-th prediction and has no
    gradient. `group`: ranks that each hold an equal part of the vocabulary, in their order.
    """
    out: tuple[Tensor, Tensor, Tensor] = _TokenLosses.apply(logits, wanted, stride, group)
    return out
