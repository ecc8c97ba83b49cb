"""`gristmill demo`: the whole graph on the sample, through Dagster, offline.

The first snapshot goes through the graph, then the second arrives, then one training on two
processes until held-out bits per byte are below the unigram-token entropy of the same text, its
evaluation and its export. One document of the sample is poison: the training meets it, refuses the
steps that hold it, and names it. It ends with one page, `report.html`.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from assets.demo.sample import SNAPSHOTS, build_sample
from assets.demo.screen import Screen
from assets.headless import materialise
from pipeline.config import FILE_NAME, Config, load_config
from pipeline.errors import UsageError

RUN = "demo"
SOURCE = "code"
MARKER = ".gristmill-demo"
"""The file by which a folder is known as the store of a demo: written first."""
SAMPLE = "sample/sample.json"
"""The sample's summary: written last, so where it is the sample is whole."""
RUN_CHAIN = ("checkpoints", "evaluation", "hf_model")
TITLES = {
    "checkpoints": "training on 2 processes, until it knows more than how often each token occurs",
    "evaluation": "evaluation: held-out bits per byte by source and language",
    "hf_model": "export: the model as transformers loads it",
}

RUN_FILE = """\
# A training run: `gristmill run --train demo` makes it, or goes on with it.
recipe: tiny_cpu
plan: mixture/plan.json
tokenizer: tokenizer/tokenizer.json
# as many tokens as the plan is made for, about a million, in small steps: the fewest tokens until
# the loss falls below the unigram entropy (8 x 256: 164,000 of them, 16 x 256: 246,000)
global_batch: 8
lr: 1.5e-3
steps: 480
checkpoint_every: 30
nproc_per_node: 2
eval_every: 20
# refuse a gradient norm of twice the median already: the recipe's seven times (for long runs of
# small batches) lets a weak row of the planted document pass
spikes: {norm_floor: 1.0}
# stop once the model knows more than how often each token occurs
until: unigram
"""

SEED_NOTE = """\
# the smallest under which the planted document (assets/demo/poison.py) comes while the gate is
# armed and the demo is not over; else it would come at any time, or not at all
"""

Say = Callable[[str], None]


class Steps:
    """The steps of the demo, each said before it begins and timed when it is done."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.times: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str, title: str) -> Iterator[None]:
        """One step; its time is added where the body did not."""
        self.say(f"== {title}")
        begin = time.monotonic()
        yield
        self.times[name] = round(time.monotonic() - begin, 1)
        self.say(f"   {self.times[name]} s")


def run_demo(root: Path, *, keep: bool, screen: Screen) -> dict[str, Any]:
    """Run the demo in `root`; the times of its steps, where the report is, what to do next.

    Without `keep` an earlier demo store is removed first; with it the demo goes on where it
    stopped, killed or not. UsageError where `root` is a folder that the demo did not make.
    """
    step = Steps(screen.say)
    prepare(root, keep)
    screen.say(f"Everything goes to {root}; about three minutes on two cores.")
    with step("sample", "sample: two crawl snapshots made of text that is already installed"):
        summary = sample(root)
        screen.tell(summary)
    config = write_files(root)
    make = partial(materialise, config, progress=screen.progress, tell=screen.tell)
    for number, snapshot in enumerate(SNAPSHOTS):
        arrives = "the first snapshot" if number == 0 else "the next snapshot arrives"
        with step(snapshot, f"{arrives}: {snapshot}"):
            make(kind="snapshot", partition=snapshot)
    with step("mixture", "mixture: how much of what one training reads"):
        make(kind="run", partition=RUN, select=["mixture"])
    screen.say(plant(root))
    for asset in RUN_CHAIN:
        with step(asset, TITLES[asset]):
            make(kind="run", partition=RUN, select=[asset])
    from assets.demo.story import write_report

    report = root / "report.html"
    with step("report", "report"):
        closing = write_report(config, RUN, report, list(step.times.items()))
    return {
        "root": str(root),
        "report": str(report),
        "seconds": round(sum(step.times.values()), 1),
        "times": step.times,
        **closing,
    }


def prepare(root: Path, keep: bool) -> None:
    """An empty folder, or the earlier demo's with `keep`. UsageError for anything else."""
    if root.exists() and not root.is_dir():
        message = f"{root} is a file"
        raise UsageError(message, hint="give a folder with --root")
    if root.is_dir() and any(root.iterdir()):
        if not (root / MARKER).is_file():
            message = f"{root} is not empty and is no store of an earlier demo"
            raise UsageError(message, hint="give another folder with --root")
        if not keep:
            shutil.rmtree(root)
    root.mkdir(parents=True, exist_ok=True)
    (root / MARKER).write_text("`gristmill demo` made this folder and may remove it.\n")


def sample(root: Path) -> str:
    """Build the sample where it is not whole; one sentence about it."""
    file = root / SAMPLE
    found = json.loads(file.read_text()) if file.is_file() else build_sample(root / "sample")
    crawls = found["snapshots"].values()
    records, size = (sum(one[key] for one in crawls) for key in ("records", "bytes"))
    code = f"{found['code']['records']} files of code, {found['labels']} labels"
    return f"{records:,} records in {len(crawls)} snapshots ({size / 1e6:.1f} MB of WARC), {code}"


def plant(root: Path) -> str:
    """Choose the seed of the run so that it meets the planted document; what to say of it."""
    from assets.demo.poison import URL, seed_of

    file = root / "runs" / f"{RUN}.yaml"
    if not (root / "checkpoints" / RUN / "run.json").exists():
        seed = seed_of(file, root / "token_shards" / SOURCE)
        if seed is None:
            return f"   no seed lets the training meet {URL} in time"
        file.write_text(f"{RUN_FILE}{SEED_NOTE}seed: {seed}\n")
    return f"   one document of the code is poison, {URL}: see how the training takes it"


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
    file = runs / f"{RUN}.yaml"
    if not (root / "checkpoints" / RUN / "run.json").exists():  # else its seed is chosen already
        file.write_text(RUN_FILE)
    return load_config(path)
