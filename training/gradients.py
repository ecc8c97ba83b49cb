"""Forward and backward over one rank's share of a global batch, in micro-batches.

The loss is the mean over the targets of the global batch, whatever rank they are on, so the number
of processes and the size of micro-batches do not change it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from training.network.losses import token_losses
from training.watching.stopwatch import mark

ENTROPY_STRIDE = 8  # entropy of the predictions is taken at every 8th token: 1/8 of its cost
LOSS, ENTROPY, ENTROPY_TOKENS, Z_LOSS = range(4)
"""Places in the sums of `accumulate`."""


class Tally:
    """Sums over a share of a batch, added up on the device: `sums` [4] and `per_sequence`."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.zeros(4, dtype=torch.float64, device=device)
        """[loss in nats, entropy in nats, tokens of the entropy, weighted z-loss]."""
        self._sequences: list[Tensor] = []

    @property
    def per_sequence(self) -> Tensor:
        """[sequences, 2] float32: nats and targets of each sequence, in the order of the batch."""
        return torch.cat(self._sequences)

    def add(self, nats: Tensor, mask: Tensor, entropy: Tensor, z_loss: Tensor) -> None:
        """Of one micro-batch: nats and mask [B, T]; entropy [2] (nats, tokens); z-loss [].

        The nats of tokens without a target are 0.
        """
        with torch.no_grad():
            by_sequence = torch.stack([nats.sum(1), mask.sum(1)], 1)
            self.sums += torch.cat([nats.sum()[None], entropy, z_loss[None]]).double()
            self._sequences.append(by_sequence.float())


def accumulate(
    model: nn.Module,
    fields: Sequence[Tensor],
    size: int,
    scale: Tensor,
    *,
    z_loss: float,
    vocabulary: dist.ProcessGroup | None = None,
) -> tuple[Tensor, Tensor]:
    """Add gradients of the share to the parameters; returns (sums, per_sequence), see `Tally`.

    `model`: (tokens, positions, documents) to logits, sharded by FSDP2; its gradients are reduced
    in the last micro-batch only. `fields`: tokens, positions, documents, mask, targets, each
    [sequences, context]; `size`: sequences a micro-batch; `scale`: what the summed loss is
    multiplied by before the backward pass, 0-dimensional; `z_loss`: weight of the squared
    log-normaliser. `vocabulary`: process group that shares the logits' last axis.
    """
    assert isinstance(model, FSDPModule)
    micro = list(zip(*(torch.split(f, size) for f in fields), strict=True))
    tally = Tally(fields[0].device)
    for number, (tokens, positions, documents, mask, targets) in enumerate(micro):
        last = number == len(micro) - 1
        model.set_requires_gradient_sync(last)
        model.set_is_last_backward(last)
        logits = model(tokens, positions, documents)
        loss = tally_loss(tally, logits, mask, targets, z_loss=z_loss, vocabulary=vocabulary)
        mark("forward")
        torch.autograd.backward(loss * scale)
        mark("backward")
    return tally.sums, tally.per_sequence


def tally_loss(
    tally: Tally,
    logits: Tensor,
    mask: Tensor,
    targets: Tensor,
    *,
    z_loss: float,
    vocabulary: dist.ProcessGroup | None = None,
) -> Tensor:
    """The summed loss of a micro-batch, z-loss included, to be differentiated; 0-dimensional.

    `logits` [B, T, V] are lost. What is told of them goes to `tally`.
    """
    wanted = torch.where(mask, targets, -100).flatten()
    nats, normaliser, entropy = token_losses(
        logits.flatten(0, 1), wanted, stride=ENTROPY_STRIDE, group=vocabulary, overwrite=True
    )
    counted = (wanted[::ENTROPY_STRIDE] >= 0).double()
    entropies = torch.stack([(entropy.double() * counted).sum(), counted.sum()])
    loss = nats.sum()
    penalty = z_loss * normaliser.square().sum()
    tally.add(nats.detach().view(mask.shape), mask, entropies, penalty.detach())
    return loss + penalty if z_loss else loss
