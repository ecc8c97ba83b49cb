from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.miniature import lines, program, torchrun, write_run
from training.config import load_run
from training.layouts.compiling import compile_block, compiles
from training.layouts.norms import clip_gradients, gradient_norm
from training.layouts.pipelining import keep_stage, layers_of_stage
from training.layouts.recompute import recompute_in_backward
from training.model import Decoder
from training.parallel import parallelise
from training.settings.model import ModelConfig
from training.world import World

SHAPE = {"layers": 3, "dim": 32, "heads": 4, "kv_heads": 2, "ffn": 64}


def decoder(**keys: Any) -> Decoder:
    model = Decoder(ModelConfig.model_validate(SHAPE | keys), 300, 32)
    model.init_weights(0)
    return model


def fields(sequences: int = 4) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(0, 300, (2, sequences, 32), generator=draw)
    positions = torch.arange(16).repeat(2).expand(sequences, -1)
    documents = torch.arange(2).repeat_interleave(16).expand(sequences, -1)
    return [tokens, positions, documents, positions < 14, targets]


@pytest.mark.slow
@pytest.mark.long
def test_a_run_goes_on_in_another_layout_with_the_same_losses(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "steps": 6,
        "model": SHAPE,
        "eval_every": 3,
        "watch": {"weights_every": 3},
        "checkpoint_every": 3,
    }
    one = write_run(tmp_path, "one", **keys)
    assert program(one).returncode == 0
    grid = {"parallel": {"tensor": 2, "pipeline": 2}, "stop_after": 3}
    many = write_run(tmp_path, "many", **keys | grid)
    for run, world in ((many, 4), (write_run(tmp_path, "many", **keys), 2)):
        done = torchrun(run, world)
        assert done.returncode == 0, done.stderr
    assert [x["batch_checksum"] for x in lines(many)] == [x["batch_checksum"] for x in lines(one)]
    for name in ("loss", "grad_norm", "entropy", "z_loss"):
        found = [line[name] for line in lines(many)]
        assert found == pytest.approx([line[name] for line in lines(one)], rel=1e-5), name
    # the update is estimated from some weights, others in another layout
    allowed = {"held_out_bits_per_byte": 1e-6, "param_norm": 1e-5, "update_ratio": 2e-2}
    for name, off in allowed.items():
        found = [line[name] for line in lines(many) if name in line]
        expected = [line[name] for line in lines(one) if name in line]
        assert len(found) == 2
        assert found == pytest.approx(expected, rel=off), name


@pytest.mark.slow
def test_the_load_of_experts_is_told_of_all_stages(tmp_path: Path) -> None:
    moe = {"n_experts": 4, "top_k": 2, "expert_ffn": 16, "first_dense": 2}
    keys: dict[str, Any] = {"steps": 2, "model": SHAPE | {"layers": 4, "moe": moe}}
    one = write_run(tmp_path, "one", **keys)
    # the first stage, which writes the metrics, has no experts
    many = write_run(tmp_path, "many", **keys, parallel={"pipeline": 2})
    assert program(one).returncode == 0
    done = torchrun(many, 2)
    assert done.returncode == 0, done.stderr
    for name in ("experts/most", "experts/least", "experts/idle"):
        assert [line[name] for line in lines(many)] == [line[name] for line in lines(one)]


def test_a_layout_that_does_not_fit_ends_before_work_starts(tmp_path: Path) -> None:
    run = write_run(tmp_path, "odd", parallel={"tensor": 2})
    done = program(run)
    assert done.returncode == 2
    assert "1 processes cannot be shared out by parallel" in done.stderr
    assert "hint:" in done.stderr
    assert not (tmp_path / "checkpoints" / "odd" / "metrics.jsonl").exists()


def test_stages_hold_every_layer_once_under_its_own_name() -> None:
    assert [len(layers_of_stage(7, s, 3)) for s in range(3)] == [3, 2, 2]
    whole, names = dict(decoder().named_parameters()), []
    for stage in range(3):
        part = decoder()
        keep_stage(part, stage, 3)
        for name, parameter in part.named_parameters():
            assert torch.equal(parameter, whole[name])
            names.append(name)
    assert sorted(names) == sorted(whole)


