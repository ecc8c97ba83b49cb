from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError

from tests.training.miniature import TINY, write_run
from training.model import Decoder
from training.network.feedforward import MLP
from training.network.moe import MoE, balance_loss, count, routers, set_loss_scale, update_biases
from training.settings.model import ModelConfig, MoeConfig

NO = torch.tensor(False)


def build(**keys: Any) -> MoE:
    moe = MoeConfig(**{"n_experts": 8, "top_k": 2, "expert_ffn": 16} | keys)
    torch.manual_seed(0)
    layer = MoE(ModelConfig(layers=2, dim=16, heads=2, kv_heads=1, ffn=32, moe=moe))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


def by_hand(layer: MoE, x: torch.Tensor) -> torch.Tensor:
    """A loop over tokens and experts in plain products."""
    flat, out = x.flatten(0, 1), []
    for token in flat:
        scores = (layer.gate.weight @ token).sigmoid()
        chosen = (scores + layer.gate.e_score_correction_bias).topk(layer.gate.c.top_k).indices
        weights = scores[chosen] / scores[chosen].sum() * layer.gate.c.scaling
        total = layer.shared_experts(token)
        for expert, weight in zip(chosen.tolist(), weights, strict=True):
            gate, up = (layer.experts.gate_up_proj[expert] @ token).chunk(2)
            total = total + weight * (layer.experts.down_proj[expert] @ (F.silu(gate) * up))
        out.append(total)
    return torch.stack(out).view_as(x)


@pytest.mark.parametrize("scaling", [1.0, 2.5])
def test_values_and_gradients_are_those_of_a_loop_over_tokens(scaling: float) -> None:
    layer = build(scaling=scaling, shared=2)
    layer.gate.e_score_correction_bias.normal_(0, 0.3)
    x = torch.randn(2, 9, 16, requires_grad=True)
    y = torch.randn(2, 9, 16)
    found = []
    for function in (layer, lambda z: by_hand(layer, z)):
        out = function(x)
        grads = torch.autograd.grad(((out - y) ** 2).mean(), [x, *layer.parameters()])
        found.append([out, *grads])
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_no_token_is_dropped_when_all_choose_one_expert() -> None:
    layer = build()
    layer.gate.e_score_correction_bias[3:5] = 10
    x = torch.randn(1, 50, 16)
    assert (layer(x) - by_hand(layer, x)).abs().max() < 1e-4
    assert layer.gate.load.tolist() == [0, 0, 0, 50, 50, 0, 0, 0]


def test_the_bias_chooses_but_does_not_weigh() -> None:
    layer = build(top_k=8, n_experts=8)  # all experts are chosen anyway
    x = torch.randn(1, 5, 16)
    before = layer(x)
    layer.gate.e_score_correction_bias.uniform_(-1, 1)
    assert (layer(x) - before).abs().max() < 1e-5


def test_the_bias_moves_against_the_load_and_not_on_a_skipped_step() -> None:
    layer = build()
    layer.gate.load.copy_(torch.tensor([10, 0, 4, 4, 4, 4, 4, 2]))
    loads = update_biases(layer, 0.01, torch.tensor(True))
    assert loads is not None
    assert loads.tolist() == [[10, 0, 4, 4, 4, 4, 4, 2]]
    assert not layer.gate.e_score_correction_bias.any()
    assert not layer.gate.load.any()
    layer.gate.load.copy_(loads[0])
    update_biases(layer, 0.01, NO, lambda both: both.mul_(2))
    moved = layer.gate.e_score_correction_bias
    signs = torch.tensor([-1.0, 1, 0, 0, 0, 0, 0, 1])
    assert torch.allclose(moved, 0.01 * (signs - signs.mean()))
    assert not layer.gate.load.any()
    assert "gate.e_score_correction_bias" in layer.state_dict()
    assert "gate.load" not in layer.state_dict()
    assert update_biases(MLP(8, 8), 0.01, NO) is None


def test_loads_are_counted_in_training_alone() -> None:
    layer = build().eval()
    layer(torch.randn(1, 4, 16))
    assert layer.gate.load.sum() == 0
    layer.train()(torch.randn(1, 4, 16))
    layer(torch.randn(1, 3, 16))
    assert layer.gate.load.sum() == 14
    assert count(torch.tensor([1, 1, 3]), 5).tolist() == [0, 2, 0, 1, 0]


def test_biases_level_the_load_of_skewed_tokens() -> None:
    worst = {}  # largest load over the mean; 1 is even
    for rate in (0.0, 0.01):
        layer = build(n_experts=16, top_k=2)
        torch.nn.init.normal_(layer.gate.weight, std=0.2)
        centres = torch.randn(40, 16)
        often = torch.arange(1, 41).float() ** -1
        found = []
        for _ in range(300):
            x = centres[torch.multinomial(often, 512, True)] + 0.5 * torch.randn(512, 16)
            with torch.no_grad():
                layer.gate(x[None])
            loads = update_biases(layer, rate, NO)
            assert loads is not None
            found.append(loads.max() / loads.double().mean())
        worst[rate] = sum(found[-50:]) / 50
    assert worst[0.0] > 2
    assert worst[0.01] < 1.5


def test_the_rate_fits_the_length_of_the_run() -> None:
    rates = [MoeConfig().rate(steps) for steps in (10, 400, 2000, 4000, 100_000)]
    assert rates == [1e-2, 1e-2, 2e-3, 1e-3, 1e-3]
    assert MoeConfig(bias_rate=0.5).rate(10) == 0.5


