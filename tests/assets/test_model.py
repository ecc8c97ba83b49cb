"""What the assets of the group model read of the store."""

from dataclasses import replace
from pathlib import Path

import yaml

from assets.model import shard_languages
from assets.traininputs import dataset_inputs
from pipeline.config import merge, validate
from pipeline.mill import Mill
from pipeline.stages import mixture, tokens
from resources.mill import open_mill
from tests import miniature, miniature_input
from tests.miniature_input import FIRST, SOURCE
from training.config import RunConfig, load_run


def test_languages_are_those_of_the_shards_that_the_plan_names(tmp_path: Path) -> None:
    given = miniature_input.build(tmp_path / "input")
    mill = open_mill(miniature.config(str(tmp_path / "root"), given))
    until = miniature.STEPS.index(f"token_shards/{SOURCE}") + 1
    miniature.perform(mill, [*miniature.STEPS[:until], "mixture"])
    plan = mixture.read_plan(mill, mixture.mixture(mill))
    names = {Path(shard["path"]).name: shard["documents"] for shard in plan["shards"]}
    held_out = {name: n for name, n in names.items() if name.endswith("-held_out")}
    assert held_out, "the miniature holds something out"
    found = languages(mill, tmp_path / "root", plan="mixture/plan.json")
    assert {name: len(each) for name, each in found.items()} == held_out

    plan_inputs = named(mill, tmp_path / "root", plan="mixture/plan.json")
    corpora = {f"token_shards/{name}" for name in (FIRST, SOURCE)}
    assert plan_inputs.keys() == {"mixture", "tokenizer", *corpora}
    one = named(mill, tmp_path / "root", shards=f"token_shards/{FIRST}")
    assert one.keys() == {"tokenizer", f"token_shards/{FIRST}"}, "no mixture that it does not read"
    earlier = next((tmp_path / "root/mixture").glob("plan-*.json"))

    smaller = merge(mill.config.model_dump(), {"tokenizer": {"vocab_size": 400, "unfreeze": True}})
    again = replace(mill, config=validate(smaller))
    tokens.tokenizer(again)
    tokens.token_shards(again, FIRST)
    assert languages(mill, tmp_path / "root", plan="mixture/plan.json") == found
    tokens.token_shards(again, SOURCE)
    mixture.mixture(again)
    assert (
        named(mill, tmp_path / "root", plan="mixture/plan.json")["mixture"]
        not in (then := named(mill, tmp_path / "root", plan=f"mixture/{earlier.name}")).values()
    ), "an earlier plan is not the current one"
    assert {name: then[name] for name in ("mixture", *corpora)} == {
        name: plan_inputs[name] for name in ("mixture", *corpora)
    }


def languages(mill: Mill, root: Path, **keys: str) -> dict[str, list[str]]:
    """The languages of the held-out shards that a run with these keys reads."""
    return shard_languages(mill, dataset_inputs(mill, root, run_of(root, **keys)))


def named(mill: Mill, root: Path, **keys: str) -> dict[str, str]:
    """What a run with these keys reads: name and hash of the manifests."""
    return {one.name: one.digest for one in dataset_inputs(mill, root, run_of(root, **keys))}


def run_of(root: Path, **keys: str) -> RunConfig:
    file = root / "runs" / "first.yaml"
    file.parent.mkdir(exist_ok=True)
    given = {"tokenizer": "tokenizer/tokenizer.json", "steps": 10} | keys
    file.write_text(yaml.safe_dump(given))
    return load_run(file)
