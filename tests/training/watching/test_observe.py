from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from training.watching.observe import Machine, WeightWatch, by_source, expert_load, source_losses
from training.world import World, join


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    yield join("cpu", 30)
    dist.destroy_process_group()


def moved(weights: list[torch.Tensor], seed: int) -> float:
    """Move the weights by some 1e-3 of them; returns |Δw| / |w| over all of them."""
    draw = torch.Generator().manual_seed(seed)
    update, norm = 0.0, 0.0
    for weight in weights:
        step = torch.randn(weight.shape, generator=draw) * weight.std() * 1e-3
        weight += step
        update += float(step.double().square().sum())
        norm += float(weight.double().square().sum())
    return math.sqrt(update / norm)


def weights_of(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draw) * (n + 1) for n, shape in enumerate(shapes)]


def test_small_tensors_are_measured_whole_and_large_ones_by_sample(world: World) -> None:
    small = weights_of(1, (8, 16), (16,))
    watch = WeightWatch(small, world)
    watch.before()
    full = moved(small, 2)
    found = watch.after()
    assert float(found["update_ratio"]) == pytest.approx(full, rel=1e-3)
    assert float(found["param_norm"]) == pytest.approx(
        sum(float(w.square().sum()) for w in small) ** 0.5
    )
    large = weights_of(3, (512, 256), (256, 512))
    watch = WeightWatch(large, world)
    for seed in range(4):
        watch.before()
        full = moved(large, seed)
        assert float(watch.after()["update_ratio"]) == pytest.approx(full, rel=0.05)


def test_a_step_that_was_skipped_moves_nothing(world: World) -> None:
    watch = WeightWatch(weights_of(1, (300, 300)), world)
    watch.before()
    assert float(watch.after()["update_ratio"]) == 0
    with pytest.raises(RuntimeError, match="before"):
        watch.after()


def test_sharded_and_copied_weights_count_once(world: World) -> None:
    plain = weights_of(1, (8, 16))[0]
    parts = [distribute_tensor(plain, world.mesh["shard", "tensor"], [Shard(0), Replicate()])]
    assert isinstance(parts[0], DTensor)
    watch = WeightWatch(parts, world)
    watch.before()
    parts[0].to_local().mul_(1.5)
    found = watch.after()
    assert float(found["param_norm"]) == pytest.approx(1.5 * float(plain.norm()))
    assert float(found["update_ratio"]) == pytest.approx(1 / 3)


def test_the_loss_is_told_by_source() -> None:
    per_sequence = torch.tensor([[6.0, 2.0], [3.0, 1.0], [8.0, 4.0]])
    sums = by_source(per_sequence, torch.tensor([0, 2, 0]), 3)
    assert sums.tolist() == [[14.0, 6.0], [0.0, 0.0], [3.0, 1.0]]
    losses = source_losses(sums, ["web", "code", "books"])
    assert float(losses["loss/web"]) == pytest.approx(14 / 6)
    assert torch.isnan(losses["loss/code"])
    assert float(losses["loss/books"]) == 3.0


def test_the_worst_layer_shows_in_the_load_of_experts() -> None:
    load = expert_load(torch.tensor([[4, 4, 4, 4], [8, 4, 4, 0]]))
    assert float(load["experts/most"]) == 2.0
    assert float(load["experts/least"]) == 0.0
    assert float(load["experts/idle"]) == 1 / 8


def test_the_machine_tells_memory_and_load() -> None:
    machine = Machine(torch.device("cpu"))
    sum(n * n for n in range(100_000))
    found = machine.read()
    assert found["memory/resident_mib"] > 50
    assert found["system/process_cpu_percentage"] >= 0
    assert 0 < found["system/system_memory_usage_percentage"] < 100
