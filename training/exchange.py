"""What the ranks tell each other in a step beside gradients: a message before and one after.

Before: how many targets the global batch has, which the loss is divided by. After: sums of the loss
by kind, by source and by sequence, so that every rank knows what the first one may have to report.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from training.data import Batch
from training.watching.observe import by_source
from training.world import World


class Counts(NamedTuple):
    """Of a global batch; device tensors, equal on all ranks."""

    targets: Tensor
    stop: Tensor
    """How many ranks were asked to stop; above 0 if any was."""
    checksum: Tensor
    histogram: Tensor
    """[vocabulary]: how often each token occurs."""


class Sums(NamedTuple):
    """Of a global batch, float64, equal on all ranks."""

    kinds: Tensor
    """[4]: nats of the loss, nats and tokens of the entropy, weighted z-loss."""
    sources: Tensor
    """[sources, 2]: nats and targets."""
    sequences: Tensor
    """[sequences, 2]: nats and targets."""


def to_device(batch: Batch, device: torch.device) -> list[Tensor]:
    """Tokens, positions, documents, mask, targets of a batch as tensors."""
    arrays = (batch.tokens, batch.positions, batch.documents, batch.mask, batch.targets)
    moved = [torch.from_numpy(array).to(device, non_blocking=True) for array in arrays]
    return [field if field.dtype == torch.bool else field.long() for field in moved]


def shared_counts(
    batch: Batch, fields: list[Tensor], vocab_size: int, stop: bool, world: World
) -> Counts:
    """The message before."""
    tokens, documents = fields[0], fields[2]
    own = torch.tensor(
        [float(batch.mask.sum()), float(stop), float(batch.checksum)],
        dtype=torch.float64,
        device=tokens.device,
    )
    histogram = torch.bincount(tokens[documents >= 0], minlength=vocab_size).double()
    both = world.total_(torch.cat([own, histogram]))
    return Counts(both[0], both[1], both[2], both[3:])


def shared_sums(
    sums: Tensor, per_sequence: Tensor, sources: Tensor, n_sources: int, world: World
) -> Sums:
    """The message after; `sums`, `per_sequence`, `sources` [sequences] are those of this rank."""
    n = len(per_sequence)
    sequences = per_sequence.new_zeros(n * world.data_size, 2, dtype=torch.float64)
    sequences[world.data_rank * n : (world.data_rank + 1) * n] = per_sequence.double()
    parts = [sums.double(), by_source(per_sequence, sources, n_sources), sequences]
    every = world.total_(torch.cat([part.flatten() for part in parts]))
    sizes = [part.numel() for part in parts]
    kinds, of_sources, of_sequences = torch.split(every, sizes)
    return Sums(kinds, of_sources.view(-1, 2), of_sequences.view(-1, 2))


def entropy(histogram: Tensor) -> Tensor:
    """Nats of a token drawn from these counts."""
    share = histogram / histogram.sum()
    return torch.special.entr(share).sum()
