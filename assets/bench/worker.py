"""One side of a contest, once, in this process: `python -m assets.bench.worker JOB.json`.

A side is a function `Material -> Trial` that does what is off the clock (imports, compilation,
reading the input) and returns what is on it. CPU time counts the process and its children; peak
memory is that of the process up to the end of the run plus that of its largest child. What is
compared is taken afterwards.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import costs

if TYPE_CHECKING:
    import polars as pl

    from assets.bench.material import Material


@dataclass(frozen=True)
class Trial:
    """What one side has to do."""

    run: Callable[[], Any]
    """On the clock."""
    finding: Callable[[Any], "pl.DataFrame"]
    """Of its result, what is compared with the other side's."""
    documents: int
    size: int
    """Bytes of input."""
    tokens: int = 0
    """Tokens of input, where these are what is counted."""
    again: bool = False
    """Whether a second run over the same input (warm: everything learnt) is of interest."""
    extra: Callable[[], dict[str, float]] | None = None
    """Further figures, measured after all else."""


def named(where: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module, _, name = where.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def timed(run: Callable[[], Any]) -> tuple[Any, float, float]:
    """The result, CPU seconds of all threads and children of this process, wall seconds."""
    gc.collect()
    wall, cpu = time.perf_counter(), costs.cpu_seconds()
    result = run()
    return result, costs.cpu_seconds() - cpu, time.perf_counter() - wall


def peak_mib() -> float:
    """Peak memory of this process plus that of its largest child, living or ended.

    What a forked child shares with its parent counts twice.
    """
    living = [costs.peak_mib(child) for child in costs.descendants()]
    return costs.peak_mib() + max([costs.peak_of_ended_mib(), *living])


def measure(side: str, material: "Material") -> tuple[dict[str, float], "pl.DataFrame"]:
    """Figures of one side, and what is compared."""
    trial: Trial = named(side)(material)
    result, cpu, wall = timed(trial.run)
    figures = {
        "documents": trial.documents,
        "bytes": trial.size,
        "cpu_seconds": cpu,
        "wall_seconds": wall,
        "peak_mib": peak_mib(),
    }
    if trial.tokens:
        figures["tokens"] = trial.tokens
    if trial.again:
        _, figures["warm_cpu_seconds"], _ = timed(trial.run)
    finding = trial.finding(result)
    return figures | (trial.extra() if trial.extra else {}), finding


def main(path: Path) -> None:
    """Do the job that a file describes: `side, material, sets, part, out`."""
    from assets.bench.material import Material

    job = json.loads(path.read_text())
    number, of = job["part"]
    material = Material(Path(job["material"]), tuple(job["sets"]), number, of)
    figures, finding = measure(job["side"], material)
    out = Path(job["out"])
    finding.write_parquet(out / "finding.parquet")
    (out / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
