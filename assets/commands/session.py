"""What every verb needs first: its configuration, its mill, its progress bar, its last words."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.config import Config, load_config, merge
from pipeline.dataset import Dataset
from pipeline.errors import UsageError
from pipeline.inputs import Input, check_input_path, dataset_input, file_input
from pipeline.manifest import Manifest
from pipeline.mill import Mill


def configuration(arguments: argparse.Namespace, *, stored: bool = True) -> Config:
    """The configuration a verb runs under, `--root` and `--workers` laid on it.

    `stored`: whether `gristmill.yaml` of the root counts, for which the store must answer.
    """
    overrides: dict[str, Any] = {}
    if arguments.root:
        overrides["storage"] = {"root": arguments.root}
    if arguments.workers is not None:
        overrides["engine"] = {"workers": arguments.workers}
    if stored and arguments.root and not arguments.config:
        from resources.mill import stored_settings

        reach = load_config(overrides=overrides, sets=arguments.sets).storage
        overrides = merge(stored_settings(arguments.root, reach), overrides)
    return load_config(
        arguments.config, preset=arguments.preset, overrides=overrides, sets=arguments.sets
    )


def require_root(config: Config, *, there: bool = False) -> str:
    """The store's root. UsageError where none is set, or where `there` and its folder is not."""
    root = config.storage.root
    if not root:
        message = "no store was named"
        raise UsageError(message, hint="give --root ROOT, or storage.root in the configuration")
    if "://" not in root and Path(root).exists() and not Path(root).is_dir():
        message = f"the store {root} is not a folder"
        raise UsageError(message, hint="give --root ROOT, a folder or s3://bucket/prefix")
    if there and "://" not in root and not Path(root).is_dir():
        message = f"the store {root} is not there"
        raise UsageError(message, hint="give --root ROOT; `gristmill run` makes a store")
    return root


@contextmanager
def mill_for(
    arguments: argparse.Namespace, config: Config, root: str | Path | None = None
) -> Iterator[Mill]:
    """A mill over `root` (default: the configured store) with a progress bar on a terminal."""
    from resources.mill import open_mill

    where = str(root) if root is not None else require_root(config)
    config = config.model_copy(
        update={"storage": config.storage.model_copy(update={"root": where})}
    )
    with progress_bar() as progress:
        mill = open_mill(config, progress=progress)
        with mill.engine:
            yield mill


@contextmanager
def progress_bar() -> Iterator[Any]:
    """A bar a stage on a terminal, silence elsewhere."""
    from pipeline.mill import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    from tqdm import tqdm

    bars: dict[str, Any] = {}

    def progress(stage: str, done: int, total: int) -> None:
        bar = bars.get(stage) or bars.setdefault(stage, tqdm(total=total, desc=stage, unit="part"))
        bar.update(done - bar.n)

    try:
        yield progress
    finally:
        for bar in bars.values():
            bar.close()


def open_inputs(mill: Mill, paths: list[Path]) -> Input:
    """Dataset folders, or Parquet and JSONL files, as one input."""
    kinds = {check_input_path(path) for path in paths}
    if "folder" in kinds:
        folder = next(p for p in paths if check_input_path(p) == "folder")
        message = f"{folder} is a folder without a dataset (no file `current`)"
        raise UsageError(message, hint="give a folder that a stage wrote, or name its files")
    if kinds == {"dataset"}:
        datasets = [Dataset.open(mill.open_store(str(path))) for path in paths]
        for dataset in datasets:
            _check_documents(dataset)
        inputs = [dataset_input(dataset) for dataset in datasets]
        return Input(
            tuple(source for one in inputs for source in one.sources),
            tuple(ref for one in inputs for ref in one.refs),
            inputs[0].dataset if len(inputs) == 1 else None,
            tuple(place for one in inputs for place in one.locations),
        )
    if "dataset" in kinds:
        message = "dataset folders and plain files cannot be mixed in one call"
        raise UsageError(message, hint="run the verb on each of them")
    return file_input(paths)


def _check_documents(dataset: Dataset) -> None:
    """Refuse a dataset that holds no documents."""
    content = dataset.manifest.content
    tables = all(entry.path.endswith(".parquet") for entry in content.parts)
    if content.stage == "snapshots" or not tables:
        message = f"{dataset.store.url} holds {content.stage}, not documents"
        raise UsageError(message, hint="give a folder that extract, filter, ... or scrub wrote")


def stage_result(
    manifest: Manifest, out: str | Path, arguments: argparse.Namespace
) -> dict[str, Any]:
    """The JSON of a stage verb; for people, a funnel on stdout."""
    content = manifest.content
    counts = content.counts
    if not arguments.json:
        print_funnel(manifest, str(out))
    return {
        "stage": content.stage,
        "partition": content.partition,
        "records_in": counts.records_in,
        "kept": counts.kept,
        "dropped": counts.dropped,
        "reasons": counts.reasons,
        "damaged": content.damaged,
        "gates": [gate.model_dump() for gate in content.gates],
        "seconds": manifest.run["seconds"],
        "out": str(out),
        "manifest": manifest.hash,
        "output": content.output,
    }


def print_funnel(manifest: Manifest, out: str) -> None:
    """What came in, what was kept, what took the rest, what the gates say."""
    content = manifest.content
    counts = content.counts
    share = f" ({counts.kept / counts.records_in:.1%})" if counts.records_in else ""
    print(f"{content.stage}: {counts.kept:,} of {counts.records_in:,} kept{share} -> {out}")
    for reason, n in sorted(counts.reasons.items(), key=lambda item: (-item[1], item[0])):
        print(f"  {n:>9,}  {reason}")
    for damage in content.damaged:
        print(f"  damaged: {damage['file']} at byte {damage['offset']:,}: {damage['what']}")
    for gate in content.gates:
        if gate.verdict != "pass":
            blocks = "blocks" if gate.blocking and gate.verdict == "fail" else "reported"
            print(f"  gate {gate.name}: {gate.verdict} ({blocks}): {gate.value}, {gate.threshold}")
