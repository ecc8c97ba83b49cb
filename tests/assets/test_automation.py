"""What moves when: scenarios evaluated tick by tick, with a real instance and no daemon."""

from collections.abc import Iterator
from functools import cache

import dagster as dg
import pytest

from assets.checks import WATCHED
from assets.definitions import defs
from assets.partitions import CORPORA, RUNS, SNAPSHOTS, SOURCES, register

CHAIN = [
    "snapshots",
    "extracted_text",
    "filtered_text",
    "scored_text",
    "deduped_corpus",
    "scrubbed_corpus",
]


@cache
def stand_in(asset: str, passed: bool) -> dg.AssetsDefinition:
    """An asset of this key and these checks that does no work: what counts here are its events."""
    watched = WATCHED[asset]
    real = defs.resolve_asset_graph()
    specs = [real.assets_def_for_key(key).get_spec_for_check_key(key) for key in
             sorted(real.get(dg.AssetKey(asset)).check_keys)]  # fmt: skip

    @dg.asset(name=asset, partitions_def=watched.partitions, check_specs=specs)
    def made() -> dg.MaterializeResult:
        results = [dg.AssetCheckResult(passed=passed, check_name=spec.name) for spec in specs]
        return dg.MaterializeResult(check_results=results)

    return made


class World:
    """An instance, and the cursor of the evaluations so far."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.cursor = None

    def tick(self) -> dict[str, list[str]]:
        """One evaluation: asset -> partitions requested."""
        result = dg.evaluate_automation_conditions(
            defs=defs,
            instance=self.instance,
            asset_selection=dg.AssetSelection.all() | dg.AssetSelection.all_asset_checks(),
            cursor=self.cursor,
        )
        self.cursor = result.cursor
        found: dict[str, list[str]] = {}
        for name in [*WATCHED, "checkpoints", "evaluation", "hf_model"]:
            requested = result.get_requested_partitions(dg.AssetKey(name))
            if requested:
                found[name] = sorted(str(key) for key in requested)
        return found

    def make(self, asset: str, partition: str | None = None, *, passed: bool = True) -> None:
        """The asset is materialised and its checks are run, as in a run of its own."""
        result = dg.materialize(
            [stand_in(asset, passed)],
            instance=self.instance,
            partition_key=partition,
            raise_on_error=False,
        )
        assert result.success is passed

    def run_chain(self, partition: str, *, first: str = "extracted_text") -> None:
        """Everything from `first` on, in order."""
        for asset in CHAIN[CHAIN.index(first) :]:
            self.make(asset, partition)


@pytest.fixture
def world() -> Iterator[World]:
    with dg.DagsterInstance.ephemeral() as instance:
        made = World(instance)
        made.make("quality_classifier")
        made.make("tokenizer")
        made.tick()
        yield made


def arrive(world: World, name: str) -> None:
    """What the sensor does, and the run it asks for."""
    register(world.instance, SNAPSHOTS, name)
    assert world.tick() == {}, "a partition that is only registered moves nothing"
    world.make("snapshots", name)


def test_a_new_snapshot_moves_its_own_partitions_in_one_run_and_then_its_shards(
    world: World,
) -> None:
    arrive(world, "A")
    assert world.tick() == {name: ["A"] for name in CHAIN[1:]}
    assert world.tick() == {}, "asked for once"
    world.run_chain("A")
    assert world.tick() == {"token_shards": ["A"]}
    world.make("token_shards", "A")
    assert world.tick() == {}, "mixture, checkpoints and references do not move"


def test_a_second_snapshot_leaves_the_first_alone(world: World) -> None:
    arrive(world, "A")
    world.tick()
    world.run_chain("A")
    world.tick()
    world.make("token_shards", "A")
    arrive(world, "B")
    assert world.tick() == {name: ["B"] for name in CHAIN[1:]}


@pytest.mark.slow
@pytest.mark.parametrize("asset", ["quality_classifier", "benchmark_sets", "word_lists"])
def test_promoting_a_reference_moves_nothing(world: World, asset: str) -> None:
    arrive(world, "A")
    world.tick()
    world.run_chain("A")
    world.tick()
    world.make("token_shards", "A")
    world.tick()
    world.make(asset)
    assert world.tick() == {}


def test_another_tokenizer_moves_nothing(world: World) -> None:
    arrive(world, "A")
    world.tick()
    world.run_chain("A")
    world.tick()
    world.make("token_shards", "A")
    world.make("tokenizer_sample")
    world.make("tokenizer")
    assert world.tick() == {}


def test_a_stage_made_again_by_hand_moves_nothing(world: World) -> None:
    arrive(world, "A")
    world.tick()
    world.run_chain("A")
    world.tick()
    world.make("token_shards", "A")
    world.tick()
    world.make("filtered_text", "A")
    assert world.tick() == {}


def test_a_failed_gate_stops_the_next_stage_in_other_runs_too(world: World) -> None:
    arrive(world, "A")
    world.tick()
    world.make("extracted_text", "A", passed=False)
    assert world.tick() == {}
    register(world.instance, SNAPSHOTS, "B")
    world.make("snapshots", "B")
    assert world.tick() == {name: ["B"] for name in CHAIN[1:]}, "its neighbour goes on"


def test_a_gate_that_passes_after_a_repair_lets_the_next_stage_go(world: World) -> None:
    arrive(world, "A")
    world.make("extracted_text", "A", passed=False)
    assert world.tick() == {}
    world.make("extracted_text", "A")
    assert world.tick() == {name: ["A"] for name in CHAIN[2:]}


def test_shards_wait_for_the_tokenizer_and_then_go() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(instance)
        world.make("quality_classifier")
        world.tick()
        arrive(world, "A")
        world.tick()
        world.run_chain("A")
        assert world.tick() == {}, "there is no tokenizer yet"
        world.make("tokenizer")
        assert world.tick() == {"token_shards": ["A"]}


def test_a_source_moves_its_shards_only(world: World) -> None:
    register(world.instance, SOURCES, "code")
    world.tick()
    world.make("source_texts", "code")
    assert world.tick() == {"token_shards": ["code"]}


def test_switching_on_does_not_go_back_over_what_lies_there() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        world = World(instance)
        world.make("quality_classifier")
        register(instance, SNAPSHOTS, "old")
        world.make("snapshots", "old")
        assert world.tick() == {}
        assert world.tick() == {}


def test_what_is_switched_off_until_a_person_switches_it_on() -> None:
    repository = defs.get_repository_def()
    sensors = {sensor.name: sensor.default_status for sensor in repository.sensor_defs}
    assert sensors == dict.fromkeys(
        ["snapshot_arrival", "moves_by_itself"], dg.DefaultSensorStatus.STOPPED
    )
    [schedule] = repository.schedule_defs
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED


def test_arrival_requests_only_what_has_no_condition() -> None:
    graph = defs.resolve_asset_graph()
    conditions = {key.to_user_string(): graph.get(key).automation_condition for key in
                  graph.get_all_asset_keys()}  # fmt: skip
    arrival = defs.resolve_job_def("arrival").asset_layer.selected_asset_keys
    assert {key.to_user_string() for key in arrival} == {"snapshots"}
    moving = {name for name, condition in conditions.items() if condition}
    assert moving == {*CHAIN[1:], "token_shards"}
    assert {RUNS.name, CORPORA.name} == {"runs", "corpora"}
