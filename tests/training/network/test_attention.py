from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

from training.errors import RunConfigError
from training.model import Decoder
from training.network.attention import attend
from training.network.blockwise import Blockwise
from training.network.masks import (
    build_mask,
    choose,
    document_bounds,
    document_mask,
    varlen_call,
)
from training.settings.model import ModelConfig

SMALL = ModelConfig(layers=2, dim=32, heads=4, kv_heads=2, ffn=64)


def packed(length: int, *starts: list[int]) -> torch.Tensor:
    """Document numbers of rows whose documents begin at `starts`."""
    rows = torch.zeros(len(starts), length, dtype=torch.int64)
    for row, places in zip(rows, starts, strict=True):
        row[places] = 1
    return rows.cumsum(1)


@pytest.mark.parametrize(("length", "kv_heads"), [(1, 1), (128, 2), (129, 4), (300, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_by_blocks_equal_the_fused_kernel(
    length: int, kv_heads: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    documents = packed(length, [0, length // 3], [length // 2])
    shapes = [(2, 4, length, 16), (2, kv_heads, length, 16), (2, kv_heads, length, 16)]
    ours = [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]
    exact = [x.detach().float().requires_grad_() for x in ours]
    seen = document_mask(documents)
    want = F.scaled_dot_product_attention(*exact, attn_mask=seen, enable_gqa=True)
    got = attend(*ours, build_mask("blocks", documents, length, ours[0]))
    grad = torch.randn(want.shape, generator=generator)
    want.backward(grad)
    got.backward(grad.to(dtype))
    limit = 2e-6 if dtype == torch.float32 else 3e-2
    assert (got - want).abs().max() < limit
    for x, y in zip(ours, exact, strict=True):
        assert x.grad is not None
        assert y.grad is not None
        assert (x.grad - y.grad).abs().max() < limit * 4


def test_products_by_blocks_have_the_gradients_of_finite_differences() -> None:
    shapes = [(1, 2, 5, 4), (1, 1, 5, 4), (1, 1, 5, 4)]
    inputs = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    bias = build_mask("blocks", None, 5, inputs[0]).seen
    assert torch.autograd.gradcheck(lambda *x: Blockwise.apply(*x, bias), inputs)  # type: ignore[no-untyped-call]


@torch.no_grad()
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_every_kind_that_runs_here_gives_the_same_logits() -> None:
    model = Decoder(SMALL, 64, 48)
    model.init_weights(0)
    tokens = torch.randint(0, 64, (2, 48))
    documents = packed(48, [7, 30], [47])
    logits = {}
    for kind in ("sdpa", "blocks", "flex", "auto"):
        model.attention = kind  # type: ignore[assignment]
        logits[kind] = model(tokens, None, documents)
    assert all((found - logits["sdpa"]).abs().max() < 1e-5 for found in logits.values())
    model.attention = "sdpa"
    assert (model(tokens) - logits["sdpa"]).abs().max() > 1e-3


@torch.no_grad()
def test_flash_attention_would_see_the_documents_of_the_mask() -> None:
    documents = packed(16, [5, 6], [0], [15])
    bounds = document_bounds(documents).tolist()
    assert bounds[:7] == [0, 5, 6, 16, 32, 47, 48]
    assert set(bounds[6:]) == {48}, "filled up with documents of no tokens"
    q, k, v = (torch.randn(3, 2, 16, 8) for _ in range(3))
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=document_mask(documents))
    flat = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    parts = [
        F.scaled_dot_product_attention(*(x[a:z].transpose(0, 1) for x in flat), is_causal=True)
        for a, z in itertools.pairwise(bounds)
        if z > a
    ]
    got = torch.cat(parts, 1).transpose(0, 1).view(3, 16, 2, 8).transpose(1, 2)
    assert (got - want).abs().max() < 1e-5


def test_a_kind_that_cannot_run_here_is_refused() -> None:
    cpu = torch.device("cpu")
    assert choose("auto", cpu, torch.float32, 2048) == "blocks"
    assert choose("auto", cpu, torch.float32, 2049) == "sdpa"
    with pytest.raises(RunConfigError, match="'varlen', and it cannot run in bfloat16 on cpu"):
        choose("varlen", cpu, torch.bfloat16)
    with pytest.raises(RunConfigError, match="'flex', which has no backward pass on a CPU"):
        choose("flex", cpu, torch.float32)
    with torch.no_grad():
        assert choose("flex", cpu, torch.float32) == "flex"


def test_the_flash_kernel_is_called_as_this_torch_has_it() -> None:
    call = varlen_call()
    assert call is not None
    assert call[1] in ({"window_size": (-1, 0)}, {"is_causal": True})


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["varlen", "flex"])
def test_kernels_of_a_gpu_equal_the_mask(kind: str) -> None:
    documents = packed(256, [100, 130], [255]).cuda()
    inputs = [torch.randn(2, h, 256, 64, device="cuda", dtype=torch.bfloat16) for h in (4, 2, 2)]
    ours = [x.clone().requires_grad_() for x in inputs]
    theirs = [x.clone().requires_grad_() for x in inputs]
    got = attend(*ours, build_mask(kind, documents, 256, ours[0]))  # type: ignore[arg-type]
    want = attend(*theirs, build_mask("sdpa", documents, 256, theirs[0]))
    assert (got - want).abs().max() < 3e-2
    grad = torch.randn_like(want)
    got.backward(grad)
    want.backward(grad)
    for x, y in zip(ours, theirs, strict=True):
        assert x.grad is not None
        assert y.grad is not None
        assert (x.grad - y.grad).abs().max() < 1e-1
