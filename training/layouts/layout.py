"""How many processes do what: the degrees of the mesh, checked before anything starts. No torch.

    world = pipeline x replicate x shard x tensor

`pipeline` stages of layers, each on `replicate` groups that hold the whole stage, each sharded over
`shard` processes, each of which is `tensor` processes that share every matrix product. `shard` is
what is left of the world; `expert` neighbours among shard x tensor processes share the experts of
a mixture. Ranks that differ in replicate or shard read different sequences: `data_size` of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from training.errors import RunConfigError

if TYPE_CHECKING:
    from training.config import RunConfig
    from training.settings.model import ModelConfig
    from training.settings.parallel import ParallelConfig


@dataclass(frozen=True)
class Layout:
    """Degrees of the mesh; their product, without `expert`, is the world."""

    pipeline: int
    replicate: int
    shard: int
    tensor: int
    expert: int

    @property
    def data_size(self) -> int:
        """Ranks that read different sequences."""
        return self.replicate * self.shard

    @classmethod
    def of(cls, parallel: ParallelConfig, world: int) -> Layout:
        """The layout of `world` processes; RunConfigError where the degrees do not divide it."""
        fixed = parallel.pipeline * parallel.replicate * parallel.tensor
        if world % fixed:
            given = _named(pipeline=parallel.pipeline, replicate=parallel.replicate,
                           tensor=parallel.tensor)  # fmt: skip
            message = f"{world} processes cannot be shared out by parallel: {given}"
            hint = f"start a multiple of {fixed} processes (nproc_per_node x nodes), or lower one"
            raise RunConfigError(message, hint=hint)
        shard = world // fixed
        wide = shard * parallel.tensor
        if wide % parallel.expert:
            message = (
                f"parallel.expert {parallel.expert} must divide the {wide} processes that hold "
                f"one stage together"
            )
            hint = f"set parallel.expert to one of {_divisors(wide)}"
            raise RunConfigError(message, hint=hint)
        return cls(parallel.pipeline, parallel.replicate, shard, parallel.tensor, parallel.expert)

    def __str__(self) -> str:
        names = ("pipeline", "replicate", "shard", "tensor", "expert")
        used = {name: getattr(self, name) for name in names if getattr(self, name) > 1}
        return _named(**used) if used else "one process"


def check_layout(config: RunConfig, world: int, vocab_size: int | None = None) -> Layout:
    """The layout of a run on `world` processes, or RunConfigError naming key, value and fix.

    Callable before launch: it reads nothing and needs no torch. `vocab_size`: where it is known.
    """
    layout = Layout.of(config.parallel, world)
    model = config.model
    if layout.tensor > 1:
        _check_tensor(layout.tensor, model, config.context, vocab_size)
        if config.parallel.fp8:
            message = f"parallel.fp8 does not go with parallel.tensor {layout.tensor}"
            raise RunConfigError(message, hint="set parallel.tensor: 1, or parallel.fp8: false")
    if config.parallel.fp8 and config.dtype != "bfloat16":
        message = f"parallel.fp8 does not go with dtype {config.dtype}"
        raise RunConfigError(message, hint="set dtype: bfloat16, or parallel.fp8: false")
    if config.parallel.compile == "on" and model.moe and config.dtype != "bfloat16":
        # compiled, torch knows the grouped product of the experts in bfloat16 only
        message = f"parallel.compile 'on' does not go with model.moe in {config.dtype}"
        raise RunConfigError(message, hint="set dtype: bfloat16, or parallel.compile: off")
    if layout.pipeline > 1:
        _check_pipeline(layout.pipeline, model)
    if layout.expert > 1:
        _check_expert(layout.expert, model)
    config.accumulation(layout.data_size)
    return layout


def _check_tensor(tensor: int, model: ModelConfig, context: int, vocab_size: int | None) -> None:
    shared = {
        "model.heads": model.heads,
        "model.kv_heads": model.kv_heads,
        "model.ffn": model.ffn,
        "context": context,  # between the matrix products every rank holds a part of the sequence
        "vocabulary": vocab_size,
    }
    for key, value in shared.items():
        if value is not None and value % tensor:
            message = f"{key} {value} cannot be shared by parallel.tensor {tensor}"
            hint = f"set parallel.tensor to one of {_divisors(value)[:8]}, or change {key}"
            raise RunConfigError(message, hint=hint)
    if model.moe and model.moe.aux_loss:
        # it is a loss of whole sequences, of which a rank sees a part
        message = f"parallel.tensor {tensor} does not go with model.moe.aux_loss"
        raise RunConfigError(message, hint="set model.moe.aux_loss: 0 (the bias levels the load)")


def _check_pipeline(pipeline: int, model: ModelConfig) -> None:
    if pipeline > model.layers:
        message = f"parallel.pipeline {pipeline} is more than model.layers {model.layers}"
        raise RunConfigError(message, hint=f"set parallel.pipeline to {model.layers} or less")
    if model.tied_embeddings:
        message = f"parallel.pipeline {pipeline} cannot share model.tied_embeddings between stages"
        raise RunConfigError(message, hint="set model.tied_embeddings: false, or pipeline: 1")


def _check_expert(expert: int, model: ModelConfig) -> None:
    if model.moe is None:
        message = f"parallel.expert is {expert}, and the model has no experts (model.moe)"
        raise RunConfigError(message, hint="set parallel.expert: 1, or choose a mixture's recipe")
    experts = model.moe.n_experts
    if experts % expert:
        message = f"model.moe.n_experts {experts} cannot be shared by parallel.expert {expert}"
        raise RunConfigError(message, hint=f"set it to one of {_divisors(experts)[:8]}")


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _named(**degrees: int) -> str:
    return ", ".join(f"{name} {degree}" for name, degree in degrees.items())
