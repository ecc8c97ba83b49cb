"""What moves by itself, and when: conditions, the arrival of snapshots, jobs.

A new snapshot moves its own partitions up to `token_shards`, and nothing else moves anything. One
way only, so that no partition is made twice (a sensor that requests runs of an asset which also has
a condition runs it twice): arrival requests `snapshots`, which has no condition; the stages behind
it have one and wait for their own first time. What exists already is re-made by hand: a changed
threshold, classifier, word list or tokenizer never re-runs a crawl.

A blocking check stops only its own run, so the conditions ask for passed checks as well, and the
stages themselves refuse a manifest whose gate failed.
"""

import logging
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from assets.millwork import MillResource
from assets.partitions import SNAPSHOTS, add_requests, check_partition, register, set_name
from pipeline.errors import GristmillError, UsageError
from pipeline.mill import register_snapshot

ARRIVAL_TAG = "gristmill/arrival"

AC = dg.AutomationCondition


def first_time(*chains: tuple[str, ...]) -> dg.AutomationCondition:
    """Make a partition once, when the assets of one of `chains` have it and their gates passed.

    The first asset of a chain is the one whose arrival counts; the others must be there, but moving
    them moves nothing. Partitions that were complete before the condition was switched on, or that
    exist, are left alone.
    """
    return (
        AC.missing()
        & _any([_arrived(chain[0]) for chain in chains]).since_last_handled()
        & _any([_ready(chain) for chain in chains])
        & ~AC.in_progress()
    ).with_label("first time")


def _any(conditions: list[dg.AutomationCondition]) -> dg.AutomationCondition:
    found = conditions[0]
    for one in conditions[1:]:
        found = found | one
    return found


def _arrived(asset: str) -> dg.AutomationCondition:
    return AC.any_deps_updated().allow(dg.AssetSelection.assets(asset))


def _ready(chain: tuple[str, ...]) -> dg.AutomationCondition:
    """All of the chain is there, at rest, and past its blocking checks.

    `all_deps_*` is false where a partition has no counterpart in a dependency, which tells the
    snapshots among the corpora from the sources.
    """
    needed = dg.AssetSelection.assets(*chain)
    return (
        _gates(chain)
        & ~AC.any_deps_missing().allow(needed)
        & ~AC.any_deps_in_progress().allow(needed)
    )


def _gates(chain: tuple[str, ...]) -> dg.AutomationCondition:
    """Blocking checks passed, or will run between the two in the same run and stop it themselves.

    Dagster's own condition knows the second only for checks with a condition of their own; without
    it every stage would wait for a run of its own.
    """
    passed = AC.all_deps_blocking_checks_passed()
    first, *rest = chain
    same_run: dg.AutomationCondition = AC.any_deps_match(AC.will_be_requested()).allow(
        dg.AssetSelection.assets(first)
    )
    if rest:
        same_run = same_run & passed.allow(dg.AssetSelection.assets(*rest))
    return passed.allow(dg.AssetSelection.assets(*chain)) | same_run


