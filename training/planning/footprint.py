"""Memory of one process of a run, from its shape alone: said before launch. No torch here.

P parameters of the largest stage of the pipeline, on S = shard x tensor processes; G of them a
process holds where none are sharded: those of routed experts divided by `expert`, the others by
`tensor`; b bytes of the arithmetic (2 in bfloat16); n tokens of a micro-batch, on `tensor`
processes.

    weights        4 P / S                 float32 (FSDP2)
    gradients      4 P / S
    optimiser      8 P / S                 two moments; Muon: 4 for the matrices of the layers
    gathered       b x G of two layers and what is outside of them, while a layer is computed; b G
                   on a CPU and in a pipeline, which keep what they have gathered
    accumulated    4 G                     gradients that wait for the last of several micro-batches
    activations    n / tensor x (what the layers keep for the backward pass, below)
    logits         n / tensor x b V, in place, and rows of 0.5 GiB in float32 (network.losses)
    context        2 GiB of a GPU (CUDA, NCCL), 0.5 GiB of a CPU process (torch)

A layer keeps, in bytes a token, with D features, H and K those of queries and keys, F of the block:

    eager          2 (8 + b) D + 8 (H + K) + b (2 H + 2 K + 4 F)    norms are float32 inside
    blocks also    b heads (T + 128) / 2                            weights of attention (on a CPU)
    sdpa also      b T + 4 heads                                    a mask, and sums of weights
    compiled       b (4 D + 3 H + 3 K + 3 F)                        norms and SiLU computed again
    experts        F = top_k x width, and shared ones;  + 2 b top_k D + 4 D + 4 experts

`recompute: full` keeps b D and one layer whole, `selective` also attention and every second matrix
product. A stage of a pipeline keeps as many micro-batches as there are stages (1F1B). The eager
form is tested against what autograd really keeps; the compiled one was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from training.errors import RunConfigError
from training.layouts.layout import Layout, check_layout
from training.planning.flops import (
    attention_parameters,
    ffn_parameters,
    norm_parameters,
    parameter_count,
)

if TYPE_CHECKING:
    from training.config import RunConfig

GIB = 2**30
CHUNK = GIB // 2
BLOCK, LONGEST_BLOCKS = 128, 2048  # of attention on a CPU, as in `training.network`
CONTEXT = {"cuda": 2 * GIB, "cpu": GIB // 2}


@dataclass(frozen=True)
class Device:
    """What a process runs on."""

    name: str
    kind: str
    """`cuda` or `cpu`."""
    memory: int | None
    """Bytes that one process may have; None where it is not known."""


@dataclass(frozen=True)
class Footprint:
    """Bytes of one process, by what they are for."""

    weights: int
    gradients: int
    optimiser: int
    gathered: int
    accumulated: int
    activations: int
    logits: int
    context: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(asdict(self).values())


def footprint(run: RunConfig, layout: Layout, vocab_size: int, kind: str) -> Footprint:
    """Memory of a process of `run` in this layout; `kind`: `cuda` or `cpu`."""
    b = 2 if run.dtype == "bfloat16" else 4
    micro, size = run.accumulation(layout.data_size)
    stage, layer, outside = _stage(run, layout, vocab_size)
    held = stage.total // (layout.shard * layout.tensor)
    moments = 8 * held
    if run.optimizer == "muon":
        moments -= 4 * (stage.total - outside) // (layout.shard * layout.tensor)
    tokens = size * run.context // layout.tensor
    in_flight = min(layout.pipeline, micro)
    kept = _kept(run, layout, kind) * tokens * in_flight
    logits = tokens * layout.tensor * vocab_size // layout.tensor
    chunk = min(4 * logits, CHUNK if kind == "cuda" else GIB // 1024)
    whole = stage.of_process(layout)
    gathered = whole
    if kind == "cuda" and layout.pipeline == 1:
        gathered = min(2 * layer.of_process(layout) + outside // layout.tensor, whole)
    return Footprint(
        weights=4 * held,
        gradients=4 * held,
        optimiser=moments,
        gathered=b * gathered if run.dtype != "float32" or layout.shard > 1 else 0,
        accumulated=4 * whole if micro > 1 and layout.shard > 1 else 0,
        activations=kept,
        logits=logits * (b if layout.tensor == 1 else b + 4) + chunk,
        context=CONTEXT[kind],
    )


@dataclass(frozen=True)
class _Weights:
    """Parameters of a stage or a layer."""

    total: int
    experts: int
    """Those of routed experts."""

    def of_process(self, layout: Layout) -> int:
        """What a process holds of them where none are sharded."""
        mixed = self.experts // layout.expert
        return mixed + (self.total - self.experts) // layout.tensor


def _stage(run: RunConfig, layout: Layout, vocab_size: int) -> tuple[_Weights, _Weights, int]:
    """The largest stage, the largest layer, and parameters that are outside of layers."""
    model = run.model
    layers = -(-model.layers // layout.pipeline)
    largest = attention_parameters(model) + max(
        ffn_parameters(model, number, active=False) for number in (0, model.layers - 1)
    )
    mixtures = sum(model.is_moe(n) for n in range(model.layers - layers, model.layers))
    moe = model.moe
    experts = 0 if moe is None else 3 * model.dim * moe.expert_ffn * moe.n_experts
    layer = _Weights(largest, experts)
    if layout.pipeline == 1:
        outside = vocab_size * model.dim * (1 if model.tied_embeddings else 2)
        total = parameter_count(model, vocab_size)
    else:
        outside = vocab_size * model.dim
        total = layers * largest + norm_parameters(model) + outside
    return _Weights(total, mixtures * experts), layer, outside


def _kept(run: RunConfig, layout: Layout, kind: str) -> int:
    """Bytes a token that the layers of a stage keep for the backward pass."""
    b = 2 if run.dtype == "bfloat16" else 4
    model = run.model
    layers = -(-model.layers // layout.pipeline)
    ours = range(model.layers - layers, model.layers)  # of a mixture those with experts
    whole = [layer_bytes(run, number, kind) for number in ours]
    ends = (8 + b) * model.dim  # the last norm
    if run.parallel.recompute == "none":
        return sum(whole) + ends
    each = b * model.dim
    if run.parallel.recompute == "selective":
        heads, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
        each += b * (2 * heads + keys + _width(run, model.layers - 1) + model.dim)
    return each * layers + max(whole) + ends


def _width(run: RunConfig, layer: int) -> int:
    """Features inside the feed-forward block that a token passes."""
    model = run.model
    if model.moe is None or not model.is_moe(layer):
        return model.ffn
    return model.moe.expert_ffn * (model.moe.top_k + model.moe.shared)


def layer_bytes(run: RunConfig, layer: int, kind: str) -> int:
    """Bytes a token that one layer keeps where nothing is computed again."""
    b = 2 if run.dtype == "bfloat16" else 4
    model = run.model
    heads, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    width = _width(run, layer)
    compiled = run.parallel.compile == "on" or (run.parallel.compile == "auto" and kind == "cuda")
    if compiled:
        kept = b * (4 * model.dim + 3 * heads + 3 * keys + 3 * width)
    else:
        norms = 2 * (8 + b) * model.dim + (8 * (heads + keys) if model.qk_norm else 0)
        kept = norms + b * (2 * heads + 2 * keys + 4 * width)
    if model.moe is not None and model.is_moe(layer):
        kept += 2 * b * model.moe.top_k * model.dim + 4 * model.dim + 4 * model.moe.n_experts
    if kind == "cpu":
        blocks = run.attention == "auto" and run.context <= LONGEST_BLOCKS
        if blocks or run.attention == "blocks":
            kept += b * model.heads * (run.context + BLOCK) // 2
        else:
            kept += b * run.context + 4 * model.heads
    return kept


def check_fit(run: RunConfig, processes: int, vocab_size: int, device: Device) -> Footprint:
    """The footprint of a process; RunConfigError saying by how much it is over, and what to change.

    Also raises what `check_layout` does. Nothing is refused where the memory is not known.
    """
    layout = check_layout(run, processes, vocab_size)
    found = footprint(run, layout, vocab_size, device.kind)
    if device.memory is None or found.total <= device.memory:
        return found
    over = found.total - device.memory
    largest = max(asdict(found).items(), key=lambda item: item[1])
    noun = "process" if processes == 1 else "processes"
    message = (
        f"a process of this run needs about {found.total / GIB:.1f} GiB on {processes} {noun}, "
        f"and {device.name} has {device.memory / GIB:.1f}: {over / GIB:.1f} GiB too much "
        f"({largest[0]} take {largest[1] / GIB:.1f})"
    )
    raise RunConfigError(message, hint=_what_to_change(run, processes, vocab_size, device))


def _what_to_change(run: RunConfig, processes: int, vocab_size: int, device: Device) -> str:
    """The least change that makes it fit."""
    for other, count, told in _changes(run, processes, device.kind):
        try:
            layout = check_layout(other, count, vocab_size)
            needed = footprint(other, layout, vocab_size, device.kind).total
        except RunConfigError:
            continue
        if needed <= (device.memory or 0):
            return f"{told} makes it {needed / GIB:.1f} GiB"
    return "take a smaller model, a shorter context, or devices with more memory"


def _changes(run: RunConfig, processes: int, kind: str) -> Iterator[tuple[Any, int, str]]:
    """(run, processes, in words), the cheapest first."""
    micro = [n for n in (1, 2, 4, 8, 16, 32) if n < run.micro_batch]
    smaller = [(n, f"micro_batch: {n}") for n in reversed(micro)]
    recompute = ["selective", "full"] if run.parallel.recompute == "none" else ["full"]
    for mode in ["", *recompute]:
        told = f"parallel.recompute: {mode}" if mode else ""
        changed = {"parallel": run.parallel.model_copy(update={"recompute": mode})} if mode else {}
        for size, words in [(run.micro_batch, ""), *smaller]:
            update = changed | {"micro_batch": size}
            if told or words:
                both = ", ".join(part for part in (told, words) if part)
                yield run.model_copy(update=update), processes, both
    if kind == "cuda":
        full = {"parallel": run.parallel.model_copy(update={"recompute": "full"}), "micro_batch": 1}
        for times in (2, 4, 8, 16, 32, 64, 128):
            count = processes * times
            told = f"{count} GPUs, parallel.recompute: full, micro_batch: 1"
            yield run.model_copy(update=full), count, told
