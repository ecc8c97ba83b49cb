"""What is done with the processes: the model spread over them, and the calls that a trainer makes.

The model file knows nothing of it. `parallelise` returns a `ParallelModel`, whose calls are the
same however the model is spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from training.config import RunConfig
from training.gradients import accumulate
from training.losses import token_losses
from training.model import Decoder
from training.world import World


class ParallelModel:
    """A model spread over processes: what a rank holds of it, forward passes and gradients."""

    def __init__(self, model: Decoder, world: World, config: RunConfig) -> None:
        self.model, self.world, self.config = model, world, config
        """`model`: the part that this rank holds; parameter names are those of the whole model."""

    def accumulate(self, fields: Sequence[Tensor], scale: Tensor) -> tuple[Tensor, Tensor]:
        """Add gradients of this rank's share of a global batch; returns (sums, per_sequence).

        `fields`: tokens, positions, documents, mask, targets, each [sequences, context]; every data
        rank has equally many sequences. `scale`: 1 / targets of the global batch (gradients are
        added up over ranks, not averaged). `sums` [4] float64: nats of the loss, nats and tokens of
        the entropy, weighted z-loss; `per_sequence` [sequences, 2] float32: nats and targets. Both
        are those of this data rank: add up or gather over `world`.
        """
        size = micro_batch(len(fields[0]), self.config.micro_batch)
        z_loss = self.config.z_loss
        return accumulate(self.model, fields, size, scale, z_loss=z_loss, model=self.model)

    def __call__(self, tokens: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        """Logits [B, T, V] of whole sequences; all ranks of a data rank call it together."""
        return cast(Tensor, self.model(tokens, positions, documents))

    @torch.no_grad()
    def nats(self, tokens: Tensor, positions: Tensor, documents: Tensor, targets: Tensor) -> Tensor:
        """[B, T] float32: nats of each target. No logits leave the rank that made them."""
        logits = self.model(tokens, positions, documents)
        found, _, _ = token_losses(logits.flatten(0, 1), targets.flatten())
        return found.view(targets.shape)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Name and parameter of what this rank holds."""
        return self.model.named_parameters()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of what this rank holds."""
        return self.model.parameters()

    def train(self, mode: bool = True) -> None:
        """Set the mode of all modules."""
        self.model.train(mode)

    def eval(self) -> None:
        """As for evaluation."""
        self.model.eval()


def micro_batch(share: int, most: int) -> int:
    """Sequences of a micro-batch: the most that divide a rank's share, alike on all ranks."""
    return max(n for n in range(1, min(most, share) + 1) if share % n == 0)


def parallelise(model: Decoder, world: World, config: RunConfig) -> ParallelModel:
    """Spread a whole model, alike on every rank, over the processes."""
    shard(model, world, config.dtype)
    return ParallelModel(model, world, config)


def shard(model: Decoder, world: World, dtype: str) -> Decoder:
    """Shard the model over the mesh, block by block; arithmetic in `dtype`, reductions in float32.

    On a CPU gathered weights are kept until the backward pass: memory is plenty, messages are not.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, dtype) if dtype != "float32" else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    mesh = world.mesh["replicate", "shard"] if world.layout.replicate > 1 else world.mesh["shard"]
    reshard = world.device.type == "cuda"
    for block in model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    sum_gradients(model)
    return model


def sum_gradients(model: nn.Module) -> None:
    """Add gradients up over ranks instead of averaging: the loss is scaled by the global count."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
