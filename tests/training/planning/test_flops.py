from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from training.model import Decoder
from training.planning.flops import (
    active_parameters,
    flops_per_token,
    matrix_parameters,
    parameter_count,
    peak_flops,
)
from training.recipes import RECIPES
from training.settings.model import ModelConfig, MoeConfig

LLAMA_3_1_8B = ModelConfig(
    layers=32, dim=4096, heads=32, kv_heads=8, ffn=14_336, qk_norm=False, rope_theta=500_000
)
QWEN3_30B_A3B_LIKE = ModelConfig(
    layers=48, dim=2048, heads=32, kv_heads=4, head_size=128, ffn=6144, rope_theta=1e6,
    moe=MoeConfig(n_experts=128, top_k=8, expert_ffn=768, shared=1, first_dense=0),
)  # fmt: skip


def test_published_shapes_have_their_published_number_of_parameters() -> None:
    assert parameter_count(LLAMA_3_1_8B, 128_256) == 8_030_261_248
    small = ModelConfig(
        layers=16, dim=2048, heads=32, kv_heads=8, ffn=8192, qk_norm=False, tied_embeddings=True
    )
    assert parameter_count(small, 128_256) == 1_235_814_400, "Llama-3.2-1B"
    shared = 48 * 3 * 2048 * 768  # Qwen3-30B-A3B has no shared expert
    assert parameter_count(QWEN3_30B_A3B_LIKE, 151_936) - shared == 30_532_122_624
    assert round((active_parameters(QWEN3_30B_A3B_LIKE, 151_936) - shared) / 1e9, 1) == 3.4


def test_the_operations_of_llama_8b_are_those_counted_by_hand() -> None:
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14_336
    weights = 32 * layer + 128_256 * 4096
    attention = 32 * 2 * (2 * 4096) * (8192 // 2) * 3  # scores and values, half the pairs, fwd+bwd
    assert flops_per_token(LLAMA_3_1_8B, 128_256, 8192) == 6 * weights + attention
    assert active_parameters(LLAMA_3_1_8B, 128_256) == parameter_count(LLAMA_3_1_8B, 128_256)


@pytest.mark.parametrize("tied", [True, False])
def test_the_operations_are_those_that_torch_counts(tied: bool) -> None:
    c = ModelConfig(layers=2, dim=32, heads=4, kv_heads=2, ffn=64, tied_embeddings=tied)
    context = 16
    model = Decoder(c, 50, context)
    model.init_weights(0)
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(2, context, dtype=torch.int64)).sum().backward()
    counted = counter.get_flop_counts()["Global"]
    # in one block of queries the masked half of all pairs is computed too
    masked = 6 * c.layers * c.dim * context
    want = 2 * context * (flops_per_token(c, 50, context) + masked)
    assert sum(counted.values()) == want
    assert matrix_parameters(c, 50) == 2 * (3 * 32 * 32 + 3 * 32 * 64) + 50 * 32


def test_peaks_are_found_by_the_device_name() -> None:
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("NVIDIA H200") == 989e12
    assert peak_flops("NVIDIA H200", "float8") == 1979e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_flops("NVIDIA A100-SXM4-80GB", "float8") is None
    assert peak_flops("NVIDIA L40S") == 362e12, "not the L40's, nor the L4's"
    assert peak_flops("NVIDIA L4", "float32") == 30.3e12
    assert peak_flops("AMD EPYC 9R14") is None


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [("dense_1b", 1.24, 1.24), ("dense_8b", 8.03, 8.03), ("moe_7b_a1b", 6.92, 1.63)],
)
def test_recipes_are_as_big_as_their_names_say(name: str, total: float, active: float) -> None:
    model = RECIPES[name]().model
    assert round(parameter_count(model, 128_256) / 1e9, 2) == total
    assert round(active_parameters(model, 128_256) / 1e9, 2) == active