class AssetJob(UnresolvedAssetJobDefinition):
    """A job over assets of which one, deduped_corpus, takes several partitions in one run.

    Dagster then takes one partition a run for the job, which is what is wanted here, and warns
    about it whenever the code is loaded.
    """

    def resolve(self, *args: Any, **kwargs: Any) -> dg.JobDefinition:
        """As in Dagster, without that warning."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*varying BackfillPolicies")
            return super().resolve(*args, **kwargs)


JOB_ASSETS: dict[str, tuple[str, ...]] = {
    "arrival": ("snapshots",),
    "mill_references": ("quality_labels", "quality_classifier"),
    "mill_selection": ("selection",),
    "mill_files": ("benchmark_sets", "word_lists"),
    "mill_snapshot": (
        "snapshots",
        "extracted_text",
        "filtered_text",
        "scored_text",
        "deduped_corpus",
        "scrubbed_corpus",
    ),
    "mill_source": ("source_texts",),
    "mill_tokenizer": ("tokenizer_sample", "tokenizer"),
    "mill_tokens": ("token_shards",),
    "mill_mixture": ("mixture",),
    "mill_run": ("checkpoints", "evaluation", "hf_model"),
    "mill_benchmarks": ("benchmark_scores",),
}
"""Assets of every job, in stage order; those of one job share their partitions."""

JOB_DESCRIPTIONS = {
    "arrival": "Lists a snapshot that arrived; the conditions do the rest.",
    "mill_references": "The labels and the quality classifier: promotes a new classifier.",
    "mill_selection": "Thresholds by language, fitted on what is scored.",
    "mill_files": "Benchmark sets and word lists, as configured.",
    "mill_snapshot": "Everything of one snapshot in one run, up to scrubbed_corpus; then "
    "mill_tokens.",
    "mill_source": "One source: deduplicated and scrubbed text.",
    "mill_tokenizer": "Sample and tokenizer. Frozen once it exists.",
    "mill_tokens": "Token shards of corpora (snapshots and sources). Several at once are launched "
    "here: a backfill from the asset's page wants every key in both upstream partition sets.",
    "mill_mixture": "The training plan over all token shards.",
    "mill_run": "One training run, its evaluation and the exported model.",
    "mill_benchmarks": "Scores of an exported model on task files of your own; needs the extra "
    "`eval`.",
}


def job(name: str) -> AssetJob:
    """A job over some assets that share their partitions."""
    selection = dg.AssetSelection.assets(*JOB_ASSETS[name])
    return AssetJob(name=name, selection=selection, description=JOB_DESCRIPTIONS[name])


JOBS = {name: job(name) for name in JOB_ASSETS}
ARRIVAL = JOBS["arrival"]


class Arrival(NamedTuple):
    """A complete snapshot: its name, and what tells this crawl of it from another."""

    name: str
    mark: str

    @property
    def key(self) -> str:
        """The run key: one run for each, ever."""
        return f"{self.name}:{self.mark}"


def new_arrivals(
    instance: dg.DagsterInstance, mill: MillResource, log: logging.Logger
) -> Iterator[Arrival]:
    """Complete snapshots at `snapshots.location` that no run was asked for yet, by name.

    They are registered in that order, which is the order of deduplication for good. A folder whose
    name cannot be a partition is logged and left alone.
    """
    from assets.arrivals import complete_snapshots

    expected = instance.get_dynamic_partitions(set_name(SNAPSHOTS))
    for name, mark in complete_snapshots(mill.load(), expected):
        arrival = Arrival(name, mark)
        try:
            check_partition(instance, SNAPSHOTS, name)
        except UsageError as error:
            log.warning(str(error))
            continue
        tagged = dg.RunsFilter(tags={ARRIVAL_TAG: arrival.key})
        if not instance.get_runs(tagged, limit=1):
            register_snapshot(mill.store(), name)
            yield arrival


def request(arrival: Arrival) -> dg.RunRequest:
    """The one run for an arrival."""
    return dg.RunRequest(
        run_key=arrival.key, partition_key=arrival.name, tags={ARRIVAL_TAG: arrival.key}
    )


@dg.sensor(
    name="snapshot_arrival",
    job=ARRIVAL,
    minimum_interval_seconds=60,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Looks at snapshots.location (folder or S3 prefix) for snapshots whose listing is "
    "complete and lists each once. Switch on `moves_by_itself` too, which does the stages behind "
    "it. A crawl published again under the same name (another listing) gets a run of its own.",
)
def snapshot_arrival(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """Add partitions and ask for one run each.

    Nothing depends on a partition being new: a tick that died after adding one asks again, and the
    run key (and the tag on the run, for the schedule) keeps it at one.
    """
    try:
        found = list(new_arrivals(context.instance, MillResource(), context.log))
    except GristmillError as error:
        raise dg.Failure(str(error)) from error
    return dg.SensorResult(
        run_requests=[request(arrival) for arrival in found],
        dynamic_partitions_requests=add_requests(SNAPSHOTS, [one.name for one in found]),
        skip_reason=None if found else "no complete snapshot that has not had its run",
    )


@dg.schedule(
    name="weekly_listing",
    job=ARRIVAL,
    cron_schedule="0 6 * * 1",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Polls the listing once a week, Monday 06:00 UTC, where a sensor that looks every "
    "minute would be impolite (a public crawl over https).",
)
def weekly_listing(
    context: dg.ScheduleEvaluationContext,
) -> list[dg.RunRequest] | dg.SkipReason:
    """The same as the sensor, less often; runs of either count for both."""
    try:
        found = list(new_arrivals(context.instance, MillResource(), context.log))
        for arrival in found:
            register(context.instance, SNAPSHOTS, arrival.name)
    except GristmillError as error:
        raise dg.Failure(str(error)) from error
    return [request(one) for one in found] or dg.SkipReason("no new complete snapshot")


MOVES_BY_ITSELF = dg.AutomationConditionSensorDefinition(
    name="moves_by_itself",
    target=dg.AssetSelection.all(),
    default_status=dg.DefaultSensorStatus.STOPPED,
    minimum_interval_seconds=30,
    # several partitions of token_shards in one backfill are refused by Dagster: see automation of
    # the union partitions in assets/tokens.py
    emit_backfills=False,
    description="Evaluates the automation conditions: a listed snapshot goes on to token_shards.",
)
