"""What is done with the processes: the model spread over them, and the calls that a trainer makes.

The model file knows nothing of it. `parallelise` cuts a model in this order, each step optional:

    stages of a pipeline, matrices (tensor parallel), experts, recomputing, float8, compiling, FSDP2

and returns a `ParallelModel`, whose calls are the same however the model is spread. Parameters keep
the names of the whole model in every layout, so a checkpoint of one loads in any other. All of them
are DTensors afterwards, so norms and checkpoints know who holds what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from training.config import RunConfig, micro_batch
from training.gradients import Tally, accumulate, tally_loss
from training.layouts.compiling import compile_block, compiles
from training.layouts.expert_parallel import share_experts
from training.layouts.float8 import check_float8, use_float8
from training.layouts.pipelining import Micro, Pipeline, keep_stage, layers_of_stage
from training.layouts.recompute import recompute_in_backward
from training.layouts.tensor_parallel import split_matrices
from training.model import Decoder
from training.network.losses import token_losses
from training.network.moe import MoE, set_loss_scale
from training.world import World


class ParallelModel:
    """A model spread over processes: what a rank holds of it, forward passes and gradients."""

    def __init__(self, model: Decoder, world: World, config: RunConfig, vocab_size: int) -> None:
        self.model, self.world, self.config, self.vocab_size = model, world, config, vocab_size
        """`model`: the part that this rank holds; parameter names are those of the whole model."""
        tensor = world.mesh["tensor"]
        self.vocabulary = tensor.get_group() if world.layout.tensor > 1 else None
        """The ranks that share the logits' last axis."""
        self.pipeline = _pipeline(model, world, config) if world.layout.pipeline > 1 else None

    def accumulate(self, fields: Sequence[Tensor], scale: Tensor) -> tuple[Tensor, Tensor]:
        """Add gradients of this rank's share of a global batch; returns (sums, per_sequence).

        `fields`: tokens, positions, documents, mask, targets, each [sequences, context]; every data
        rank has equally many sequences. `scale`: 1 / targets of the global batch (gradients are
        added up over ranks, not averaged). `sums` [4] float64: nats of the loss, nats and tokens of
        the entropy, weighted z-loss; `per_sequence` [sequences, 2] float32: nats and targets. Both
        are those of this data rank: add up or gather over `world`.
        """
        size = micro_batch(len(fields[0]), self.config.micro_batch)
        z_loss, vocabulary = self.config.z_loss, self.vocabulary
        set_loss_scale(self.model, scale)
        if self.pipeline is None:
            return accumulate(self.model, fields, size, scale, z_loss=z_loss, vocabulary=vocabulary)
        tally = Tally(fields[0].device)

        def loss_of(logits: Tensor, micro: Micro) -> Tensor:
            mask, targets = micro[3:]
            loss = tally_loss(tally, logits, mask, targets, z_loss=z_loss, vocabulary=vocabulary)
            return loss * scale

        micro = list(zip(*(torch.split(f, size) for f in fields), strict=True))
        self.pipeline.step(micro, loss_of)
        return self._from_last(tally, len(fields[0]))

    def _from_last(self, tally: Tally, sequences: int) -> tuple[Tensor, Tensor]:
        """What the last stage counted, on all of them; in one message."""
        assert self.pipeline is not None
        box = torch.zeros(4 + 2 * sequences, dtype=torch.float64, device=self.world.device)
        if self.pipeline.last:
            box = torch.cat([tally.sums, tally.per_sequence.double().flatten()])
        self.pipeline.broadcast(box)
        return box[:4], box[4:].view(sequences, 2).float()

    def loads_of_all(self, loads: Tensor | None) -> Tensor | None:
        """Loads [mixtures, experts] of all stages, from those of this one; all ranks call it."""
        model = self.config.model
        if self.pipeline is None or model.moe is None:
            return loads
        shape = (model.layers, model.moe.n_experts)
        every = torch.zeros(shape, dtype=torch.int64, device=self.world.device)
        if loads is not None:
            ends = layers_of_stage(model.layers, self.pipeline.stage, self.pipeline.stages).stop
            every[ends - len(loads) : ends] = loads  # dense layers are at the bottom
        dist.all_reduce(every, group=self.pipeline.group)
        return every[model.moe.first_dense :]

    @torch.no_grad()
    def __call__(self, tokens: Tensor, positions: Tensor, documents: Tensor) -> Tensor:
        """Logits [B, T, V], for evaluation; the ranks of a data rank call it together."""

        def whole(logits: Tensor) -> Tensor:
            if self.vocabulary is None:
                return logits
            parts = [torch.empty_like(logits) for _ in range(self.world.layout.tensor)]
            dist.all_gather(parts, logits.contiguous(), group=self.vocabulary)
            return torch.cat(parts, -1)

        micro = (tokens, positions, documents)
        if self.pipeline is None:
            return whole(self.model(*micro))
        shape = (*tokens.shape, self.vocab_size)
        like = torch.empty(shape, dtype=self.pipeline.dtype, device=tokens.device)
        return self.pipeline.evaluate(micro, whole, like)

    @torch.no_grad()
    def nats(self, tokens: Tensor, positions: Tensor, documents: Tensor, targets: Tensor) -> Tensor:
        """[B, T] float32: nats of each target; the ranks of a data rank call it together.

        No logits leave the rank that made them.
        """

        def of_logits(logits: Tensor) -> Tensor:
            flat = logits.flatten(0, 1)
            found, _, _ = token_losses(flat, targets.flatten(), group=self.vocabulary)
            return found.view(targets.shape)

        micro = (tokens, positions, documents)
        if self.pipeline is None:
            return of_logits(self.model(*micro))
        return self.pipeline.evaluate(
            micro, of_logits, torch.empty(targets.shape).to(tokens.device)
        )

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Name and parameter of what this rank holds."""
        return self.model.named_parameters()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters of what this rank holds."""
        return self.model.parameters()

    def train(self, mode: bool = True) -> None:
        """Set the mode of all modules, and let go of weights that evaluation has gathered."""
        self.model.train(mode)
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def eval(self) -> None:
        """As for evaluation."""
        self.train(False)