def test_stages_one_after_the_other_are_the_model() -> None:
    tokens, positions, documents, _, _ = fields()
    passed: torch.Tensor = tokens
    for stage in range(2):
        part = decoder()
        keep_stage(part, stage, 2)
        passed = part(passed, positions, documents)
    assert torch.equal(passed, decoder()(tokens, positions, documents))


@pytest.mark.parametrize("mode", ["selective", "full"])
def test_recomputing_changes_neither_names_nor_gradients(mode: Any) -> None:
    plain, again = decoder(), decoder()
    for block in again.layers:
        recompute_in_backward(block, mode)
    tokens, positions, documents, _, targets = fields()
    for model in (plain, again):
        logits = model(tokens, positions, documents).flatten(0, 1)
        nn.functional.cross_entropy(logits, targets.flatten()).backward()
    assert [n for n, _ in again.named_parameters()] == [n for n, _ in plain.named_parameters()]
    for ours, theirs in zip(again.parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-7)


def test_recomputing_keeps_fewer_activations() -> None:
    kept = {}
    for mode in ("none", "selective", "full"):
        model = decoder()
        for block in model.layers:
            if mode != "none":
                recompute_in_backward(block, mode)
        sizes: list[int] = []

        def pack(tensor: torch.Tensor, into: list[int] = sizes) -> torch.Tensor:
            into.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(*fields()[:3])
        kept[mode] = sum(sizes)
    assert kept["full"] < kept["none"] / 2
    assert kept["full"] <= kept["selective"] < kept["none"]


def test_gradients_of_one_process(tmp_path: Path, world: World) -> None:
    config = load_run(write_run(tmp_path, model=SHAPE, context=32, micro_batch=2, z_loss=0.0))
    spread = parallelise(decoder(), world, config)
    given = fields()
    sums, per_sequence = spread.accumulate(given, torch.tensor(1 / given[3].sum().item()))
    plain = decoder()
    logits = plain(*given[:3])
    wanted = torch.where(given[3], given[4], -100)
    nats = nn.functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
    (nats.sum() / given[3].sum()).backward()
    assert float(sums[0]) == pytest.approx(nats.sum().item(), rel=1e-6)
    assert torch.allclose(per_sequence[:, 0], nats.sum(1).detach(), rtol=1e-5)
    assert per_sequence[:, 1].tolist() == [28.0] * 4

    norm = gradient_norm(spread.parameters(), world)
    expected = nn.utils.get_total_norm([p.grad for p in plain.parameters() if p.grad is not None])
    assert float(norm) == pytest.approx(float(expected), rel=1e-6)
    clip_gradients(spread.parameters(), float(norm) / 2, norm)
    assert float(gradient_norm(spread.parameters(), world)) == pytest.approx(
        float(norm) / 2, rel=1e-4
    )
    clip_gradients(spread.parameters(), 1e9, norm)
    assert float(gradient_norm(spread.parameters(), world)) == pytest.approx(
        float(norm) / 2, rel=1e-4
    )
    spread.eval()
    tokens, positions, documents, mask, targets = given
    found = spread.nats(tokens, positions, documents, targets)
    assert torch.allclose(found[mask], nats[mask].detach(), rtol=1e-4, atol=1e-5)


def test_blocks_are_compiled_on_gpus_only_unless_told() -> None:
    assert compiles("auto", torch.device("cuda"))
    assert not compiles("auto", torch.device("cpu"))
    assert compiles("on", torch.device("cpu"))
    assert not compiles("off", torch.device("cuda"))


# torch's own compiler says so of itself when it is imported
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_experts_are_compiled_where_torch_can() -> None:
    dense, mixed = decoder(moe={"n_experts": 4, "top_k": 2, "expert_ffn": 16}).layers[:2]
    around = [mixed.self_attn, mixed.mlp.shared_experts]
    assert compile_block(dense, torch.float32, shared=True) == [dense]
    assert compile_block(mixed, torch.float32, shared=False) == around
    assert compile_block(mixed, torch.bfloat16, shared=True) == around
    assert compile_block(mixed, torch.bfloat16, shared=False) == [mixed]
    assert compile_block(mixed, torch.bfloat16, whole=False) == around
    assert compile_block(dense, torch.float32, whole=False) == [dense.self_attn, dense.mlp]
