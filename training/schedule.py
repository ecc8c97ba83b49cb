"""The learning rate as a pure function of the step. No torch here.

Every schedule warms up in a straight line, then

    wsd      stays, and falls in a straight line over the last `decay_share` of the steps (MiniCPM,
             arXiv:2404.06395). The default: a checkpoint of the stable part can be gone on from, or
             annealed on other data, without knowing the length beforehand.
    cosine   falls by half a cosine (arXiv:1608.03983) to a tenth, as Llama 2 (arXiv:2307.09288)
    linear   falls in a straight line to 0 (arXiv:2310.07831)

The floor is what the step behind the last one would have, so that with a floor of 0 the last step
still moves the weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.config import RunConfig

FLOORS = {"wsd": 0.0, "cosine": 0.1, "linear": 0.0}
"""Published share of `lr` at the end, by schedule."""


def floor_of(config: RunConfig) -> float:
    """Learning rate at the end, as a share of `lr`."""
    return FLOORS[config.schedule] if config.min_lr_ratio is None else config.min_lr_ratio


def decay_steps(config: RunConfig) -> int:
    """Steps in which the learning rate falls; `decay_share` of them all where it is `wsd`."""
    if config.schedule == "wsd":
        return round(config.decay_share * config.steps)
    return config.steps - config.warmup_steps


def learning_rate(step: int, config: RunConfig) -> float:
    """Rate of the step that makes `step` steps done (from 1)."""
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    falling = decay_steps(config)
    into = step - (config.steps - falling)  # 1 at the first step of the decay
    if into <= 0:
        return config.lr
    share, floor = min(into / (falling + 1), 1.0), floor_of(config)
    left = 0.5 * (1 + math.cos(math.pi * share)) if config.schedule == "cosine" else 1 - share
    return config.lr * (floor + (1 - floor) * left)


def problem_of(config: RunConfig) -> str | None:
    """Why this schedule does not fit the length of the run, or None."""
    if config.warmup_steps >= config.steps:
        return f"warmup_steps {config.warmup_steps} must be below steps {config.steps}"
    if config.warmup_steps + decay_steps(config) > config.steps:
        return (
            f"warmup_steps {config.warmup_steps} and a decay of {decay_steps(config)} steps "
            f"(decay_share {config.decay_share:g}) are more than steps {config.steps}"
        )
    return None
