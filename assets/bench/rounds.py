"""Rounds: ours and the peer by turns, each in a fresh process with one thread, then the ratios."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.bench.contests import Contest, Side
from assets.bench.material import Material
from assets.bench.pages import Judge
from assets.bench.summary import Run, ratio_of, summary
from assets.bench.worker import named
from pipeline.errors import GristmillError

if TYPE_CHECKING:
    import polars as pl

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
Say = Callable[[str], None]


def hold(
    contest: Contest, folder: Path, rounds: int, say: Say, judge: Judge | None = None
) -> dict[str, Any]:
    """Run the contest over the material in `folder`; the object that `bench --json` prints.

    Odd rounds start with ours, even ones with the peer. Where the rounds share the input, each has
    its own files, as far as there are enough. `judge` scores what each side found. GristmillError
    where a side fails.
    """
    material = Material(folder)
    ours, theirs = contest.sides(material.config)
    split = contest.shared and len(material.warcs) >= rounds
    runs = [Run(side, side in ours) for side in (*ours, *theirs)]
    for number in range(rounds):
        part = (number, rounds) if split else (0, 1)
        for place, run in list(enumerate(runs))[:: 1 if number % 2 == 0 else -1]:
            out = folder / f"{contest.stage}-{place}-{number}"
            run.figures.append(run_side(run.side, folder, out, part))
            run.findings.append(out / "finding.parquet")
        say(f"round {number + 1} of {rounds}: {_told(runs, contest)}")
    agree = {
        run.side.label: named(contest.compare)(_finding(run, split), _finding(peer, split))
        for peer in [fastest(runs, contest.clock)]
        for run in runs
        if run.ours
    }
    repeatable = {run.side.label: len(set(map(_digest, run.findings))) == 1 for run in runs}
    result = summary(contest, runs, agree, {} if split else repeatable, split=split)
    if judge:
        for run in runs:
            result["sides"][run.side.label]["scores"] = judge(_finding(run, split))
    return result


def fastest(runs: list[Run], clock: str) -> Run:
    """The form of the peer that took the least time over all rounds."""
    return min((run for run in runs if not run.ours), key=lambda run: run.total(clock))


def _told(runs: list[Run], contest: Contest) -> str:
    """The seconds of each side in the round that ended, and the ratio of the first."""
    clock = contest.clock
    peer = min((r for r in runs if not r.ours), key=lambda run: run.figures[-1][clock])
    times = ", ".join(f"{run.side.label} {run.figures[-1][clock]:.2f} s" for run in runs)
    ratio = ratio_of(runs[0].figures[-1], peer.figures[-1], clock)
    return f"{times} of {'CPU' if clock == 'cpu_seconds' else 'wall'} time, ratio {ratio:.2f}"


def _finding(run: Run, split: bool) -> "pl.DataFrame":
    import polars as pl

    return pl.concat([pl.read_parquet(path) for path in run.findings[: None if split else 1]])


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def run_side(side: Side, material: Path, out: Path, part: tuple[int, int]) -> dict[str, float]:
    """One side in a process of its own. GristmillError with its last words where it fails."""
    out.mkdir(parents=True)
    job = out / "job.json"
    where = {"material": str(material), "out": str(out)}
    job.write_text(
        json.dumps({"side": side.function, "sets": list(side.sets), "part": part, **where})
    )
    done = program(["-m", "assets.bench.worker", str(job)])
    if done.returncode:
        message = f"{side.function} failed: {last_words(done)}"
        lines = done.stderr.strip().splitlines()
        raise GristmillError(message, hint=f"last lines: {' | '.join(lines[-4:-1])}")
    figures: dict[str, float] = json.loads((out / "figures.json").read_text())
    return figures


def program(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments and one thread, to its end."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """What a process that failed said last, a `hint:` aside; else its exit code."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("hint:")]
    return lines[-1].strip() if lines else f"exit code {done.returncode}"
