"""The partition sets: snapshots, sources, their union `corpora`, and runs.

All are dynamic: a snapshot is a name until it is crawled. The parts inside a partition (WARC files)
are tracked by the manifests, not by Dagster: a real crawl has 90,000 files, the web page wants far
fewer partitions. A name is a folder, a partition key and a part of a URL, so it is checked wherever
one is registered (dagster-io/dagster#21333, dagster-io/dagster#18145).
"""

from collections.abc import Iterable

import dagster as dg

from pipeline.errors import UsageError
from pipeline.layout import check_name

SNAPSHOTS = dg.DynamicPartitionsDefinition(name="snapshots")
SOURCES = dg.DynamicPartitionsDefinition(name="sources")
CORPORA = dg.DynamicPartitionsDefinition(name="corpora")
RUNS = dg.DynamicPartitionsDefinition(name="runs")

BOTH = {"snapshots": "sources", "sources": "snapshots"}
"""The two sets whose names must not collide: both are corpora."""


def set_name(partitions: dg.DynamicPartitionsDefinition) -> str:
    """The name of a partition set, as the instance stores it."""
    assert partitions.name is not None
    return partitions.name


def register(
    instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition, name: str
) -> None:
    """Add a partition; a snapshot or source becomes a corpus too. Doing it again changes nothing.

    Raises UsageError for a name that cannot be a folder, or that the other kind of corpus has.
    """
    kind = set_name(partitions)
    check_partition(instance, partitions, name)
    targets = [kind, set_name(CORPORA)] if kind in BOTH else [kind]
    for target in targets:
        if not instance.has_dynamic_partition(target, name):
            instance.add_dynamic_partitions(target, [name])


def check_partition(
    instance: dg.DagsterInstance, partitions: dg.DynamicPartitionsDefinition, name: str
) -> str:
    """`name` if it may be a partition of this set; UsageError naming it otherwise."""
    kind = set_name(partitions)
    check_name(kind.removesuffix("s"), name)
    other = BOTH.get(kind)
    if other and instance.has_dynamic_partition(other, name):
        message = f"{kind.removesuffix('s')} name {name!r} is taken by one of the {other}"
        raise UsageError(message, hint="snapshots and sources share token_shards: rename one")
    return name


def corpus_kind(instance: dg.DagsterInstance, name: str) -> str:
    """Whether a corpus is a snapshot or a source: `snapshots` or `sources`. Raises UsageError."""
    for kind in BOTH:
        if instance.has_dynamic_partition(kind, name):
            return kind
    message = f"corpus {name!r} is neither a registered snapshot nor a registered source"
    raise UsageError(message, hint="materialise snapshots or source_texts for it first")


def add_requests(
    partitions: dg.DynamicPartitionsDefinition, names: Iterable[str]
) -> list[dg.AddDynamicPartitionsRequest]:
    """What a sensor returns to add partitions; present ones are left alone by Dagster."""
    wanted = list(names)
    sets = [partitions, CORPORA] if set_name(partitions) in BOTH else [partitions]
    return [one.build_add_request(wanted) for one in sets] if wanted else []
