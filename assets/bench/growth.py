"""growth: does a worker need more memory where a WARC file is ten times as long?

Two workers run the stages extract and filter, each over one file; then again over files ten times
as long (gzip members one behind the other are a WARC file; the given files take turns). Both runs
are fresh processes: the one that asks, its workers, and the children of these that read pages.
"""

import json
import sys
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from assets.bench.chain import english, mill_away
from assets.bench.material import Material
from assets.bench.rounds import last_words, program
from assets.bench.summary import versions
from pipeline import costs
from pipeline.errors import GristmillError

TIMES = (1, 10)
WORKERS = 2
ROLES = ("parent", "worker", "page reader")


def measure_growth(folder: Path, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Peak memory (MiB) by stage and role over inputs of each length, and the ratio of the two.

    `ratio`: of the peaks at the end, ten times against once; of workers and page readers the
    largest counts. GristmillError where a run fails.
    """
    config = english(Material(folder).config)
    peaks: dict[int, list[dict[str, dict[str, float]]]] = {times: [] for times in TIMES}
    sizes = {}
    for number in range(rounds):
        for times in TIMES:
            place = folder / f"growth-{times}-{number}"
            files = [str(path) for path in lengthen(Material(folder), place, times)]
            sizes[times] = sum(Path(file).stat().st_size for file in files)
            job = place / "job.json"
            job.write_text(json.dumps({"config": config.model_dump_json(), "files": files}))
            peaks[times].append(_run(job))
            told = ", ".join(f"{k} {v:,.0f} MiB" for k, v in peaks[times][-1]["filter"].items())
            say(f"{times} times, {sizes[times] / 1e6:,.1f} MB in {WORKERS} files: {told}")
    middle = {times: _middle(found) for times, found in peaks.items()}
    once, often = (middle[times]["filter"] for times in TIMES)
    return {
        "stage": "growth",
        "rounds": rounds,
        "input_bytes": {f"x{times}": size for times, size in sizes.items()},
        "peak_mib": {f"x{times}": found for times, found in middle.items()},
        "ratio": {role: round(often[role] / once[role], 3) for role in ROLES},
        "versions": versions(),
    }


def lengthen(material: Material, place: Path, times: int) -> Iterator[Path]:
    """As many files as workers, each of `times` of the given ones, which take turns."""
    place.mkdir()
    sources = cycle(material.warcs)
    for number in range(WORKERS):
        path = place / f"growth-{number}.warc.gz"
        with path.open("wb") as file:
            for _ in range(times):
                file.write(next(sources).path.read_bytes())
        yield path


def _run(job: Path) -> dict[str, dict[str, float]]:
    done = program(["-m", "assets.bench.growth", str(job)])
    if done.returncode:
        message = f"the run over {job.parent.name} failed: {last_words(done)}"
        raise GristmillError(message, hint="run `gristmill extract` and `filter` on its files")
    found: dict[str, dict[str, float]] = json.loads(job.with_name("peaks.json").read_text())
    return found


def _middle(found: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        stage: {role: round(median(peaks[stage][role] for peaks in found), 1) for role in ROLES}
        for stage in found[0]
    }


def look() -> dict[str, float]:
    """Peak memory of this process, of its largest worker, of the largest child of a worker."""
    own = set(costs.children())
    inner = set(costs.descendants()) - own
    return {
        ROLES[0]: costs.peak_mib(),
        ROLES[1]: max((costs.peak_mib(pid) for pid in own), default=0.0),
        ROLES[2]: max((costs.peak_mib(pid) for pid in inner), default=0.0),
    }


def main(job: Path) -> None:
    """Be the process that asks: run both stages, write `peaks.json`."""
    from pipeline.config import Config

    given = json.loads(job.read_text())
    config = Config.model_validate_json(given["config"])
    engine = config.engine.model_copy(update={"workers": WORKERS, "threads": 1})
    peaks: dict[str, dict[str, float]] = {}
    mill_away(
        config.model_copy(update={"engine": engine}),
        [Path(file) for file in given["files"]],
        job.parent / "store",
        after=lambda stage: peaks.update({stage: look()}),
    )
    job.with_name("peaks.json").write_text(json.dumps(peaks))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
