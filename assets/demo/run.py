"""`gristmill demo`: the whole graph on the sample, through Dagster, offline.

The first snapshot goes through the graph, then the second arrives, then one training on two
processes until held-out bits per byte are below the unigram-token entropy of the same text, its
evaluation and its export. It ends with one page, `report.html`.
"""

import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from assets.demo.sample import SNAPSHOTS, build_sample
from assets.headless import materialise
from pipeline.config import FILE_NAME, Config, load_config
from pipeline.errors import UsageError

RUN = "demo"
SOURCE = "code"
MARKER = "sample/sample.json"

RUN_FILE = """\
# A training run: `gristmill run --train demo` makes it, or goes on with it.
recipe: tiny_cpu
plan: mixture/plan.json
tokenizer: tokenizer/tokenizer.json
steps: 400
checkpoint_every: 100
nproc_per_node: 2
eval_every: 20
# stop once the model knows more than how often each token occurs
until: unigram
"""

Say = Callable[[str], None]


def run_demo(root: Path, *, keep: bool, say: Say) -> dict[str, Any]:
    """Run the demo in `root`; the times of its steps, where the report is, what to do next.

    Without `keep` an earlier demo store is removed first. UsageError where `root` is a folder that
    the demo did not make.
    """
    times: list[tuple[str, float]] = []

    def step(name: str, function: Callable[[], Any]) -> Any:
        begin = time.monotonic()
        say(f"== {name}")
        result = function()
        times.append((name, round(time.monotonic() - begin, 1)))
        for line in result.get("lines", ()) if isinstance(result, dict) else ():
            say(f"   {line}")
        say(f"   {times[-1][1]} s")
        return result

    prepare(root, keep)
    step("sample: two crawl snapshots from installed text", lambda: build_sample(root / "sample"))
    config = write_files(root)
    for number, snapshot in enumerate(SNAPSHOTS):
        arrives = "a first snapshot" if number == 0 else "the next snapshot arrives"
        make = partial(materialise, config, kind="snapshot", partition=snapshot)
        step(f"{arrives}: {snapshot}", make)
    for asset in ("mixture", "checkpoints", "evaluation", "hf_model"):
        make = partial(materialise, config, kind="run", partition=RUN, select=[asset])
        step(f"{asset} of run {RUN}", make)
    from assets.demo.story import write_report

    report = root / "report.html"
    summary = write_report(config, RUN, report, times)
    return {
        "root": str(root),
        "report": str(report),
        "seconds": round(sum(seconds for _, seconds in times), 1),
        "times": dict(times),
        **summary,
    }


def prepare(root: Path, keep: bool) -> None:
    """An empty folder, or the earlier demo's with `keep`."""
    if not root.exists() or not any(root.iterdir()):
        root.mkdir(parents=True, exist_ok=True)
    elif not (root / MARKER).is_file():
        message = f"{root} is not empty and is no store of an earlier demo"
        raise UsageError(message, hint="give another folder with --root")
    elif not keep:
        shutil.rmtree(root)
        root.mkdir(parents=True)


def write_files(root: Path) -> Config:
    """`gristmill.yaml` and `runs/demo.yaml`, as a person would write them; the configuration."""
    values = {
        "preset": "demo",
        "storage": {"root": str(root)},
        "snapshots": {"location": str(root / "sample" / "snapshots")},
        "sources": {"location": str(root / "sample" / "sources")},
        "references": {"quality_labels": str(root / "sample" / "labels.jsonl")},
    }
    path = root / FILE_NAME
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    runs = root / "runs"
    runs.mkdir(exist_ok=True)
    (runs / f"{RUN}.yaml").write_text(RUN_FILE)
    return load_config(path)
