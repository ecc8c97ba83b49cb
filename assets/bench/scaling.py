"""scaling: two workers of one run, against two runs of one worker started together.

The copies share nothing but the machine: what two workers lose against them is what the engine, the
store and the commit cost. Both sides start their processes on the clock.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.bench.chain import english, mill_away
from assets.bench.material import Material, Warc
from assets.bench.worker import Trial
from pipeline.errors import GristmillError

if TYPE_CHECKING:
    import polars as pl

WORKERS = 2


def _trial(material: Material, run: Any) -> Trial:
    folder = Path(tempfile.mkdtemp(prefix="scaling-", dir=material.folder))

    def finding(_: Any) -> "pl.DataFrame":
        import polars as pl

        parts = sorted(str(path) for path in folder.glob("**/filtered/part-*.parquet"))
        kept = pl.concat([pl.read_parquet(part, columns=["doc_id", "text"]) for part in parts])
        return kept.sort("doc_id")

    return Trial(
        run=lambda: run(folder),
        finding=finding,
        documents=sum(warc.pages for warc in material.warcs),
        size=sum(warc.size for warc in material.warcs),
    )


def ours(material: Material) -> Trial:
    """One run with `engine.workers=2`."""
    config = english(material.config)
    config = config.model_copy(
        update={"engine": config.engine.model_copy(update={"workers": WORKERS, "threads": 1})}
    )
    files = [warc.path for warc in material.warcs]
    return _trial(material, lambda folder: mill_away(config, files, folder))


def copies(material: Material) -> Trial:
    """Two processes, each with one worker and half of the bytes."""
    config = english(material.config)

    def run(folder: Path) -> None:
        running = []
        for number, files in enumerate(halves(material.warcs)):
            job = folder / f"{number}.json"
            place = str(folder / str(number))
            job.write_text(
                json.dumps({"config": config.model_dump_json(), "files": files, "folder": place})
            )
            running.append(
                subprocess.Popen([sys.executable, "-m", "assets.bench.scaling", str(job)])
            )
        codes = [process.wait() for process in running]
        if any(codes):
            message = f"a copy ended with exit code {max(codes, key=abs)}"
            raise GristmillError(message, hint="its last words stand above")

    return _trial(material, run)


def halves(warcs: list[Warc]) -> list[list[str]]:
    """The files in `WORKERS` lists of about the same size: the largest first, to the smaller list.

    UsageError where there are fewer files than lists.
    """
    from pipeline.errors import UsageError

    if len(warcs) < WORKERS:
        message = f"{len(warcs)} WARC file cannot be shared by {WORKERS} workers"
        raise UsageError(message, hint="give several WARC files, best an even number of one size")
    lists: list[list[str]] = [[] for _ in range(WORKERS)]
    sizes = [0] * WORKERS
    for warc in sorted(warcs, key=lambda warc: (-warc.size, warc.path.name)):
        smaller = sizes.index(min(sizes))
        lists[smaller].append(str(warc.path))
        sizes[smaller] += warc.size
    return lists


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Documents kept, and whether both ways kept the same."""
    return {"kept": len(ours), "same_documents": ours.equals(theirs)}


def main(path: Path) -> None:
    """Be one of the copies."""
    from pipeline.config import Config

    job = json.loads(path.read_text())
    config = Config.model_validate_json(job["config"])
    mill_away(config, [Path(file) for file in job["files"]], Path(job["folder"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
