"""Rounds: ours and the peer by turns, each in a fresh process with one thread, then the ratios."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from assets.bench.contests import Contest
from assets.bench.worker import named
from pipeline.errors import GristmillError

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
}
SIDES = ("ours", "theirs")
Figures = dict[str, float]
Say = Callable[[str], None]


def hold(contest: Contest, material: Path, rounds: int, say: Say) -> dict[str, Any]:
    """Run the contest; the object that `bench --json` prints.

    Odd rounds start with ours, even ones with the peer. GristmillError where a side fails.
    """
    figures: dict[str, list[Figures]] = {side: [] for side in SIDES}
    sums: dict[str, set[str]] = {side: set() for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            out = material / f"{contest.stage}-{side}-{number}"
            figures[side].append(run_side(getattr(contest, side), material, out))
            sums[side].add(_digest(out / "finding.parquet"))
        ours, theirs = figures["ours"][-1], figures["theirs"][-1]
        ratio = _ratio(ours, theirs)
        say(
            f"round {number + 1} of {rounds}: ours {ours['cpu_seconds']:.2f} s, {contest.peer} "
            f"{theirs['cpu_seconds']:.2f} s of CPU time, ratio {ratio:.2f}"
        )
    import polars as pl

    found = [
        pl.read_parquet(material / f"{contest.stage}-{side}-0" / "finding.parquet")
        for side in SIDES
    ]
    agree = named(contest.compare)(*found)
    repeatable = {side: len(found) == 1 for side, found in sums.items()}
    return summary(contest, figures, agree, repeatable)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_side(side: str, material: Path, out: Path) -> Figures:
    """One side in a process of its own. GristmillError with its last words where it fails."""
    out.mkdir(parents=True)
    job = out / "job.json"
    job.write_text(json.dumps({"side": side, "material": str(material), "out": str(out)}))
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "assets.bench.worker", str(job)],
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
        message = f"{side} failed: {lines[-1]}"
        raise GristmillError(message, hint=f"last lines: {' | '.join(lines[-4:-1])}")
    figures: Figures = json.loads((out / "figures.json").read_text())
    return figures


def _ratio(ours: Figures, theirs: Figures, seconds: str = "cpu_seconds") -> float:
    """Our speed over theirs; sides that read different amounts are compared per document."""
    our_rate = ours["documents"] / max(ours[seconds], 1e-9)
    return our_rate / (theirs["documents"] / max(theirs["cpu_seconds"], 1e-9))


def summary(
    contest: Contest,
    figures: dict[str, list[Figures]],
    agree: dict[str, Any],
    repeatable: dict[str, bool],
) -> dict[str, Any]:
    """Figures of all rounds as one object: medians, and the spread of the ratio."""
    pairs = list(zip(figures["ours"], figures["theirs"], strict=True))
    details: dict[str, Any] = {
        "compared": contest.says,
        "documents": int(figures["ours"][0]["documents"]),
        "bytes": int(figures["ours"][0]["bytes"]),
        "clock": "CPU seconds of one thread",
        "cpu_seconds": {
            side: [round(f["cpu_seconds"], 4) for f in figures[side]] for side in SIDES
        },
        "wall_ratio": _spread([t["wall_seconds"] / max(o["wall_seconds"], 1e-9) for o, t in pairs]),
        "repeatable": repeatable,
    }
    if "warm_cpu_seconds" in figures["ours"][0]:
        details["warm"] = {
            "ours": {"docs_per_s": _rate(figures["ours"], "documents", "warm_cpu_seconds")},
            "ratio": _spread([_ratio(ours, theirs, "warm_cpu_seconds") for ours, theirs in pairs]),
        }
    known = {
        "documents",
        "bytes",
        "tokens",
        "cpu_seconds",
        "wall_seconds",
        "peak_mib",
        "warm_cpu_seconds",
    }
    for side in SIDES:
        for key in sorted(set(figures[side][0]) - known):
            value = median(f[key] for f in figures[side])
            details.setdefault(key, {})[side] = round(value, 4)
    return {
        "stage": contest.stage,
        "peer": contest.peer,
        "rounds": len(pairs),
        **{side: speeds(figures[side]) for side in SIDES},
        "ratio": _spread([_ratio(ours, theirs) for ours, theirs in pairs]),
        "agree": agree,
        "details": details,
    }


def speeds(figures: list[Figures]) -> dict[str, float]:
    """Median speed and peak memory of one side; where tokens are counted also tokens a second."""
    found = {
        "docs_per_s": _rate(figures, "documents"),
        "mb_per_s": _rate(figures, "bytes", scale=1e6),
        "peak_mib": round(median(f["peak_mib"] for f in figures), 1),
    }
    return found | ({"tokens_per_s": _rate(figures, "tokens")} if "tokens" in figures[0] else {})


def _rate(
    figures: list[Figures], what: str, seconds: str = "cpu_seconds", *, scale: float = 1.0
) -> float:
    return round(median(f[what] / scale / max(f[seconds], 1e-9) for f in figures), 3)


def _spread(values: list[float]) -> dict[str, float]:
    numbers = {"min": min(values), "median": median(values), "max": max(values)}
    return {name: round(value, 3) for name, value in numbers.items()}
