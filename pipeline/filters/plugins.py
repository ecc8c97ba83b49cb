"""Rules of other packages: the entry-point group `gristmill.filters`.

A package that has

    [project.entry-points."gristmill.filters"]
    shouting = "my_package:SHOUTING"

gives an object with two functions (`RuleSet`), and `filter.plugins: {shouting: {limit: 0.5}}` asks
it: what is installed but not named is not run, so that a result does not depend on it. The name of
the entry point is the family of its reasons; the version of its package is part of the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, cast

import polars as pl

from pipeline.errors import ConfigError, ContractError
from pipeline.filters.rules import Rule

GROUP = "gristmill.filters"
KEY = "filter.plugins"
Settings = Mapping[str, Any]


class RuleSet(Protocol):
    """What an entry point gives."""

    def signals(self, frame: pl.DataFrame, settings: Settings) -> pl.DataFrame:
        """Numbers for each of the documents `url, text, language`, whose text is the edited one.

        One row a document in the same order, any number of columns; null where there is none.
        """

    def rules(self, settings: Settings) -> Sequence[Rule]:
        """Rules over those columns (`pipeline.filters.rules`: `above`, `below`, or `Rule`), in the
        order in which they are asked. Reasons are `<entry point>.<rule>`."""


@cache
def _found(name: str) -> EntryPoint:
    installed = entry_points(group=GROUP)
    chosen = [point for point in installed if point.name == name]
    if len(chosen) != 1:
        count = "no installed package has" if not chosen else f"{len(chosen)} packages have"
        message = f"{KEY}.{name}: {count} an entry point of that name in {GROUP}"
        names = ", ".join(sorted({point.name for point in installed})) or "none"
        raise ConfigError(message, hint=f"installed: {names}")
    return chosen[0]


@cache
def _rule_set(name: str) -> RuleSet:
    return cast("RuleSet", _found(name).load())


def packages(plugins: Mapping[str, Settings]) -> tuple[str, ...]:
    """The packages that rule sets come from. ConfigError for a name that is not installed."""
    points = [_found(name) for name in plugins]
    return tuple(sorted({point.dist.name for point in points if point.dist}))


def signals(
    plugins: Mapping[str, Settings], frame: pl.DataFrame, known: Sequence[str]
) -> list[pl.DataFrame]:
    """The columns of each rule set. ContractError naming one that does not keep to `RuleSet`."""
    tables: list[pl.DataFrame] = []
    taken = set(known)
    for name, settings in plugins.items():
        table = _rule_set(name).signals(frame, settings)
        if len(table) != len(frame):
            message = f"plug-in {name}: {len(table)} rows of signals for {len(frame)} documents"
            raise ContractError(message, hint="one row a document, in the same order")
        if twice := sorted(taken & set(table.columns)):
            message = f"plug-in {name}: the signal {twice[0]!r} is there already"
            raise ContractError(message, hint=f"call it {name}_{twice[0]}")
        if wrong := [key for key, kind in table.schema.items() if not _is_number(kind)]:
            message = f"plug-in {name}: the signal {wrong[0]!r} is {table.schema[wrong[0]]}"
            raise ContractError(message, hint="signals are numbers")
        taken |= set(table.columns)
        tables.append(table)
    return tables


def _is_number(kind: pl.DataType) -> bool:
    return kind.is_numeric() and kind != pl.Decimal


def rules(plugins: Mapping[str, Settings]) -> list[Rule]:
    """The rules of all rule sets, in the order of the configuration."""
    found: list[Rule] = []
    for name, settings in plugins.items():
        for rule in _rule_set(name).rules(settings):
            if not rule.reason.startswith(f"{name}."):
                message = f"plug-in {name}: its reason {rule.reason!r} is of another family"
                raise ContractError(message, hint=f"reasons begin with '{name}.'")
            found.append(rule)
    return found
