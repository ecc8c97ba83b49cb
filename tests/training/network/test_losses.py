from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from training.gradients import Tally, tally_loss
from training.network.losses import CHUNK_BYTES, token_losses


def drawn(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    logits = (torch.randn(24, 50, generator=draw) * 5).to(dtype).requires_grad_()
    wanted = torch.randint(0, 50, (24,), generator=draw)
    wanted[::5] = -100
    return logits, wanted


def test_values_and_gradients_are_those_of_torch() -> None:
    logits, wanted = drawn()
    nats, normaliser, entropy = token_losses(logits, wanted, stride=8)
    (nats.sum() * 0.5 + 0.01 * normaliser.square().sum()).backward()
    ours, logits.grad = logits.grad, None
    plain = F.cross_entropy(logits, wanted, ignore_index=-100, reduction="none")
    z = torch.logsumexp(logits, -1) * (wanted >= 0)
    (plain.sum() * 0.5 + 0.01 * z.square().sum()).backward()
    assert torch.allclose(nats, plain, atol=1e-5)
    assert torch.allclose(normaliser, z, atol=1e-5)
    assert ours is not None
    assert logits.grad is not None
    assert torch.allclose(ours, logits.grad, atol=1e-5)
    spread = torch.distributions.Categorical(logits=logits.detach()[::8]).entropy()
    assert torch.allclose(entropy, spread, atol=1e-5)


def test_bfloat16_logits_get_bfloat16_gradients() -> None:
    logits, wanted = drawn(torch.bfloat16)
    nats, _, _ = token_losses(logits, wanted)
    nats.sum().backward()
    assert nats.dtype == torch.float32
    assert logits.grad is not None
    assert logits.grad.dtype == torch.bfloat16


def test_tokens_without_a_target_weigh_nothing() -> None:
    logits, _ = drawn()
    nats, normaliser, _ = token_losses(logits, torch.full((24,), -100))
    (nats.sum() + normaliser.square().sum()).backward()
    assert not nats.any()
    assert not normaliser.any()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_what_is_told_of_a_micro_batch() -> None:
    logits, wanted = drawn()
    mask = (wanted >= 0).view(2, 12)
    tally = Tally(logits.device)
    loss = tally_loss(tally, logits.view(2, 12, 50), mask, wanted.view(2, 12), z_loss=1e-3)
    nats, entropy, tokens, penalty = tally.sums.tolist()
    assert float(loss.detach()) == pytest.approx(nats + penalty, rel=1e-5), "z-loss is in the loss"
    assert tally.per_sequence[:, 0].sum() == pytest.approx(nats, rel=1e-5), "but not in the nats"
    assert tally.per_sequence[:, 1].tolist() == mask.sum(1).tolist()
    assert 0 < entropy / tokens < 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_taken_some_at_a_time_and_written_over_change_nothing(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for overwrite, size in ((False, 1 << 20), (True, 8 * 4 * 50)):
        monkeypatch.setitem(CHUNK_BYTES, "cpu", size)
        logits, wanted = drawn(dtype)
        own = logits * 1
        nats, normaliser, entropy = token_losses(own, wanted, stride=8, overwrite=overwrite)
        (nats.sum() * 0.3 + 0.01 * normaliser.square().sum()).backward()
        assert torch.equal(own, logits) != overwrite
        assert logits.grad is not None
        found.append((nats, normaliser, entropy, logits.grad))
    assert len(found[0][2]) == 3
    for whole, pieces in zip(*found, strict=True):
        assert torch.equal(whole, pieces)
