from __future__ import annotations

import pytest
import torch
from torch import nn

from training.errors import RunConfigError
from training.layouts.float8 import Float8Linear, check_float8, to_float8, use_float8


def test_products_and_gradients_are_near_those_in_bfloat16() -> None:
    torch.manual_seed(0)
    plain = nn.Linear(64, 48, bias=False).bfloat16()
    block = nn.Sequential(nn.Linear(64, 48, bias=False), nn.Linear(48, 40, bias=False)).bfloat16()
    block[0].load_state_dict(plain.state_dict())
    assert use_float8(block) == ["0"], "40 is no multiple of 16"
    assert isinstance(block[0], Float8Linear)
    assert [n for n, _ in block.named_parameters()] == ["0.weight", "1.weight"]
    x = torch.randn(2, 16, 64, dtype=torch.bfloat16)
    seen = []
    for layer in (plain, block[0]):
        given = x.clone().requires_grad_()
        out = layer(given)
        out.backward(torch.sin(torch.arange(out.numel())).view_as(out).bfloat16())
        seen.append((out.detach(), given.grad, layer.weight.grad))
    for ours, theirs in zip(seen[1], seen[0], strict=True):
        assert ours is not None
        assert theirs is not None
        off = (ours - theirs).float().norm() / theirs.float().norm()
        assert 0 < off < 0.08, "e4m3 keeps 4 bits of a number, e5m2 keeps 3"


@pytest.mark.parametrize("size", [1e-6, 1.0, 3e4])
def test_any_range_of_values_uses_the_whole_format(size: float) -> None:
    x = torch.linspace(-size, size, 101)
    values, scale = to_float8(x, torch.float8_e4m3fn)
    assert values.float().abs().max() == torch.finfo(torch.float8_e4m3fn).max
    assert torch.allclose(values.float() * scale, x, atol=size * 0.04)
    zeros, scale = to_float8(torch.zeros(4), torch.float8_e5m2)
    assert not zeros.float().any()
    assert torch.isfinite(scale)


def test_float8_is_refused_where_it_cannot_run() -> None:
    with pytest.raises(RunConfigError, match="runs on cpu"):
        check_float8(torch.device("cpu"))
