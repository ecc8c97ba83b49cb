"""Named recipes: functions that return every setting of a training run. No torch here.

A run file names a recipe and overrides single keys of it; `training.config` merges the two. Sources
of the numbers: AdamW betas, weight decay and clip are those of Llama 2 (arXiv:2307.09288);
initialisation with scaled residual projections is GPT-2's; QK-norm and the export layout are
Qwen3's (arXiv:2505.09388).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from training.settings.data import RampStage
from training.settings.model import AttentionKind, ModelConfig, MoeConfig
from training.settings.section import Section
from training.settings.spikes import SpikeConfig

Beta = Annotated[float, Field(ge=0, lt=1)]


class Recipe(Section):
    """Everything that shapes a run but its data, its length and its place."""

    model: ModelConfig = ModelConfig()
    context: int = Field(default=256, ge=8, le=1_048_576)
    """Tokens of one sequence."""
    global_batch: int = Field(default=16, ge=1, le=1_000_000)
    """Sequences of one step, over all ranks."""
    batch_ramp: list[RampStage] = Field(default=[])
    """Smaller global batches at the start, each up to a token count."""
    packing: Literal["best_fit", "concatenate"] = "best_fit"
    """How documents fill sequences; see `training.rows`."""
    micro_batch: int = Field(default=8, ge=1, le=65_536)
    """Most sequences that one rank holds at a time; it sets memory, not the result."""
    lr: float = Field(default=3e-3, gt=0, le=1)
    schedule: Literal["wsd", "cosine", "linear"] = "wsd"
    """How the learning rate falls; see `training.schedule`."""
    decay_share: float = Field(default=0.2, ge=0, le=1)
    """Share of the steps, the last ones, in which `wsd` falls."""
    min_lr_ratio: float | None = Field(default=None, ge=0, le=1)
    """Learning rate at the end as a share of `lr`; default: 0, with `cosine` 0.1."""
    warmup: int = Field(default=20, ge=0)
    """Most warm-up steps; a short run takes a tenth of its steps."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """`muon`: Muon for the matrices inside the blocks, AdamW for the rest; see `training.muon`."""
    momentum: float = Field(default=0.95, ge=0, lt=1)
    """Of Muon."""
    betas: list[Beta] = Field(default=[0.9, 0.95], min_length=2, max_length=2)
    eps: float = Field(default=1e-8, gt=0, lt=1e-2)
    weight_decay: float = Field(default=0.1, ge=0, le=1)
    """On matrices; none on norms and embeddings."""
    clip: float = Field(default=1.0, gt=0, le=1000)
    """Most norm of the gradient over all parameters."""
    z_loss: float = Field(default=1e-5, ge=0, le=1)
    """Weight of the squared log-normaliser of the predictions (PaLM, arXiv:2204.02311), which keeps
    logits from drifting; the reported loss is without it. 1e-5 is OLMo 2's (arXiv:2501.00656)."""
    spikes: SpikeConfig = SpikeConfig()
    max_skips: int = Field(default=10, ge=1)
    """Steps skipped in a row (loss or gradient not finite) that end the run."""
    attention: AttentionKind = "auto"
    """The kernel of attention (`training.network.masks`); sets speed and memory, not the result."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Arithmetic of forward and backward; weights, reductions and the optimiser stay in float32."""
    second_epoch: bool = True
    """At the end of the data: start a further pass, counted, or (false) stop with a message."""
    eval_every: int = Field(default=50, ge=0)
    """Steps between held-out evaluations; 0: only at the end."""
    eval_rows: int = Field(default=64, ge=1)
    """Most held-out sequences of one evaluation during training."""


SMALL_BATCH = SpikeConfig(norm_floor=6.0)
"""Norms of batches of some thousand tokens have a long tail; see `SpikeConfig.norm_floor`."""


def tiny_cpu() -> Recipe:
    """1.8M parameters at a vocabulary of 4,096: a minute on two CPU cores; demo and tests."""
    return Recipe(spikes=SMALL_BATCH)


def small_cpu() -> Recipe:
    """A model of 6 layers x 384, 16M parameters at a vocabulary of 8,192: about an hour on CPUs."""
    model = ModelConfig(layers=6, dim=384, heads=6, kv_heads=2, ffn=1024)
    return Recipe(
        model=model,
        context=512,
        global_batch=32,
        micro_batch=4,
        lr=1e-3,
        warmup=100,
        eval_every=100,
        spikes=SMALL_BATCH,
    )


def tiny_moe_cpu() -> Recipe:
    """tiny_cpu with 16 experts of 64, 4 and a shared one active: 2.6M parameters, 1.8M a token."""
    experts = MoeConfig(n_experts=16, top_k=4, expert_ffn=64, shared=1, first_dense=1)
    return Recipe(model=ModelConfig(moe=experts), spikes=SMALL_BATCH)


def dense_1b() -> Recipe:
    """The shape of Llama-3.2-1B, with QK-norm: 1.24B parameters at its vocabulary of 128,256.

    Rate, batch (2M tokens) and warm-up are OLMo 2's for 1B (arXiv:2501.00656).
    """
    model = ModelConfig(
        layers=16, dim=2048, heads=32, kv_heads=8, ffn=8192, tied_embeddings=True,
        rope_theta=500_000, norm_eps=1e-5,
    )  # fmt: skip
    return Recipe(
        model=model,
        context=4096,
        global_batch=512,
        micro_batch=8,
        lr=4e-4,
        warmup=2000,
        dtype="bfloat16",
        eval_every=1000,
        eval_rows=1024,
    )


def dense_8b() -> Recipe:
    """The shape of Llama-3.1-8B, with QK-norm: 8.03B parameters at its vocabulary of 128,256.

    Rate and theta are those of Llama 3 8B (arXiv:2407.21783, table 3), batch (4M tokens) and
    warm-up those of Llama 2 (arXiv:2307.09288): the newer report has them for 405B alone.
    """
    model = ModelConfig(
        layers=32, dim=4096, heads=32, kv_heads=8, ffn=14_336, rope_theta=500_000, norm_eps=1e-5
    )
    return Recipe(
        model=model,
        context=8192,
        global_batch=512,
        micro_batch=1,
        lr=3e-4,
        warmup=2000,
        dtype="bfloat16",
        eval_every=1000,
        eval_rows=1024,
    )


def moe_7b_a1b() -> Recipe:
    """64 experts, 8 and a shared one active: 6.9B parameters at a vocabulary of 128,256.

    A token passes 1.1B of them besides the embeddings.

    Layers, width, experts, rate, batch (4M tokens) and warm-up are those of OLMoE-1B-7B
    (arXiv:2409.02060), which has 16 key heads, theta 10,000 and no shared expert; router, shared
    expert and the weight of the balance loss are DeepSeek-V3's (arXiv:2412.19437), one dense layer
    below is dots.llm1's, in whose layout it is exported.
    """
    experts = MoeConfig(
        n_experts=64, top_k=8, expert_ffn=1024, shared=1, first_dense=1, aux_loss=1e-4
    )
    model = ModelConfig(
        layers=16, dim=2048, heads=16, kv_heads=8, ffn=9216, rope_theta=500_000, moe=experts
    )
    return Recipe(
        model=model,
        context=4096,
        global_batch=1024,
        micro_batch=4,
        lr=4e-4,
        warmup=2500,
        dtype="bfloat16",
        eval_every=1000,
        eval_rows=1024,
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (tiny_cpu, small_cpu, tiny_moe_cpu, dense_1b, dense_8b, moe_7b_a1b)
}
