from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.training.miniature import write_run
from training.config import RECORD, check_same_run, load_run, micro_batch
from training.errors import RunConfigError
from training.recipes import RECIPES


def test_a_run_file_is_completed_from_its_recipe_and_place(tmp_path: Path) -> None:
    config = load_run(write_run(tmp_path, steps=500))
    assert config.name == "mini"
    assert config.out == tmp_path / "checkpoints" / "mini"
    assert config.tokenizer == tmp_path / "tokenizer.json"
    assert config.shards == [tmp_path / "shards"]
    assert config.warmup_steps == 20, "the recipe's, as a tenth of the steps is more"
    assert config.model.layers == 2
    assert config.model.qk_norm, "what the file does not name comes from the recipe"


def test_warm_up_is_a_tenth_of_a_short_run(tmp_path: Path) -> None:
    assert load_run(write_run(tmp_path, steps=50)).warmup_steps == 5
    assert load_run(write_run(tmp_path, steps=1)).warmup_steps == 0
    assert load_run(write_run(tmp_path, steps=50, warmup_steps=7)).warmup_steps == 7


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"lr": 40}, "lr is 40"),
        ({"lr": -1e-3}, "lr is -0.001"),
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": 1}, "learning_rate (1) is unknown"),
        ({"steps": 5, "warmup_steps": 5}, "warmup_steps 5 must be below steps 5"),
        ({"recipe": "huge"}, "recipe 'huge' is not known"),
        ({"model": {"dim": 33}}, "dim 33 must be a multiple of twice the heads (4)"),
        ({"model": {"heads": 3, "dim": 48, "kv_heads": 2}}, "heads 3 must be a multiple"),
        ({"plan": "tokenizer.json"}, "either plan or shards"),
        ({"plan": "nowhere.json", "shards": []}, "plan"),
        ({"global_batch": 5, "nproc_per_node": 2}, "global_batch 5 cannot be shared by 2"),
        ({"parent": "no step"}, "parent is 'no step'"),
    ],
)
def test_absurd_values_name_key_value_and_fix(
    tmp_path: Path, keys: dict[str, Any], named: str
) -> None:
    with pytest.raises(RunConfigError) as caught:
        load_run(write_run(tmp_path, **keys))
    assert named in caught.value.message
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_a_missing_key_and_a_missing_file_are_said(tmp_path: Path) -> None:
    path = write_run(tmp_path)
    path.write_text("shards: shards\ntokenizer: tokenizer.json\n")
    with pytest.raises(RunConfigError, match="steps is missing"):
        load_run(path)
    path.write_text("steps: [1, 2\n")
    with pytest.raises(RunConfigError, match="is no YAML"):
        load_run(path)
    with pytest.raises(RunConfigError, match="no such run file"):
        load_run(tmp_path / "runs" / "other.yaml")


def test_another_configuration_under_the_same_name_is_refused(tmp_path: Path) -> None:
    first = load_run(write_run(tmp_path))
    first.out.mkdir(parents=True)
    record = {"config_hash": first.config_hash(), "identity": first.identity(), "config": {}}
    (first.out / RECORD).write_text(json.dumps(record))
    check_same_run(first)
    check_same_run(load_run(write_run(tmp_path, nproc_per_node=4, checkpoint_every=3)))
    with pytest.raises(RunConfigError, match=r"\(lr: 0\.003 is now 0\.002\)"):
        check_same_run(load_run(write_run(tmp_path, lr=2e-3)))


@pytest.mark.parametrize(("world", "expected"), [(1, (2, 2)), (2, (1, 2)), (4, (1, 1))])
def test_micro_batches_are_equal_on_all_ranks(
    tmp_path: Path, world: int, expected: tuple[int, int]
) -> None:
    config = load_run(write_run(tmp_path, global_batch=4, micro_batch=2))
    assert config.accumulation(world) == expected


def test_a_world_size_that_does_not_divide_names_one_that_does(tmp_path: Path) -> None:
    config = load_run(write_run(tmp_path, global_batch=4))
    with pytest.raises(RunConfigError, match="cannot be shared by 3") as caught:
        config.accumulation(3)
    assert "nproc_per_node: 2" in str(caught.value.hint)


def test_every_recipe_builds() -> None:
    for recipe in RECIPES.values():
        assert recipe().model.head_dim % 2 == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("recipe: [a]", r"recipe \['a'\] is not known"),
        ("1: 2", "a key is no word, in or after line"),
        ("steps: 20", "the key steps is there twice"),
        ("lr: " + "[" * 2000, "is no YAML"),
        ("keep_every: yes", "keep_every is True, not a number"),
        ("timeout_seconds: .inf", "timeout_seconds is inf"),
        ("timeout_seconds: 3e6", "timeout_seconds is '3e6'"),
        ("launch: {hang_seconds: .inf}", "launch.hang_seconds is inf"),
        ("clip: .nan", "clip is nan"),
        ("betas: [0.9, 1.0]", "betas.1 is 1.0"),
        ("spikes: {rewind_skips: 51}", "rewind_skips 51 cannot be reached within"),
        ('out: "a\\0b"', "is no folder"),
        ("out: tokenizer.json", "is no folder"),
        ("plan: " + "x" * 5000, "is not there"),
        ("spikes: {mad: 3}", r"spikes.mad \(3\) is unknown"),
    ],
)
def test_hostile_lines_are_refused_in_one_sentence(tmp_path: Path, line: str, said: str) -> None:
    path = write_run(tmp_path)
    keys = yaml.safe_load(path.read_text())
    if line.startswith("plan"):
        del keys["shards"]
    path.write_text(f"{yaml.safe_dump(keys)}{line}\n")
    with pytest.raises(RunConfigError, match=said) as caught:
        load_run(path)
    if "unknown" in said:
        assert "mads" in str(caught.value.hint), "the keys of the section"


@pytest.mark.parametrize("content", ["[1]", "{}", "{", '{"config_hash": "x"}'])
def test_a_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    config = load_run(write_run(tmp_path))
    config.out.mkdir(parents=True)
    (config.out / "run.json").write_text(content)
    with pytest.raises(RunConfigError, match=r"run\.json is damaged"):
        check_same_run(config)


def test_micro_batches_are_as_big_as_allowed_and_alike() -> None:
    assert [micro_batch(share, 4) for share in (8, 6, 7, 3)] == [4, 3, 1, 3]
