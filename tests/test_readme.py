"""What the README names exists, and what exists is named."""

import re
from pathlib import Path

import pytest

from assets.cli import build_parser
from pipeline.config import presets
from training.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def verbs() -> set[str]:
    actions = build_parser()._subparsers
    assert actions is not None
    return set(actions._group_actions[0].choices or ())


def test_every_verb_is_named_and_no_other() -> None:
    named = set(re.findall(r"`gristmill ([a-z-]+)", README))
    assert named == verbs()


def test_every_make_target_is_named_and_no_other() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    listed = set(re.findall(r"`([a-z-]+)`", README.split("lists the targets:")[1].split(".")[0]))
    assert listed == targets - {"help"}
    assert set(re.findall(r"make ([a-z-]+)", README)) <= targets


def test_every_asset_is_named() -> None:
    from assets.definitions import defs

    keys = {key.to_user_string() for key in defs.resolve_all_asset_keys()}
    named = set(re.findall(r"`([a-z_]+)`", README))
    assert keys - named == set()


@pytest.mark.parametrize("names", [presets(), list(RECIPES)])
def test_presets_and_recipes_are_named(names: list[str]) -> None:
    assert [name for name in names if name not in README] == []
