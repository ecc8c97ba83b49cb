"""The miniature: every data stage over a tiny input, in one process that a test may kill.

    python -m tests.miniature ROOT [--input DIR] [--workers N] [--endpoint URL] [--since STEP]

Both snapshots, the source, tokenizer, shards and plan through the functions of `pipeline.stages`.
Two runs made the same when `hashes` of their roots are equal.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import Config, validate
from pipeline.dataset import POINTER, Dataset, read_bytes, read_part
from pipeline.errors import GristmillError
from pipeline.manifest import KINDS
from pipeline.mill import Mill
from pipeline.stages import mixture, references, tokens
from pipeline.stages.order import SNAPSHOT_STAGES, SOURCE_STAGES
from pipeline.store import Store
from resources.mill import open_mill
from resources.storage import open_store
from tests import miniature_input
from tests.miniature_input import FIRST, SECOND, SOURCE

Hashes = dict[str, tuple[str, str]]
"""Dataset folder -> (hash of its manifest, hash of its output)."""


def _snapshot(name: str) -> list[str]:
    return [f"{stage}/{name}" for stage, _ in SNAPSHOT_STAGES]


STEPS: tuple[str, ...] = (
    "quality_labels",
    "quality_classifier",
    *_snapshot(FIRST)[:-1],
    f"source_texts/{SOURCE}",
    "tokenizer_sample",
    "tokenizer",
    f"token_shards/{FIRST}",
    f"token_shards/{SOURCE}",
    *_snapshot(SECOND),
    "mixture",
)
"""Every partition in the order in which a user comes to it."""

PLAIN: dict[str, Callable[[Mill], Any]] = {
    "quality_labels": references.quality_labels,
    "quality_classifier": references.quality_classifier,
    "tokenizer_sample": tokens.tokenizer_sample,
    "tokenizer": tokens.tokenizer,
    "mixture": mixture.mixture,
}
PARTITIONED = dict([*SNAPSHOT_STAGES, *SOURCE_STAGES])


def config(root: str, given: Path, *, workers: int = 1, endpoint: str | None = None) -> Config:
    """The configuration of the miniature: defaults but for what a tiny input needs."""
    return validate(
        {
            "storage": {"root": root, "endpoint_url": endpoint, "part_mb": 5, "parallel": 1},
            "engine": {"workers": workers, "threads": 1},
            # the file with an image fills a part group, the small ones share one
            "snapshots": {
                "location": str(given / "snapshots"),
                "group_text_bytes": 1e6,
                "text_ratio": 10,
            },
            "sources": {"location": str(given / "sources")},
            "references": {"quality_labels": str(given / "labels.jsonl")},
            # 6.1 MiB of model: two parts of a multipart upload
            "score": {"held_out": 0.25, "classifier": {"bucket": 100_000}},
            "tokenizer": {"vocab_size": 512},
        }
    )


def perform(mill: Mill, steps: Iterable[str]) -> None:
    """Materialise partitions in this order; the sample of a frozen tokenizer is left alone."""
    for step in steps:
        if step == "tokenizer_sample" and mill.find("tokenizer"):
            continue  # it would sample the second snapshot too
        asset, _, partition = step.partition("/")
        if partition:
            PARTITIONED[asset](mill, partition)
        else:
            PLAIN[asset](mill)


def run(
    root: str,
    given: Path,
    *,
    workers: int = 1,
    endpoint: str | None = None,
    steps: Sequence[str] = STEPS,
) -> Hashes:
    """Run the miniature on a root and say what is there then."""
    mill = open_mill(config(root, given, workers=workers, endpoint=endpoint))
    try:
        perform(mill, steps)
    finally:
        mill.engine.close()
    return hashes(mill.root)


def hashes(root: Store | str) -> Hashes:
    """Every dataset below a root that is visible: opened at its manifest, gates and all."""
    return {
        name: (dataset.manifest.hash, dataset.manifest.content.output)
        for name, dataset in visible(root).items()
    }


def visible(root: Store | str) -> dict[str, Dataset]:
    """Folder -> dataset, for every pointer below a root."""
    store = open_store(root) if isinstance(root, str) else root
    ends = f"/{POINTER}"
    folders = [info.key.removesuffix(ends) for info in store.list() if info.key.endswith(ends)]
    return {folder: Dataset.open(store.child(folder)) for folder in folders}


def verify(root: Store | str) -> int:
    """Read every file that a visible manifest names, against checksum and rows; how many."""
    count = 0
    for dataset in visible(root).values():
        for kind in KINDS:
            for entry in dataset.entries(kind):
                if Path(entry.path).name.startswith("part-"):
                    read_part(dataset.store, entry)
                else:
                    read_bytes(dataset.store, entry)
                count += 1
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it as a process; exit code 1 with the sentence of an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root")
    parser.add_argument("--input", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--endpoint")
    parser.add_argument("--since", choices=STEPS, default=STEPS[0])
    chosen = parser.parse_args(arguments)
    steps = STEPS[STEPS.index(chosen.since) :]
    with tempfile.TemporaryDirectory(prefix="miniature-") as folder:
        given = chosen.input or miniature_input.build(Path(folder))
        try:
            made = run(
                chosen.root, given, workers=chosen.workers, endpoint=chosen.endpoint, steps=steps
            )
        except GristmillError as error:
            print(error, file=sys.stderr)
            return 1
    for name, (manifest, output) in made.items():
        print(f"{manifest[:12]}  {output[:12]}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
