"""Figures of all rounds as one object: medians, ratios with their spread, versions."""

import platform
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from statistics import median
from typing import Any

from assets.bench.contests import Contest, Side

KNOWN = {
    "documents", "bytes", "tokens", "cpu_seconds", "wall_seconds", "peak_mib", "warm_cpu_seconds",
}  # fmt: skip
CLOCKS = {
    "cpu_seconds": "CPU seconds of one thread, children included",
    "wall_seconds": "wall seconds",
}
OURS = ("trafilatura", "Resiliparse", "fasttext-community", "polars", "numba", "spacy")
"""Libraries that decide our speed, beside the peer's own."""
Figures = dict[str, float]


@dataclass
class Run:
    """A side and what its rounds gave."""

    side: Side
    ours: bool
    figures: list[Figures] = field(default_factory=list)
    findings: list[Path] = field(default_factory=list)

    def total(self, key: str) -> float:
        """The sum of a figure over the rounds."""
        return sum(figures[key] for figures in self.figures)


def ratio_of(
    ours: Figures, theirs: Figures, clock: str = "cpu_seconds", own: str | None = None
) -> float:
    """Our speed over theirs; sides that read different amounts are compared per document.

    `own`: the figure that holds our time, where it is not the clock's (a second run).
    """
    our_rate = ours["documents"] / max(ours[own or clock], 1e-9)
    return our_rate / (theirs["documents"] / max(theirs[clock], 1e-9))


def summary(
    contest: Contest,
    runs: list[Run],
    agree: dict[str, dict[str, Any]],
    repeatable: dict[str, bool],
    *,
    split: bool = False,
) -> dict[str, Any]:
    """The object that `bench --json` prints; the peer is the faster of its forms."""
    ours = runs[0]
    theirs = min((run for run in runs if not run.ours), key=lambda run: run.total(contest.clock))
    sides = {run.side.label: _side(run, theirs, contest, agree, split=split) for run in runs}
    return {
        "stage": contest.stage,
        "peer": contest.peer,
        "rounds": len(ours.figures),
        "ours": speeds(ours, contest.clock, split=split),
        "theirs": speeds(theirs, contest.clock, split=split),
        "ratio": sides[ours.side.label]["ratio"],
        "agree": agree.get(ours.side.label, {}),
        "sides": sides,
        "details": _details(contest, runs, theirs, repeatable, split=split),
        "versions": versions(contest.packages),
    }


def _side(
    run: Run, theirs: Run, contest: Contest, agree: dict[str, dict[str, Any]], *, split: bool
) -> dict[str, Any]:
    """One side of the table. `ratio`: its speed over that of the peer's faster form."""
    pairs = list(zip(run.figures, theirs.figures, strict=True))
    found: dict[str, Any] = {
        "ours": run.ours,
        **speeds(run, contest.clock, split=split),
        "seconds": [round(figures[contest.clock], 4) for figures in run.figures],
        "ratio": spread([ratio_of(mine, peer, contest.clock) for mine, peer in pairs]),
    }
    more = sorted(set(run.figures[0]) - KNOWN)
    if more:
        found["figures"] = {key: _figure(run, key, split=split) for key in more}
    if run.side.label in agree:
        found["agree"] = agree[run.side.label]
    return found


def _figure(run: Run, key: str, *, split: bool) -> float:
    values = [figures[key] for figures in run.figures]
    return round(sum(values) if split else median(values), 4)


def _details(
    contest: Contest, runs: list[Run], theirs: Run, repeatable: dict[str, bool], *, split: bool
) -> dict[str, Any]:
    ours = runs[0]
    pairs = list(zip(ours.figures, theirs.figures, strict=True))
    first = ours.figures if split else ours.figures[:1]
    details: dict[str, Any] = {
        "compared": contest.says,
        "documents": int(sum(figures["documents"] for figures in first)),
        "bytes": int(sum(figures["bytes"] for figures in first)),
        "clock": CLOCKS[contest.clock],
        "peer_form": theirs.side.label,
        "shared": split,
        "wall_ratio": spread([ratio_of(mine, peer, "wall_seconds") for mine, peer in pairs]),
        "repeatable": repeatable,
    }
    if "warm_cpu_seconds" in ours.figures[0]:
        key = "warm_cpu_seconds"
        details["warm"] = {
            "ours": {"docs_per_s": _rate(ours, "documents", key, split=split)},
            "ratio": spread([ratio_of(mine, peer, own=key) for mine, peer in pairs]),
        }
    return details


def speeds(run: Run, clock: str = "cpu_seconds", *, split: bool = False) -> dict[str, float]:
    """Speed and peak memory of one side; where tokens are counted also tokens a second.

    The median of rounds, but over all rounds where these share the input.
    """
    peaks = [figures["peak_mib"] for figures in run.figures]
    found = {
        "docs_per_s": _rate(run, "documents", clock, split=split),
        "mb_per_s": _rate(run, "bytes", clock, scale=1e6, split=split),
        "peak_mib": round(max(peaks) if split else median(peaks), 1),
    }
    if "tokens" in run.figures[0]:
        found["tokens_per_s"] = _rate(run, "tokens", clock, split=split)
    return found


def _rate(run: Run, what: str, clock: str, *, split: bool, scale: float = 1.0) -> float:
    if split:
        return round(run.total(what) / scale / max(run.total(clock), 1e-9), 3)
    return round(median(f[what] / scale / max(f[clock], 1e-9) for f in run.figures), 3)


def spread(values: list[float]) -> dict[str, float]:
    """Smallest, middle and largest value."""
    numbers = {"min": min(values), "median": median(values), "max": max(values)}
    return {name: round(value, 3) for name, value in numbers.items()}


def versions(modules: tuple[str, ...] = ()) -> dict[str, str]:
    """What the figures belong to: this program, Python, the CPU, our libraries, the peer's."""
    distributions = packages_distributions()
    peers = [name for module in modules for name in distributions.get(module, [])[:1]]
    found = {
        "gristmill": version("gristmill"),
        "python": platform.python_version(),
        "cpu": cpu_name(),
    }
    for name in dict.fromkeys((*OURS, *peers)):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a module of the standard library, or one beside the packages
            continue
    return found


@cache
def cpu_name() -> str:
    """The model of the CPU as the kernel names it, else the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
