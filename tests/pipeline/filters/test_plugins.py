"""Rules of another package, found by its entry point."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.config.filter import FilterConfig
from pipeline.errors import ConfigError, ContractError
from pipeline.filters import plugins
from pipeline.filters.run import explain, filter_documents

MODULE = """
import polars as pl
from pipeline.filters.rules import above


class Shouting:
    def signals(self, frame, settings):
        capitals = pl.col("text").str.count_matches("[A-Z]")
        share = capitals / pl.col("text").str.len_chars()
        return frame.select(share.alias(settings.get("column", "shouting_share")))

    def rules(self, settings):
        family = settings.get("family", "shouting")
        column = settings.get("column", "shouting_share")
        return above(f"{family}.too_loud", column, settings["limit"])


class Short(Shouting):
    def signals(self, frame, settings):
        return super().signals(frame, settings).head(0)


class Wordy(Shouting):
    def signals(self, frame, settings):
        return frame.select(shouting_share="text")


SHOUTING, SHORT, WORDY = Shouting(), Short(), Wordy()
"""
POINTS = """[gristmill.filters]
shouting = shouting_rules:SHOUTING
short = shouting_rules:SHORT
wordy = shouting_rules:WORDY
"""
QUIET: dict[str, Any] = {
    "language": {"enabled": False},
    "gopher": {"quality": False, "repetition": False},
    "c4": {"enabled": False},
    "fineweb": {"enabled": False},
}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A package `shouting-rules` 1.2, as pip would leave it."""
    (tmp_path / "shouting_rules.py").write_text(MODULE)
    info = tmp_path / "shouting_rules-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting-rules\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    caches = (plugins._found, plugins._rule_set)
    yield
    sys.modules.pop("shouting_rules", None)
    for cached in caches:
        cached.cache_clear()


def decided(**named: Any) -> pl.DataFrame:
    texts = ["A quiet text about mills.", "LOUD NEWS, every day", "Quiet again."]
    frame = pl.DataFrame({"doc_id": ["a", "b", "c"], "url": [None] * 3, "text": texts})
    tables = filter_documents(
        frame, FilterConfig.model_validate({**QUIET, "plugins": named})
    ).tables
    return tables["decisions"].join(tables["signals"], on="doc_id", maintain_order="left")


@pytest.mark.usefixtures("installed")
def test_rules_of_a_package() -> None:
    found = decided(shouting={"limit": 0.3})
    assert found["reason"].to_list() == [None, "shouting.too_loud", None]
    assert found["value"][1] == pytest.approx(8 / 20)
    assert found["threshold"][1] == pytest.approx(0.3)
    assert found["shouting_share"].dtype == pl.Float32
    config = FilterConfig.model_validate({**QUIET, "plugins": {"shouting": {"limit": 0.3}}})
    assert "shouting.too_loud" in {row.rule for row in explain("LOUD", None, config)}
    assert plugins.packages(config.plugins) == ("shouting-rules",)


@pytest.mark.usefixtures("installed")
def test_only_what_is_named_is_run() -> None:
    assert decided()["reason"].to_list() == [None] * 3
    assert decided(shouting={"limit": 0.9})["reason"].to_list() == [None] * 3


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"short": {"limit": 1}}, "plug-in short: 0 rows of signals for 3 documents"),
        ({"wordy": {"limit": 1}}, "plug-in wordy: the signal 'shouting_share' is String"),
        ({"shouting": {"limit": 1, "column": "n_words"}}, "signal 'n_words' is there already"),
        ({"shouting": {"limit": 1, "family": "c4"}}, "'c4.too_loud' is of another family"),
    ],
)
def test_rule_sets_that_break_the_contract_are_named(named: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        decided(**named)


@pytest.mark.usefixtures("installed")
def test_a_name_that_is_not_installed() -> None:
    with pytest.raises(ConfigError, match=r"(?s)plugins\.whisper: no .*installed: shor.*shouting"):
        plugins.packages({"whisper": {}})
