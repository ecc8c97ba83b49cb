from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.mixture import MixtureConfig
from pipeline.mixture import build_plan, shard_info
from tests.training.miniature import TINY, write_documents, write_run
from training.config import load_run
from training.data import Loader, Order, interleave, permute, round_keys
from training.errors import RunConfigError, TrainingError
from training.plan import Data, open_data
from training.vocabulary import Vocabulary


def data_of(path: Path) -> Data:
    config = load_run(path)
    return open_data(config, Vocabulary.open(config.tokenizer))


@settings(deadline=None)
@given(st.integers(1, 700), st.integers(0, 2**62), st.integers(0, 3))
def test_the_permutation_hits_every_row_once(n: int, seed: int, epoch: int) -> None:
    keys = round_keys(seed, "web", epoch)
    assert sorted(permute(i, n, keys) for i in range(n)) == list(range(n))


def test_another_seed_epoch_or_source_is_another_order() -> None:
    orders = {
        tuple(permute(i, 1000, round_keys(*key)) for i in range(50))
        for key in [(0, "web", 0), (1, "web", 0), (0, "web", 1), (0, "code", 0)]
    }
    assert len(orders) == 4


@settings(deadline=None, max_examples=10)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6))
def test_every_prefix_follows_the_weights(weights: list[float]) -> None:
    cycle, counts, before = interleave(weights)
    share = np.array(weights) / sum(weights)
    assert counts.sum() == len(cycle)
    for source in range(len(weights)):
        taken = np.cumsum(cycle == source)
        wanted = share[source] * np.arange(1, len(cycle) + 1)
        # less than 1 by the order, less than 1 by rounding to whole counts
        assert np.abs(taken - wanted).max() < 2.0
        assert (before[cycle == source] == np.arange(counts[source])).all()


def test_sources_without_weight_are_never_drawn() -> None:
    order = Order(["a", "b"], [5, 0], [(0, [1.0, 0.0])], seed=0)
    assert {order[i].source for i in range(100)} == {0}
    with pytest.raises(TrainingError, match="source b has weight"):
        Order(["a", "b"], [5, 0], [(0, [1.0, 0.5])], seed=0)


def test_phases_change_the_weights_and_go_on_where_the_last_one_stopped() -> None:
    order = Order(["a", "b"], [40, 40], [(30, [1.0, 0.0]), (60, [0.0, 1.0])], seed=3)
    samples = [order[i] for i in range(70)]
    assert [s.source for s in samples[:30]] == [0] * 30
    assert [s.source for s in samples[30:]] == [1] * 40, "the last phase goes on"
    assert len({s.row for s in samples[:30]}) == 30
    assert order.taken(45).tolist() == [30, 15]


def test_global_batches_are_the_same_at_any_number_of_ranks(tmp_path: Path) -> None:
    loader = data_of(write_run(tmp_path)).loader
    for first in (0, 4, 400):
        indices = range(first, first + 4)
        whole = loader.batch(indices)
        for world in (2, 4):
            parts = [loader.batch(indices, rank, world) for rank in range(world)]
            assert np.array_equal(np.concatenate([p.tokens for p in parts]), whole.tokens)
            assert sum(p.checksum for p in parts) == whole.checksum


def test_a_pass_reads_every_row_once_and_the_next_is_another_order(tmp_path: Path) -> None:
    write_documents(tmp_path / "one", 40, seed=5)
    source = data_of(write_run(tmp_path, shards=["one"])).loader.sources[0]
    order = Order([source.name], [source.n_rows], [(0, [1.0])], seed=1)
    n = source.n_rows
    passes = [[order[p * n + i] for i in range(n)] for p in range(2)]
    assert [sorted(s.row for s in p) for p in passes] == [list(range(n))] * 2
    assert [s.epoch for s in passes[1]] == [1] * n
    assert passes[0] != passes[1]


