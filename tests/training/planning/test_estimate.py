"""What a run comes to: against published figures and plain arithmetic."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.training.miniature import write_run
from training.config import load_run
from training.errors import RunConfigError
from training.plan import open_data
from training.planning.estimate import (
    FAILURES_PER_GPU_HOUR,
    Report,
    Terms,
    estimate,
    lines_of,
    recipe_run,
    sources,
    young_daly,
)
from training.planning.footprint import GIB, Device
from training.vocabulary import Vocabulary

H100 = Device("NVIDIA H100 80GB HBM3", "cuda", round(79.6 * GIB))


def dense_8b(gpus: int, terms: Terms | None = None) -> Report:
    run, _ = recipe_run("dense_8b", tokens=15e12, gpus=gpus)
    return estimate(run, vocab_size=128_256, processes=gpus, device=H100, terms=terms or Terms())


def test_4096_gpus_cost_about_295_000_dollars_a_day() -> None:
    assert dense_8b(4096)["cost_per_day"] == pytest.approx(295_000, rel=0.001)


def test_time_is_operations_over_speed() -> None:
    found = dense_8b(1024)
    assert found["parameters"] == pytest.approx(8.03e9, rel=1e-3)
    # 6 N without the input table, and causal attention: 6 x 32 layers x 4096 x 8192
    each = 6 * (8.03e9 - 128_256 * 4096) + 6 * 32 * 4096 * 8192
    assert found["flops_per_token"] == pytest.approx(each, rel=1e-3)
    assert found["gpu_hours"] == pytest.approx(each * 15e12 / (989e12 * 0.4) / 3600, rel=1e-3)
    assert found["cost"] == pytest.approx(3 * found["gpu_hours"])
    assert found["days"] * 24 * 1024 == pytest.approx(found["gpu_hours"])
    faster = dense_8b(1024, Terms(mfu=0.5, price=2))
    assert faster["gpu_hours"] == pytest.approx(0.8 * found["gpu_hours"])
    assert faster["cost"] == pytest.approx(2 * faster["gpu_hours"])


def test_the_speed_of_torchtitan_follows_from_its_mfu() -> None:
    # 8B on 8 H100: 6,667 tokens a second and GPU, stated as 33 to 39 % MFU
    rates = [dense_8b(64, Terms(mfu=mfu))["tokens_per_second"] / 64 for mfu in (0.33, 0.39)]
    assert rates[0] < 6667 < rates[1]


def test_checkpoints_follow_young_and_daly() -> None:
    # Llama 3: 466 interruptions in 54 days on 16,384 GPUs, one every 2.8 hours
    assert pytest.approx(2.78, rel=0.01) == 1 / (FAILURES_PER_GPU_HOUR * 16_384)
    saved = dense_8b(16_384, Terms(checkpoint_seconds=30))["checkpoints"]
    assert saved["seconds_between_failures"] == pytest.approx(10_012, rel=0.01)
    assert saved["interval_seconds"] == pytest.approx(math.sqrt(2 * 30 * 10_012), rel=0.01)
    assert saved["bytes"] == pytest.approx(12 * 8.03e9, rel=0.001)
    # no other interval loses less
    interval, between = saved["interval_seconds"], saved["seconds_between_failures"]
    best = 30 / interval + interval / 2 / between
    assert all(30 / i + i / 2 / between >= best for i in (interval / 2, interval * 2))
    assert young_daly(30, 10_000) == pytest.approx(774.6, abs=0.1)


def test_a_recipe_alone_becomes_a_run_that_its_gpus_can_share() -> None:
    run, notes = recipe_run("dense_8b", tokens=1e12, gpus=768)
    assert run.global_batch == 768
    assert run.steps == round(1e12 / (768 * 8192))
    assert notes == ["global_batch is 768 in place of 512, for 768 GPUs"]
    assert recipe_run("dense_8b", tokens=1e12, gpus=8)[1] == []
    with pytest.raises(RunConfigError, match="recipe 'dense_9b' is not known"):
        recipe_run("dense_9b", tokens=1e12, gpus=8)
    with pytest.raises(RunConfigError, match="less than one step"):
        recipe_run("dense_8b", tokens=1e5, gpus=8)


def test_what_does_not_fit_is_refused_and_an_unknown_device_has_no_time() -> None:
    run, _ = recipe_run("dense_8b", tokens=1e12, gpus=2)
    with pytest.raises(RunConfigError, match="GiB too much"):
        estimate(run, vocab_size=128_256, processes=2, device=H100, terms=Terms())
    other = Device("X1", "cuda", None)
    found = estimate(run, vocab_size=128_256, processes=2, device=other, terms=Terms())
    assert found["gpu_hours"] is None
    assert any("no peak is listed for X1" in line for line in lines_of(found))


def test_sources_are_told_with_tokens_and_passes(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path, steps=40))
    data = open_data(run, Vocabulary.open(run.tokenizer), tokens=False)
    rows = {row["source"]: row for row in sources(run, data.loader)}
    assert rows.keys() == {"web", "code"}
    assert sum(row["tokens"] for row in rows.values()) <= 40 * 4 * 32
    web = rows["web"]
    assert web["epochs"] == pytest.approx(web["tokens"] / web["available_tokens"], abs=0.01)
    device = Device("this host", "cpu", 2 * GIB)
    terms = Terms(tokens_per_second=512)
    found = estimate(run, vocab_size=300, processes=2, device=device, terms=terms)
    assert found["days"] * 86_400 == pytest.approx(40 * 4 * 32 / 512)
    shown = "\n".join(lines_of(found | {"sources": list(rows.values())}))
    assert "as measured" in shown
    assert "source       web: " in shown


@pytest.mark.parametrize("tokens", [2e7, 1e9, 1e12])
def test_a_recipe_is_a_run_of_any_length(tokens: float) -> None:
    run, _ = recipe_run("dense_8b", tokens=tokens, gpus=1)
    assert run.warmup_steps <= run.steps // 10
