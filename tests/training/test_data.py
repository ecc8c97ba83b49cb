from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.config.mixture import MixtureConfig
from pipeline.mixture import build_plan, shard_info
from tests.training.miniature import TINY, VOCABULARY, write_documents, write_run
from training.config import load_run
from training.data import Loader
from training.errors import RunConfigError, TrainingError
from training.plan import Data, check_length, open_data
from training.samples.course import Course
from training.samples.order import Order
from training.shards import ShardError, write_shard
from training.vocabulary import Vocabulary


def data_of(path: Path) -> Data:
    config = load_run(path)
    return open_data(config, Vocabulary.open(config.tokenizer))


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


def end_of_data(root: Path, **keys: Any) -> Path:
    """20 sequences in two shards, global batch 8, 6 steps (cases/training/end-of-data.json)."""
    for number in range(2):
        tokens = np.arange(640) % (VOCABULARY - 1) + 1
        write_shard(root / f"s{number}", tokens, np.full(10, 64), vocab_size=VOCABULARY)
    content: dict[str, Any] = TINY | {"context": 64, "global_batch": 8, "steps": 6} | keys
    return write_run(root, shards=["s0", "s1"], **content)


def test_the_end_of_the_data_is_a_counted_second_pass(tmp_path: Path) -> None:
    data = data_of(end_of_data(tmp_path))
    assert data.loader.sources[0].n_rows == 20
    assert data.loader.epochs(48) == {"web": 2.4}
    assert data.notes[0] == "passes over each source in 6 steps: web 2.40"
    last = data.loader.segments(Course(load_run(end_of_data(tmp_path))).indices(3))
    assert [segment.epoch for segment in last] == [0] * 4 + [1] * 4


def test_or_a_message_before_the_first_step(tmp_path: Path) -> None:
    assert data_of(end_of_data(tmp_path, second_epoch=False, steps=2))
    with pytest.raises(TrainingError, match="ends after step 2 of 6"):
        data_of(end_of_data(tmp_path, second_epoch=False))


def test_the_end_of_the_data_counts_what_is_left_out(tmp_path: Path) -> None:
    path = end_of_data(tmp_path, second_epoch=False, steps=2)
    config, order = load_run(path), data_of(path).loader.order
    check_length(config, order, Course(config, [(3, 7)]))
    with pytest.raises(TrainingError, match="ends after step 1 of 2"):
        check_length(config, order, Course(config, [(3, 8)]))


def test_more_than_four_passes_are_warned_of(tmp_path: Path) -> None:
    few, many = (data_of(end_of_data(tmp_path, steps=n)).notes for n in (10, 11))
    assert not any("beyond 4 passes" in note for note in few)
    assert any(note.startswith("web is read 4.4 times; beyond 4") for note in many)


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
    steps = 2000 // (4 * 32)
    data_of(write_run(tmp_path, shards=[], plan="mixture/plan.json", warmup_steps=steps, steps=99))
    run = write_run(tmp_path, shards=[], plan="mixture/plan.json", warmup_steps=steps + 1, steps=99)
    with pytest.raises(RunConfigError, match="2,000 tokens, and the warm-up of 16 steps alone"):
        data_of(run)
    write_documents(tmp_path / "shards" / "web-0", 50, seed=99, source="web", split="train")
    with pytest.raises(TrainingError, match="is not the one that plan"):
        data_of(run)
    (tmp_path / "shards" / "web-0.idx").unlink()
    with pytest.raises(RunConfigError, match="are not below"):
        data_of(run)