def test_held_out_shards_are_never_trained_on(tmp_path: Path) -> None:
    data = data_of(write_run(tmp_path))
    assert [s.name for s in data.held_out] == ["web"]
    training = {shard.name for source in data.loader.sources for shard in source.shards}
    assert training == {"web-0", "code-0"}


def test_a_step_leads_to_its_documents(tmp_path: Path) -> None:
    loader = data_of(write_run(tmp_path)).loader
    indices = range(8, 12)
    batch, documents = loader.batch(indices), loader.documents(indices)
    shards = {s.name: s for source in loader.sources for s in source.shards}
    flat = {token for name, d in documents for token in shards[name].document(d).tolist()}
    assert set(batch.tokens[batch.documents >= 0].tolist()) <= flat
    assert len(documents) >= len(indices)


def end_of_data(root: Path, **keys: object) -> Path:
    """20 sequences in two shards, global batch 8, 6 steps."""
    for number in range(2):
        write_documents(root / f"s{number}", 10, seed=number, longest=40)
    model = {"context": 64, "global_batch": 8, "steps": 6}
    return write_run(root, shards=["s0", "s1"], **TINY | model | keys)


def test_the_end_of_the_data_is_a_counted_second_pass(tmp_path: Path) -> None:
    data = data_of(end_of_data(tmp_path))
    rows = data.loader.sources[0].n_rows
    assert data.loader.epochs(48) == {"web": round(48 / rows, 4)}
    assert rows < 48
    assert any("passes over each source" in note for note in data.notes)


def test_or_a_message_before_the_first_step(tmp_path: Path) -> None:
    rows = data_of(end_of_data(tmp_path)).loader.sources[0].n_rows
    path = end_of_data(tmp_path, second_epoch=False)
    with pytest.raises(TrainingError, match=f"ends after step {rows // 8} of 6"):
        data_of(path)


def test_shards_of_another_tokenizer_are_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path, shards=["odd"])
    write_documents(tmp_path / "odd", 5, tokenizer="sha256:" + "0" * 64)
    with pytest.raises(RunConfigError, match="made with tokenizer"):
        data_of(path)


def test_a_loader_is_a_function_of_the_sample_index_alone(tmp_path: Path) -> None:
    first, second = data_of(write_run(tmp_path)), data_of(write_run(tmp_path))
    assert first.checksum == second.checksum
    later = Loader(second.loader.sources, second.loader.order).batch(range(20, 24))
    for _ in range(3):
        first.loader.batch(range(4))
    assert np.array_equal(first.loader.batch(range(20, 24)).tokens, later.tokens)


def test_a_plan_of_the_mixture_names_shards_and_weights(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    prefixes = sorted((tmp_path / "shards").glob("*.json"))
    shards = []
    for path in prefixes:
        sidecar = json.loads(path.read_text())
        sidecar |= {"name": path.stem, "languages": {}}
        sidecar["tokenizer"] = "sha256:" + Vocabulary.open(tmp_path / "tokenizer.json").checksum
        path.write_text(json.dumps(sidecar))
        shards.append(shard_info(f"shards/{path.stem}", sidecar, "c"))
    mixture = MixtureConfig(total_tokens=2000, weights={"web": 3, "code": 1})
    (tmp_path / "mixture").mkdir()
    plan = tmp_path / "mixture" / "plan.json"
    plan.write_text(json.dumps(build_plan(shards, mixture)))
    run = write_run(tmp_path, shards=[], plan="mixture/plan.json", seed=7)
    data = data_of(run)
    names = [data.loader.sources[data.loader.order[i].source].name for i in range(40)]
    assert names.count("web") == 30
    assert names.count("code") == 10
    assert [source.name for source in data.held_out] == ["web"]
    write_documents(tmp_path / "shards" / "web-0", 50, seed=99, source="web", split="train")
    with pytest.raises(TrainingError, match="is not the one that plan"):
        data_of(run)
    (tmp_path / "shards" / "web-0.bin").unlink()
    with pytest.raises(RunConfigError, match="are not below"):
        data_of(run)
