"""Initial weights: a seed, one model, however it is split over processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from training.model import Decoder
from training.network.initial import BLOCK, draw
from training.settings.model import ModelConfig, MoeConfig

ROOT = Path(__file__).resolve().parents[3]
MIXED = ModelConfig(
    layers=2, dim=32, heads=2, kv_heads=1, ffn=64, tied_embeddings=True,
    moe=MoeConfig(n_experts=6, top_k=2, expert_ffn=16),
)  # fmt: skip


def test_values_are_cut_normal_and_a_function_of_the_key() -> None:
    rows = 3 * BLOCK // 1024 + 5  # a last block that is not whole
    first, second, other = (torch.nn.Parameter(torch.empty(rows, 1024)) for _ in range(3))
    draw(first, "1 a", 0.02)
    draw(second, "1 a", 0.02)
    draw(other, "1 b", 0.02)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert first.abs().max() <= 0.06 + 1e-7
    assert float(first.detach().std()) == pytest.approx(0.02 * 0.9866, rel=1e-3), (
        "of a normal cut at 3"
    )
    assert (first[0] - first[BLOCK // 1024]).abs().max() > 0.01, "blocks differ"


def test_residual_projections_are_smaller_and_norms_are_one() -> None:
    model = Decoder(MIXED, 64, 16)
    model.init_weights(3)
    weights = model.state_dict()
    for name, want in [
        ("embed_tokens.weight", 0.02),
        ("layers.0.self_attn.o_proj.weight", 0.01),
        ("layers.0.mlp.down_proj.weight", 0.01),
        ("layers.1.mlp.experts.down_proj", 0.01),
        ("layers.1.mlp.experts.gate_up_proj", 0.02),
        ("layers.1.mlp.gate.weight", 0.02),
    ]:
        assert float(weights[name].detach().std()) == pytest.approx(want, rel=0.15), name
    assert (weights["norm.weight"] == 1).all()
    assert (weights["layers.1.mlp.gate.e_score_correction_bias"] == 0).all()
    assert model.lm_head.weight is model.embed_tokens.weight


RANK = """
import sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module
from tests.training.network.test_initial import MIXED
from training.model import Decoder

dist.init_process_group("gloo")
whole = Decoder(MIXED, 64, 16)
whole.init_weights(3)
line = init_device_mesh("cpu", (4,))
square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
for way in ("shard", "replicate", "tensor", "columns"):
    with torch.device("meta"):
        model = Decoder(MIXED, 64, 16)
    mesh, kind = line, {}
    if way == "replicate":
        mesh = square
    if way == "tensor":
        mesh = square["a"]
        whole_in = RowwiseParallel(input_layouts=Replicate())
        plan = {"self_attn.o_proj": whole_in, "mlp.down_proj": whole_in}
        parallelize_module(model.layers[0], square["b"], plan)
    if way == "columns":
        kind = {"shard_placement_fn": lambda p: Shard(1) if p.ndim > 1 else None}
    for block in model.layers:
        fully_shard(block, mesh=mesh, **kind)
    fully_shard(model, mesh=mesh)
    model.to_empty(device="cpu")
    model.init_weights(3)
    names = [name for name, _ in model.named_parameters()]
    assert names == [name for name, _ in whole.named_parameters()], names
    for name, tensor in model.state_dict().items():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        assert torch.equal(full, whole.state_dict()[name]), (way, name)
    tokens = torch.arange(16)[None]
    assert (model(tokens) - whole(tokens)).abs().max() < 1e-5, way
print("equal")
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_model_built_without_storage_has_the_same_weights_at_any_sharding(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]
    done = subprocess.run(
        [*command, str(tmp_path / "rank.py")],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.stdout.count("equal") == 4, done.stderr[-3000:]
