"""Forward and backward over one rank's share of a global batch, in micro-batches.

The loss is the mean over the targets of the global batch, whatever rank they are on, so the number
of processes and the size of micro-batches do not change it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from training.model import Decoder

ENTROPY_STRIDE = 8  # entropy of the predictions is taken at every 8th token: 1/8 of its cost


def accumulate(model: Decoder, fields: list[Tensor], size: int, scale: Tensor) -> Tensor:
    """Add gradients of the share to the parameters; returns [loss, entropy, its tokens].

    `fields`: tokens, positions, documents, mask, targets, each [sequences, context]; `size`:
    sequences a micro-batch; `scale`: what the summed loss is multiplied by before the backward
    pass, 0-dimensional. The sums are those of this rank.
    """
    micro = list(zip(*(torch.split(f, size) for f in fields), strict=True))
    sums = torch.zeros(3, dtype=torch.float64, device=fields[0].device)
    for number, (tokens, positions, documents, mask, targets) in enumerate(micro):
        last = number == len(micro) - 1
        model.set_requires_gradient_sync(last)  # type: ignore[operator]
        model.set_is_last_backward(last)  # type: ignore[operator]
        logits = model(tokens, positions, documents).flatten(0, 1).float()
        wanted = torch.where(mask, targets, -100).flatten()
        loss = F.cross_entropy(logits, wanted, ignore_index=-100, reduction="sum")
        torch.autograd.backward(loss * scale)
        with torch.no_grad():
            seen = torch.log_softmax(logits.detach()[::ENTROPY_STRIDE], -1)
            sums += torch.stack([loss.double(), *(entropy_sums(seen, wanted))])
    return sums


def entropy_sums(log_probabilities: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """(sum of nats, number) of the predictions at every `ENTROPY_STRIDE`-th token with a target."""
    counted = (wanted[::ENTROPY_STRIDE] >= 0).double()
    nats = -(log_probabilities.exp() * log_probabilities).sum(-1).double()
    return (nats * counted).sum(), counted.sum()