def test_the_balance_loss_is_one_a_token_at_even_load() -> None:
    n, n_experts = 8, 4
    even = torch.arange(2 * n).view(n, 2) % n_experts
    scores = torch.full((n, n_experts), 0.3)
    assert balance_loss(scores, even, 2) == pytest.approx(n)
    one = torch.zeros(n, 2, dtype=torch.int64)
    skewed = torch.tensor([1.0, 0, 0, 0]).expand(n, -1)
    assert balance_loss(skewed, one, 2) == pytest.approx(n * n_experts)


def test_the_routers_own_losses_reach_it_with_the_scale_of_the_pass() -> None:
    x = torch.randn(2, 6, 16)
    plain, own = build(), build(aux_loss=0.1, router_z_loss=0.01)
    with pytest.raises(RuntimeError, match="set_loss_scale"):
        own(x)
    set_loss_scale(own, torch.tensor(0.25))
    grads = []
    for layer in (plain, own):
        out = layer(x)
        assert torch.equal(out, plain(x))
        (out.sum() * 0.25).backward()
        assert layer.gate.weight.grad is not None
        grads.append(layer.gate.weight.grad.clone())
    logits = F.linear(x.flatten(0, 1), plain.gate.weight)
    scores, z = logits.sigmoid(), logits.logsumexp(-1).square().sum()
    loss = 0.1 * balance_loss(scores, scores.topk(2).indices, 2) + 0.01 * z
    (want,) = torch.autograd.grad(0.25 * loss, plain.gate.weight)
    assert (grads[1] - grads[0] - want).abs().max() < 1e-5
    assert want.abs().max() > 1e-3


def test_bfloat16_and_no_tokens_go_through() -> None:
    layer = build().to(torch.bfloat16)
    x = torch.randn(1, 6, 16, dtype=torch.bfloat16, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    nothing = layer.experts(x[0, :0], torch.zeros(8, dtype=torch.int64))
    assert nothing.shape == (0, 16)


def test_biases_go_on_from_a_checkpoint(tmp_path: Path, trainer_of: Any) -> None:
    model = TINY["model"] | {"moe": {"n_experts": 4, "top_k": 2, "expert_ffn": 16}}
    path = write_run(tmp_path, model=model, steps=6)

    def step(trainer: Any) -> dict[str, Any]:
        values, _ = trainer.train_step(False)
        trainer.advance()
        return {name: float(value) for name, value in values.items()}

    whole = trainer_of(path)
    for _ in range(3):
        step(whole)
    whole.save()
    whole.checkpoints.wait()
    (router,) = routers(whole.model)
    before = router.e_score_correction_bias.clone()
    assert before.abs().max() > 0
    later = [step(whole) for _ in range(2)]
    resumed = trainer_of(path)
    resumed.resume()
    (router,) = routers(resumed.model)
    assert torch.equal(router.e_score_correction_bias, before)
    again = [step(resumed) for _ in range(2)]
    for key in ("loss", "grad_norm", "experts/most", "experts/idle"):
        assert [x[key] for x in again] == [x[key] for x in later], key


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # tracing does what torch itself warns of
def test_a_block_with_experts_compiles_as_one_graph() -> None:
    moe = MoeConfig(n_experts=8, top_k=2, expert_ffn=16, aux_loss=1e-3, first_dense=0)
    config = ModelConfig(layers=1, dim=32, heads=2, kv_heads=1, ffn=32, moe=moe)
    tokens = torch.randint(0, 50, (2, 24), generator=torch.Generator().manual_seed(0))
    found = []
    for compiled in (False, True):
        model = Decoder(config, 50, 24).to(torch.bfloat16)
        model.init_weights(0)
        if compiled:
            for block in model.layers:
                block.compile(backend="aot_eager", fullgraph=True)
        set_loss_scale(model, torch.tensor(0.1))
        logits = model(tokens, None, tokens.sort().values // 20)
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        grads = [p.grad for p in model.parameters()]
        found.append((grads, [router.load for router in routers(model)]))
    for ours, theirs in zip(found[0][0], found[1][0], strict=True):
        assert torch.equal(ours, theirs)  # type: ignore[arg-type]
    assert torch.equal(found[0][1][0], found[1][1][0])


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"moe": {"top_k": 9, "n_experts": 8}}, "top_k 9 is more than moe.n_experts 8"),
        ({"moe": {"top_k": 1}}, "greater than or equal to 2"),
        ({"moe": {"expert_ffn": 12}}, "expert_ffn 12 must be a multiple of 8"),
        ({"moe": {"first_dense": 4}, "layers": 4}, "first_dense 4 leaves no layer of 4"),
        ({"moe": {}, "dim": 12, "heads": 2}, "dim 12 must be a multiple of 8"),
        ({"moe": {}, "qk_norm": False}, "qk_norm false does not go with moe"),
        ({"head_size": 7}, "head_size 7 must be even"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ModelConfig(**keys)


def test_shapes_that_just_fit() -> None:
    ModelConfig(layers=4, moe=MoeConfig(top_k=8, n_experts=8, expert_ffn=16, first_dense=3))
    assert ModelConfig(dim=20, heads=3, kv_heads=3, head_size=8).head_dim == 8
