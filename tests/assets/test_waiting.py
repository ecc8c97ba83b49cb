"""deduped_corpus waits for an earlier snapshot that another run is making, and for no other."""

import dagster as dg
import pytest

from assets.definitions import defs
from assets.materialise import in_flight

Status = dg.DagsterRunStatus


def run(instance: dg.DagsterInstance, partition: str, status: Status, *assets: str) -> str:
    made = instance.create_run_for_job(
        defs.resolve_job_def("mill_snapshot"),
        status=status,
        tags={"dagster/partition": partition},
        asset_selection=frozenset(map(dg.AssetKey, assets)) if assets else None,
    )
    return made.run_id


@pytest.mark.parametrize(
    ("status", "waits"),
    [
        (Status.STARTING, True),
        (Status.STARTED, True),
        (Status.SUCCESS, False),
        (Status.FAILURE, False),
        (Status.CANCELED, False),
    ],
)
def test_only_runs_that_go_on_are_waited_for(status: Status, waits: bool) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run(instance, "A", status)
        assert in_flight(instance, "deduped_corpus", "A", but="me") is waits
        assert not in_flight(instance, "deduped_corpus", "B", but="me")


def test_a_run_does_not_wait_for_itself_nor_for_one_that_makes_something_else() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        mine = run(instance, "A", Status.STARTED)
        assert not in_flight(instance, "deduped_corpus", "A", but=mine)
        run(instance, "A", Status.STARTED, "filtered_text")
        assert not in_flight(instance, "deduped_corpus", "A", but=mine)
        run(instance, "A", Status.STARTED, "deduped_corpus")
        assert in_flight(instance, "deduped_corpus", "A", but=mine)
