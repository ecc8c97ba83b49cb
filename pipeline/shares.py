"""Sharing out an amount by weights where each taker has a limit.

Used for the sample of the tokenizer (bytes a language has) and the training plan (passes over a
source): what a small taker cannot use goes to the others in proportion to their weights.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pipeline.errors import ConfigError


def allot(
    total: float, weights: Mapping[str, float], limits: Mapping[str, float]
) -> dict[str, float]:
    """`total` shared out in proportion to `weights`, nobody above their limit.

    The sum is `total`, or less where all limits together (of those with a weight) are less.
    """
    given = dict.fromkeys(weights, 0.0)
    open_ = {name: weight for name, weight in weights.items() if weight > 0}
    left = total
    while open_ and left > 0:
        scale = left / sum(open_.values())
        full = [name for name, weight in open_.items() if weight * scale >= limits[name]]
        if not full:
            return given | {name: weight * scale for name, weight in open_.items()}
        for name in full:
            given[name] = limits[name]
            left -= limits[name]
            del open_[name]
    return given


def check_names(key: str, named: Collection[str], known: Collection[str]) -> None:
    """Raise ConfigError naming `key` where weights are given for a source that does not exist."""
    unknown = sorted(set(named) - set(known))
    if unknown:
        message = f"{key} names {', '.join(map(repr, unknown))}, which is no source here"
        raise ConfigError(message, hint=f"the sources are {', '.join(sorted(known)) or 'none'}")
