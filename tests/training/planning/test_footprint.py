"""Memory of a process: against what autograd and the optimiser really hold, and the refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from training.config import RunConfig
from training.errors import RunConfigError
from training.layouts.layout import Layout
from training.model import Decoder
from training.network.blockwise import BLOCK
from training.network.masks import LONGEST_BLOCKS
from training.planning import footprint as footprint_module
from training.planning.flops import parameter_count
from training.planning.footprint import GIB, Device, check_fit, footprint, layer_bytes
from training.recipes import RECIPES

H100 = Device("H100", "cuda", round(79.6 * GIB))


def run_of(recipe: str, **keys: Any) -> RunConfig:
    settings = RECIPES[recipe]().model_dump() | {"steps": 1000, "warmup_steps": 10}
    place = Path("nowhere")
    places = {"shards": [place], "tokenizer": place, "out": place, "parent_root": place}
    return RunConfig(**settings | places | {"name": "r", "recipe": recipe} | keys)


def kept_by_autograd(run: RunConfig, vocab_size: int) -> float:
    """Bytes a token that the last layer keeps for the backward pass."""
    model = Decoder(run.model, vocab_size, run.context, run.attention)
    model.init_weights(0)
    model.to(getattr(torch, run.dtype))
    known = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    kept: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in known:
            kept[place] = tensor  # alive, so that no other takes its place
        return tensor

    tokens = torch.zeros(2, run.context, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        x = model.embed_tokens(tokens)
        ready = model.prepare(x, None, torch.zeros_like(tokens))
        kept.clear()
        model.layers[-1](x.detach().requires_grad_(), *ready)
    return sum(t.untyped_storage().nbytes() for t in kept.values()) / tokens.numel()


@pytest.mark.parametrize("recipe", ["tiny_cpu", "tiny_moe_cpu"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("context", "attention"), [(256, "auto"), (1024, "auto"), (512, "sdpa"), (2049, "auto")]
)
def test_activations_are_those_that_autograd_keeps(
    recipe: str, dtype: str, context: int, attention: str
) -> None:
    run = run_of(recipe, dtype=dtype, context=context, attention=attention)
    told = layer_bytes(run, run.model.layers - 1, "cpu")
    assert told == pytest.approx(kept_by_autograd(run, 500), rel=0.06)


def test_weights_and_moments_are_shared_out() -> None:
    run = run_of("dense_8b")
    n = 8_030_000_000
    for shard in (8, 64):
        found = footprint(run, Layout(1, 1, shard, 1, 1), 128_256, "cuda")
        assert found.weights + found.gradients + found.optimiser == pytest.approx(
            16 * n / shard, rel=1e-3
        )
    twice = footprint(run, Layout(1, 8, 8, 1, 1), 128_256, "cuda")
    assert twice.weights == footprint(run, Layout(1, 1, 8, 1, 1), 128_256, "cuda").weights
    muon = footprint(run_of("dense_8b", optimizer="muon"), Layout(1, 1, 8, 1, 1), 128_256, "cuda")
    assert muon.optimiser < 0.6 * twice.optimiser


def test_the_limits_are_those_of_the_network() -> None:
    assert (footprint_module.BLOCK, footprint_module.LONGEST_BLOCKS) == (BLOCK, LONGEST_BLOCKS)


def test_experts_are_gathered_and_accumulated_by_the_ranks_that_hold_them() -> None:
    run = run_of("moe_7b_a1b")
    assert run.model.moe is not None
    experts = 15 * 64 * 3 * 2048 * 1024
    others = parameter_count(run.model, 128_256) - experts
    alone = footprint(run, Layout(1, 1, 8, 1, 1), 128_256, "cuda")
    shared = footprint(run, Layout(1, 1, 8, 1, 8), 128_256, "cuda")
    assert alone.weights == shared.weights
    assert alone.accumulated == 4 * (experts + others)
    assert shared.accumulated == 4 * (experts // 8 + others)
    assert alone.gathered - shared.gathered == 2 * 2 * (experts // 15) * 7 // 8
    # tensor parallelism does not cut experts, and FSDP2 gathers them whole
    split = footprint(run, Layout(1, 1, 4, 2, 1), 128_256, "cuda")
    assert split.accumulated == 4 * (experts + others // 2)


def test_what_was_gathered_is_kept_in_a_pipeline_and_on_a_cpu() -> None:
    run = run_of("dense_8b")
    stage = footprint(run, Layout(2, 1, 4, 1, 1), 128_256, "cuda")
    assert stage.gathered == pytest.approx(2 * 4 * stage.weights / 4, rel=1e-6)
    small = run_of("tiny_cpu")
    here = footprint(small, Layout(1, 1, 2, 1, 1), 500, "cpu")
    assert here.gathered == pytest.approx(2 * here.weights, rel=1e-6)
    assert footprint(small, Layout(1, 1, 1, 1, 1), 500, "cpu").gathered == 0


def test_a_model_that_fits_and_one_that_does_not() -> None:
    selective = {"parallel": {"recompute": "selective"}}
    assert check_fit(run_of("dense_8b", **selective), 64, 128_256, H100)
    with pytest.raises(RunConfigError, match=r"on 2 processes, and H100 has 79.6: ") as caught:
        check_fit(run_of("dense_8b"), 2, 128_256, H100)
    assert caught.value.hint
    assert "GiB" in caught.value.hint
    unknown = Device("some GPU", "cuda", None)
    assert check_fit(run_of("dense_8b"), 2, 128_256, unknown).total > 100 * GIB


def test_the_limit_is_exact_and_the_hint_helps() -> None:
    run = run_of("dense_1b")
    need = check_fit(run, 8, 128_256, Device("x", "cuda", None)).total
    assert check_fit(run, 8, 128_256, Device("x", "cuda", need))
    with pytest.raises(RunConfigError, match=r"0\.0 GiB too much") as caught:
        check_fit(run, 8, 128_256, Device("x", "cuda", need - 1))
    assert (caught.value.hint or "").startswith("micro_batch: 4 makes it ")
    smaller = run.model_copy(update={"micro_batch": 4})
    assert check_fit(smaller, 8, 128_256, Device("x", "cuda", need - 1))


def test_recomputing_keeps_less() -> None:
    def kept(mode: str) -> int:
        run = run_of("dense_8b", parallel={"recompute": mode})
        return footprint(run, Layout(1, 1, 8, 1, 1), 128_256, "cuda").activations

    assert kept("none") > 2 * kept("selective") > 2 * kept("full") > 0


def test_layouts_that_do_not_divide_are_refused_first() -> None:
    with pytest.raises(RunConfigError, match="cannot be shared by 3 processes"):
        check_fit(run_of("dense_8b"), 3, 128_256, H100)