def _pipeline(model: Decoder, world: World, config: RunConfig) -> Pipeline:
    return Pipeline(
        model,
        world.mesh["pipeline"].get_group(),
        hidden=(config.context // world.layout.tensor, config.model.dim),
        dtype=getattr(torch, config.dtype),
        device=world.device,
    )


def parallelise(model: Decoder, world: World, config: RunConfig) -> ParallelModel:
    """Spread a whole model, alike on every rank, over the processes; it is changed in place."""
    layout, parallel, vocab_size = world.layout, config.parallel, model.lm_head.out_features
    if parallel.fp8:
        check_float8(world.device)
    if layout.pipeline > 1:
        keep_stage(model, world.mesh["pipeline"].get_local_rank(), layout.pipeline)
    if layout.tensor > 1:
        split_matrices(model, world.mesh["tensor"])
    experts = [] if world.experts is None else share_experts(model, world.experts["expert"])
    for block in model.layers:
        if parallel.fp8:
            use_float8(block)
        if parallel.recompute != "none":
            recompute_in_backward(block, parallel.recompute)
        if compiles(parallel.compile, world.device):
            whole = layout.tensor == 1 or parallel.recompute != "full"
            compile_block(block, getattr(torch, config.dtype), shared=bool(experts), whole=whole)
    shard(model, world, config.dtype, experts)
    return ParallelModel(model, world, config, vocab_size)


def shard(model: Decoder, world: World, dtype: str, experts: Sequence[nn.Module] = ()) -> None:
    """Shard over the data ranks, block by block; arithmetic in `dtype`, reductions in float32.

    `experts`: modules that are shared by ranks already; of them the ranks that hold the same ones
    shard what is left. Beside tensor parallelism mixtures of experts are sharded over all ranks
    that hold other tokens. Gathered weights are kept until the backward pass on a CPU (memory is
    plenty, messages are not) and in a pipeline (a stage would gather them for every micro-batch).
    """
    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, dtype) if dtype != "float32" else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    reshard = world.device.type == "cuda" and world.layout.pipeline == 1
    mixtures = [m for m in model.modules() if isinstance(m, MoE)] if world.tokens else []
    parts = [(module, data_mesh(world, world.experts, "expert_shard")) for module in experts]
    parts += [(module, data_mesh(world, world.tokens, "tokens")) for module in mixtures]
    parts += [(module, data_mesh(world, world.mesh, "shard")) for module in (*model.layers, model)]
    for module, mesh in parts:
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    # add gradients up over ranks, do not average them: the loss is scaled by the global count.
    # One process adds nothing up, and there a factor would cost a division of every gradient
    for module in model.modules():
        if isinstance(module, FSDPModule) and world.size > 1:
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


def data_mesh(world: World, mesh: DeviceMesh | None, name: str) -> DeviceMesh:
    """What FSDP2 shards over: a dimension of a mesh, or (replicate, `name`) of HSDP."""
    assert mesh is not None
    return mesh["replicate", name] if world.layout.replicate > 1 else mesh[name]