def test_phases_of_the_run_file_take_the_place_of_the_sizes(tmp_path: Path) -> None:
    phases = [
        {"until_tokens": 10 * 32, "weights": {"web": 1}},
        {"until_tokens": 999, "weights": {"web": 1, "code": 1}},
    ]
    loader = data_of(write_run(tmp_path, phases=phases)).loader
    names = [loader.sources[loader.order[i].source].name for i in range(40)]
    assert names[:10] == ["web"] * 10
    assert names[10:].count("code") == 15
    phases[1]["weights"] = {"books": 1}
    with pytest.raises(RunConfigError, match=r"phases.1.weights names books") as caught:
        data_of(write_run(tmp_path, phases=phases))
    assert caught.value.hint == "sources: code, web"
    for weights in ({"web": 0}, {"web": -1, "code": 2}):
        with pytest.raises(RunConfigError, match=r"must be 0 or more, and one of them above 0"):
            load_run(write_run(tmp_path, phases=[{"until_tokens": 9, "weights": weights}]))


def test_concatenated_rows_hold_the_same_tokens_and_are_another_run(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    packed = data_of(path)
    before = load_run(path).config_hash()
    path = write_run(tmp_path, packing="concatenate")
    assert load_run(path).config_hash() != before
    chunks = data_of(path)
    for one, other in zip(packed.loader.sources, chunks.loader.sources, strict=True):
        assert sum(r.n_tokens for r in one.rows) == sum(r.n_tokens for r in other.rows)
        assert other.n_rows == -(-other.n_tokens // 32)
    batch = chunks.loader.batch(range(4))
    assert (batch.documents >= 0).sum() > 3 * 32
    assert chunks.held_out[0].n_rows == packed.held_out[0].n_rows


@pytest.mark.parametrize(
    "keys",
    [{"checksums": 3}, {"checksums": {}}, {"tokens": "x"}, {"vocab_size": None}, {"source": ["a"]}],
)
def test_a_sidecar_of_wrong_types_is_named(tmp_path: Path, keys: dict[str, Any]) -> None:
    run = write_run(tmp_path)
    sidecar = tmp_path / "shards" / "web-0.json"
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | keys))
    with pytest.raises(ShardError, match=r"web-0\.json is absent or no sidecar"):
        data_of(run)


def test_shards_of_a_larger_vocabulary_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    sidecar = tmp_path / "shards" / "web-0.json"
    content = json.loads(sidecar.read_text())
    for size in (VOCABULARY, VOCABULARY + 1):
        sidecar.write_text(json.dumps(content | {"vocab_size": size}))
        if size == VOCABULARY:
            data_of(run)
    with pytest.raises(RunConfigError, match="vocabulary of 301 entries, the tokenizer has 300"):
        data_of(run)


def test_shards_without_a_token_to_train_on_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, shards=["none", "shards/web-held"])
    empty = np.zeros(0, np.int64)
    write_shard(tmp_path / "none" / "web-0", empty, empty, vocab_size=VOCABULARY)
    with pytest.raises(RunConfigError, match="phase 0 takes samples of any source"):
        data_of(run)


SHARD: dict[str, Any] = {"path": "shards/web-0", "source": "web", "checksums": {"bin": ""}}


@pytest.mark.parametrize(
    ("changes", "phases", "said"),
    [
        ({}, [], "no training plan"),
        ({"checksums": {}}, [[100, {"web": 1}]], "no training plan"),
        ({}, [[100, {"web": float("nan")}]], "no training plan"),
        ({}, [[100, {"web": -1}]], "no training plan"),
        ({}, [[100, {"web": "x"}]], "no training plan"),
        ({}, [[float("inf"), {"web": 1}]], "no training plan"),
        ({}, [[100_000, {"other": 1}]], "phase 0 takes samples of source other"),
    ],
)
def test_a_damaged_plan_is_refused(
    tmp_path: Path, changes: dict[str, Any], phases: list[Any], said: str
) -> None:
    run = write_run(tmp_path, shards=[], plan="plan.json")
    checksum = json.loads((tmp_path / "shards" / "web-0.json").read_text())["checksums"]["bin"]
    shard = SHARD | {"checksums": {"bin": checksum}} | changes
    told = [{"until_tokens": until, "weights": weights} for until, weights in phases]
    (tmp_path / "plan.json").write_text(json.dumps({"shards": [shard], "phases": told}))
    with pytest.raises(RunConfigError, match=said):
        data_of(run)
