"""Whom is asked: the filtered snapshots of a store, or one folder that `gristmill filter` wrote.

A failed gate is no obstacle here: what to change is what is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.dataset import Dataset, current_manifest
from pipeline.errors import UsageError
from pipeline.layout import check_name
from pipeline.mill import registered_snapshots
from pipeline.store import Store
from pipeline.what_if.question import STAGE


@dataclass(frozen=True)
class Subject:
    """A filtered dataset that is asked about."""

    name: str
    """The snapshot, or the folder."""
    dataset: Dataset
    upstream: Store | None = None
    """Where the dataset that was filtered lies, if not where it lay when it was read."""


def filtered_folder(store: Store) -> Subject:
    """The dataset at `store`. Raises UsageError where another stage wrote it."""
    dataset = Dataset.open(store, accept_gate=True)
    stage = dataset.manifest.content.stage
    if stage != STAGE:
        message = f"{store.url} holds {stage}, which has no signals"
        raise UsageError(message, hint="give a folder that `gristmill filter` wrote")
    return Subject(store.url, dataset)


def filtered_snapshots(root: Store, names: Iterable[str] = ()) -> Iterator[Subject]:
    """All filtered snapshots of a store in order of registration, or those named.

    Raises UsageError where there is none, or where one that is named is not filtered.
    """
    wanted = [check_name("snapshot", name) for name in names]
    found = 0
    for name in wanted or registered_snapshots(root):
        store = root.child(f"{STAGE}/{name}")
        if current_manifest(store) is not None:
            found += 1
            upstream = root.child(f"extracted_text/{name}")
            yield Subject(name, Dataset.open(store, accept_gate=True), upstream)
        elif wanted:
            message = f"{STAGE}/{name} is not there"
            raise UsageError(message, hint=f"materialise {STAGE} for snapshot {name} first")
    if not found:
        message = f"{root.url} has no {STAGE}"
        raise UsageError(message, hint="`gristmill run --snapshot S` makes it")
