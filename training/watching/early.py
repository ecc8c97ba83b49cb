"""The early-run report: is a run worth going on with, from the numbers of its first steps?

A run that will fail mostly shows it in its first thousand steps, and those cost a thousandth of it.
Eight checks, each `healthy`, `watch` or `stop`, or without a verdict where there is too little to
judge by; the report's verdict is the worst of them. No torch here.

Where the thresholds come from:
- `skips`: five in fifty steps is where the ladder behind the gate takes the run back. Fewer are
  what the gate is for, where the batch says why:
- `unexplained_skips`: a step was refused for its data where the loss of some sequences stood out
  of the batch, not that of half of them, or where some tokens repeat for long. Else one is worth a
  look.
- `gradient_spikes`: 10 x the running median is what Megatron-LM calls spiky
  (`SPIKY_LOSS_FACTOR = 10`); clipping hides it from the loss. Steps that were refused moved nothing
  and do not count.
- `gradient_trend`: medians of the last and the second quarter of the steps. In healthy runs the
  norm falls or stays; one that grows tenfold is on its way to diverge (the precursor of loss spikes
  in arXiv:2312.16903 is a growing gradient norm).
- `reference`: smoothed loss against another run at equal tokens. Two seeds of the demo's run were
  0.1 to 1.9 % apart from step 50 to 100, so 5 % is no chance and 15 % another kind of run.
- `entropy`: a calibrated model's predictions have the entropy of its loss. Far less is collapse:
  sure of itself and wrong.
- `unigram`: held-out bits per byte over those of guessing by frequency alone. The smallest recipe
  is below after some 200,000 tokens; who is not after 2 million does not learn. Without held-out
  text the loss over the entropy of the batch's own tokens, which is less than that of all text.
- `updates`: |Δw| / |w| a step is near 1e-3 in healthy runs, by rule of thumb.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from training.config import RunConfig
from training.errors import RunConfigError
from training.watching.loglines import LINES

FILE = "early_report.json"
LEAST = 40
"""Steps without which nothing is judged."""
RANKS = {"healthy": 0, "watch": 1, "stop": 2}
SPIKY = 10.0
LEARNED = 2_000_000
"""Tokens after which every model is better than guessing by frequency."""
LONG = 64
"""Tokens of a repeat that text hardly has."""
Line = dict[str, Any]
Spike = Mapping[str, Any]


def early_report(
    lines: Sequence[Line],
    *,
    steps: int,
    spikes: Sequence[Spike] = (),
    reference: Sequence[Line] = (),
    name: str | None = None,
) -> dict[str, Any]:
    """Verdict and checks over the lines of the first `steps` steps of a `metrics.jsonl`.

    `spikes`: the reports of refused steps (`training.spikes.facts`); `reference`: lines of the run
    called `name`, to compare with at equal tokens.
    """
    seen = [line for line in lines if line["step"] <= steps]
    found = [*(check(seen) for check in CHECKS), unexplained_skips(seen, spikes)]
    if name is not None:
        found.append(against(seen, reference, name))
    judged = [one for one in found if one["verdict"]]
    worst = max((RANKS[one["verdict"]] for one in judged), default=0)
    verdict = next(name for name, rank in RANKS.items() if rank == worst)
    return {
        "verdict": verdict if judged else None,
        "reasons": [one["why"] for one in judged if RANKS[one["verdict"]]],
        "steps": len(seen),
        "of_steps": steps,
        "tokens": seen[-1]["tokens"] if seen else 0,
        "reference": name,
        "checks": found,
    }


def numbers(lines: Sequence[Line], key: str) -> list[float]:
    """The finite values under a key, in order."""
    found = (line.get(key) for line in lines)
    return [float(v) for v in found if isinstance(v, int | float) and math.isfinite(v)]


def judged(
    name: str, value: float | None, watch: float, stop: float | None, why: str
) -> dict[str, Any]:
    """A check whose value must stay below two thresholds; None where it cannot be judged."""
    if value is None:
        return {"name": name, "verdict": None, "value": None, "watch": watch, "stop": stop,
                "why": why}  # fmt: skip
    verdict = "stop" if stop is not None and value >= stop else "healthy"
    verdict = "watch" if verdict == "healthy" and value >= watch else verdict
    shown = float(f"{min(value, 1e9):.4g}")  # JSON has no infinity
    limit = f"from {watch:g} on worth a look"
    if verdict == "stop":
        limit = f"from {stop:g} on a reason to stop"
    text = f"{why}: {shown:g}, {limit}"
    return {"name": name, "verdict": verdict, "value": shown, "watch": watch, "stop": stop,
            "why": text}  # fmt: skip


def skips(lines: Sequence[Line]) -> dict[str, Any]:
    """Most steps skipped within fifty."""
    flags = [bool(line.get("skipped")) for line in lines]
    most = max((sum(flags[at : at + 50]) for at in range(len(flags))), default=0)
    value = float(most) if len(flags) >= LEAST else None
    return judged("skips", value, 5, 5, "most steps skipped within fifty")


def unexplained_skips(lines: Sequence[Line], spikes: Sequence[Spike]) -> dict[str, Any]:
    """Skipped steps that their data do not explain; one without a report is none that is."""
    told = {one["step"]: one for one in spikes}  # the last report of a step is that in force
    refused = [int(line["step"]) for line in lines if line.get("skipped")]
    count = sum(step not in told or not explained(told[step]) for step in refused)
    value = float(count) if len(lines) >= LEAST else None
    return judged("unexplained_skips", value, 1, None, "skipped steps that no sequence of theirs "
                  "explains")  # fmt: skip


def explained(spike: Spike) -> bool:
    """Whether it was the data of a refused step: few sequences that stand out, or a long repeat."""
    few = 0 < len(spike["suspects"]) < len(spike["sequences"]) / 2
    return few or long_repeat(spike) is not None


def long_repeat(spike: Spike) -> Line | None:
    """The longest repeat in the batch of a refused step, where it is longer than that of text."""
    found: Line | None = spike["longest_repeat"]
    return found if found is not None and found["tokens"] >= LONG else None


def gradient_spikes(lines: Sequence[Line]) -> dict[str, Any]:
    """Largest gradient norm of a step that counted, over the median of the fifty before it."""
    norms = numbers([line for line in lines if not line.get("skipped")], "grad_norm")
    ratios = [norms[n] / max(median(norms[n - 50 : n]), 1e-30) for n in range(50, len(norms))]
    value = max(ratios, default=None)
    return judged("gradient_spikes", value, SPIKY, None, "gradient norm over the median of the "
                  "fifty steps before it, at most")  # fmt: skip


def gradient_trend(lines: Sequence[Line]) -> dict[str, Any]:
    """Median gradient norm of the last quarter over that of the second."""
    norms = numbers(lines, "grad_norm")
    value, quarter = None, len(norms) // 4
    if len(norms) >= LEAST:
        value = median(norms[-quarter:]) / max(median(norms[quarter : 2 * quarter]), 1e-30)
    return judged("gradient_trend", value, 2, 10, "gradient norm of the last quarter over that of "
                  "the second")  # fmt: skip


def loss_falls(lines: Sequence[Line]) -> dict[str, Any]:
    """Loss of the last tenth over that of the first; infinite where it mostly is not finite."""
    losses, value = numbers(lines, "loss"), None
    if len(lines) >= LEAST:
        tenth = len(lines) // 10
        bad = sum(1 for line in lines[-tenth:] if not numbers([line], "loss"))
        value = math.inf if bad > tenth // 2 or not losses else (
            median(losses[-tenth:]) / max(median(losses[:tenth]), 1e-30)
        )  # fmt: skip
    return judged("loss", value, 0.98, 1.05, "loss of the last tenth over that of the first")


def entropy(lines: Sequence[Line]) -> dict[str, Any]:
    """How far the entropy of the predictions is below the loss, as a share of it."""
    tail = lines[-max(len(lines) // 10, 1) :]
    found, losses = numbers(tail, "entropy"), numbers(tail, "loss")
    value = None
    if len(lines) >= LEAST and found and losses:
        value = 1 - median(found) / max(median(losses), 1e-30)
    return judged("entropy", value, 0.3, 0.7, "entropy of the predictions below the loss, share")


def unigram(lines: Sequence[Line]) -> dict[str, Any]:
    """The model over guessing by frequency, once it has had tokens enough to be better."""
    tail, value = lines[-max(len(lines) // 10, 1) :], None
    pairs = ("held_out_bits_per_byte", "unigram_bits_per_byte"), ("loss", "batch_entropy")
    for name, level in pairs:
        ours, guessing = numbers(tail, name), numbers(tail, level)
        if value is None and ours and guessing and lines[-1]["tokens"] >= LEARNED:
            value = median(ours) / max(median(guessing), 1e-30)
    return judged("unigram", value, 0.97, 1, "the model over guessing by frequency")


def updates(lines: Sequence[Line]) -> dict[str, Any]:
    """Distance of the update/weight ratio from 1e-3, in powers of ten, past the warm-up."""
    found = numbers(lines[len(lines) // 4 :], "update_ratio")
    value = None
    if len(found) >= 4:
        value = abs(math.log10(max(median(found), 1e-12)) + 3)
    return judged("updates", value, 1.5, None, "update/weight ratio, powers of ten off 1e-3")


CHECKS: tuple[Callable[[Sequence[Line]], dict[str, Any]], ...] = (
    skips,
    gradient_spikes,
    gradient_trend,
    loss_falls,
    entropy,
    unigram,
    updates,
)


def against(lines: Sequence[Line], reference: Sequence[Line], name: str) -> dict[str, Any]:
    """Smoothed loss over that of a reference run at the same number of tokens, less one."""
    ours, theirs = smooth(lines), smooth(reference)
    value = None
    if len(ours) >= LEAST and theirs and theirs[-1][0] >= ours[-1][0] > theirs[0][0]:
        value = ours[-1][1] / at_tokens(theirs, ours[-1][0]) - 1
    why = f"loss above that of {name} at equal tokens, share"
    return judged("reference", value, 0.05, 0.15, why)


def smooth(lines: Sequence[Line]) -> list[tuple[int, float]]:
    """(tokens, mean of the losses over the last fifth of those tokens).

    The window is one of tokens, so that runs with other batches lag behind alike. Steps that were
    refused or have no finite loss are left out.
    """
    taken = [line for line in lines if not line.get("skipped")]
    pairs = [(line["tokens"], found[0]) for line in taken if (found := numbers([line], "loss"))]
    out, first, total = [], 0, 0.0
    for n, (tokens, loss) in enumerate(pairs):
        total += loss
        while pairs[first][0] < 0.8 * tokens:
            total -= pairs[first][1]
            first += 1
        out.append((tokens, total / (n - first + 1)))
    return out


def at_tokens(curve: Sequence[tuple[int, float]], tokens: int) -> float:
    """Value of a curve at a number of tokens, by the straight line between its points."""
    after = next(n for n, (x, _) in enumerate(curve) if x >= tokens)
    if after == 0:
        return curve[0][1]
    (x0, y0), (x1, y1) = curve[after - 1], curve[after]
    return y0 + (y1 - y0) * (tokens - x0) / max(x1 - x0, 1)


def check_reference(config: RunConfig) -> None:
    """RunConfigError where the run that a run file names to compare with is not there."""
    if config.watch.reference is not None:
        reference_file(config.parent_root, config.watch.reference)


def reference_file(runs: Path, reference: str) -> Path:
    """`metrics.jsonl` of the run that `watch.reference` names; RunConfigError where none is there.

    `runs`: the folder of the runs. A path to a file is taken as it is.
    """
    for path in (runs / reference / LINES, Path(reference)):
        if path.is_file():
            return path
    message = f"watch.reference is {reference!r}, and {runs / reference} holds no metrics.jsonl"
    there = ", ".join(sorted(p.parent.name for p in runs.glob("*/metrics.jsonl"))) or "none"
    raise RunConfigError(message, hint=f"name a run that was trained here; there: {there}")
