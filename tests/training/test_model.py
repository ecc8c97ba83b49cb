from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from training.model import Decoder
from training.network.attention import rotate
from training.planning.flops import parameter_count
from training.recipes import RECIPES
from training.settings.model import ModelConfig

SMALL = ModelConfig(layers=2, dim=32, heads=4, kv_heads=2, ffn=64)


def build(config: ModelConfig = SMALL, seed: int = 0) -> Decoder:
    model = Decoder(config, 64, 32)
    model.init_weights(seed)
    return model.eval()


@pytest.mark.shared
@torch.no_grad()
def test_a_document_does_not_see_the_one_before_it_in_the_row(shared: Path) -> None:
    case = json.loads((shared / "cases/shards/two-docs-one-row.json").read_text())
    first, second = case["docs"]
    n = len(first)
    positions = torch.arange(n).repeat(2)[None]
    documents = torch.arange(2).repeat_interleave(n)[None]
    model = build()
    rows = [torch.tensor([start + second]) for start in (first, case["other_first_doc"])]
    ours, other = (model(row, positions, documents)[0, n:] for row in rows)
    alone = model(torch.tensor([second]))[0]
    assert (ours - other).abs().max() < 1e-5
    assert (ours - alone).abs().max() < 1e-5, "positions start again at 0"
    unmasked = [model(row)[0, n:] for row in rows]
    assert (unmasked[0] - unmasked[1]).abs().max() > 1e-3, "without the mask it does see it"


@torch.no_grad()
def test_no_token_sees_a_later_one() -> None:
    model, row = build(), torch.randint(0, 64, (1, 16))
    changed = row.clone()
    changed[0, 10:] = 1
    assert torch.equal(model(row)[0, :10], model(changed)[0, :10])


def test_initial_weights_are_a_function_of_the_seed() -> None:
    first, second = build(seed=1).state_dict(), build(seed=1).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], build(seed=2).state_dict()["lm_head.weight"])
    out = first["layers.0.mlp.down_proj.weight"].std()
    assert out == pytest.approx(0.02 / 2, rel=0.1), "residual projections: 1/sqrt(2 layers)"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", sorted(RECIPES))
def test_parameters_are_counted_without_building(name: str, tied: bool) -> None:
    config = RECIPES[name]().model.model_copy(update={"tied_embeddings": tied, "layers": 2})
    with torch.device("meta"):
        model = Decoder(config, 500, 16)
    assert sum(p.numel() for p in model.parameters()) == parameter_count(config, 500)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotation_on_a_cpu_is_the_plain_one(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 5, 3, 8, generator=draw).to(dtype).requires_grad_()
    angles = torch.rand(2, 5, 4, generator=draw) * 6
    gradient = torch.randn(2, 3, 5, 8, generator=draw).to(dtype)
    ours = rotate(x.transpose(1, 2), angles.cos(), angles.sin())
    ours.backward(gradient)
    found, x.grad = x.grad, None
    a, b = x.transpose(1, 2).float().chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    plain = torch.cat((a * cos - b * sin, a * sin + b * cos), -1).type_as(x)
    plain.backward(gradient)
    assert found is not None
    assert x.grad is not None
    close = 1e-6 if dtype == torch.float32 else 2e-2
    assert torch.allclose(ours, plain, atol=close)
    assert torch.allclose(found, x.grad, atol=close)
