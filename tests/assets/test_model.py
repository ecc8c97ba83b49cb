"""What the assets of the group model read of the store."""

from dataclasses import replace
from pathlib import Path

from assets.model import shard_languages
from pipeline.config import merge, validate
from pipeline.stages import mixture, tokens
from resources.mill import open_mill
from tests import miniature, miniature_input
from tests.miniature_input import FIRST, SOURCE


def test_languages_are_those_of_the_shards_that_the_plan_names(tmp_path: Path) -> None:
    given = miniature_input.build(tmp_path / "input")
    mill = open_mill(miniature.config(str(tmp_path / "root"), given))
    until = miniature.STEPS.index(f"token_shards/{SOURCE}") + 1
    miniature.perform(mill, [*miniature.STEPS[:until], "mixture"])
    plan = mixture.read_plan(mill, mixture.mixture(mill))
    names = {Path(shard["path"]).name: shard["documents"] for shard in plan["shards"]}
    assert {name: len(found) for name, found in shard_languages(mill).items()} == names

    smaller = merge(mill.config.model_dump(), {"tokenizer": {"vocab_size": 400, "unfreeze": True}})
    again = replace(mill, config=validate(smaller))
    tokens.tokenizer(again)
    tokens.token_shards(again, FIRST)
    assert shard_languages(mill).keys() == names.keys()
