"""New snapshots: complete or not, and exactly one run each, whatever dies half-way."""

import gzip
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.arrivals import QUIET_SECONDS, complete_snapshots, listed
from assets.automation import ARRIVAL_TAG, snapshot_arrival, weekly_listing
from assets.definitions import defs
from pipeline.config import Config, load_config
from pipeline.errors import ConfigError
from pipeline.mill import registered_snapshots
from resources.storage import open_store


def crawl(folder: Path, name: str, *, files: int = 2, present: int | None = None) -> Path:
    """A snapshot's folder: a listing of `files` files, `present` of which are there."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    names = [f"{name}-{i:05}.warc.gz" for i in range(files)]
    for file in names[: files if present is None else present]:
        (place / file).write_bytes(b"x")
    text = "".join(f"crawl/{name}/{file}\n" for file in names)
    (place / "warc.paths.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    return place


def config(location: str | Path) -> Config:
    return load_config(overrides={"snapshots": {"location": str(location)}})


def names(location: str | Path, expected: list[str] | None = None) -> list[str]:
    return [name for name, _ in complete_snapshots(config(location), expected or [])]


class World:
    """A store, a folder of crawls, an instance, and the sensor over them."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.crawls, self.root, self.instance = folder / "crawls", folder / "store", instance
        self.crawls.mkdir()
        self.root.mkdir()
        (self.root / "gristmill.yaml").write_text(f"snapshots: {{location: {self.crawls}}}\n")

    def tick(self) -> list[dg.RunRequest]:
        """The sensor's tick; then Dagster adds the partitions, before it launches anything."""
        context = dg.build_sensor_context(instance=self.instance)
        result = snapshot_arrival(context)
        assert isinstance(result, dg.SensorResult)
        for request in result.dynamic_partitions_requests or []:
            new = [
                k
                for k in request.partition_keys
                if not self.instance.has_dynamic_partition(request.partitions_def_name, k)
            ]
            self.instance.add_dynamic_partitions(request.partitions_def_name, new)
        return list(result.run_requests or [])

    def poll(self) -> list[dg.RunRequest]:
        """The schedule's tick."""
        context = dg.build_schedule_context(instance=self.instance)
        result = weekly_listing(context)
        return result if isinstance(result, list) else []

    def launch(self, request: dg.RunRequest) -> dg.DagsterRun:
        """The run that a request asks for, as far as the instance is concerned."""
        return self.instance.create_run_for_job(
            defs.resolve_job_def("arrival"),
            tags={**request.tags, "dagster/partition": str(request.partition_key)},
        )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    for name in ("GRISTMILL_CONFIG", "GRISTMILL_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRISTMILL_ROOT", str(tmp_path / "store"))
    home = tmp_path / "home"
    home.mkdir()
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        yield World(tmp_path, instance)


def test_a_tick_that_dies_after_adding_the_partition_still_gives_one_run(world: World) -> None:
    crawl(world.crawls, "S")
    [first] = world.tick()  # the partition is added, the tick dies, no run is launched
    assert world.instance.get_dynamic_partitions("snapshots") == ["S"]
    assert world.instance.get_runs() == []
    [second] = world.tick()
    assert second.run_key == first.run_key, "Dagster launches a run key once"
    assert second.partition_key == "S"
    world.launch(second)
    assert world.tick() == []
    assert len(world.instance.get_runs()) == 1


def test_a_tick_that_dies_after_the_run_asks_for_no_other(world: World) -> None:
    crawl(world.crawls, "S")
    world.launch(world.tick()[0])
    assert world.tick() == []


def test_the_schedule_and_the_sensor_count_each_others_runs(world: World) -> None:
    crawl(world.crawls, "S")
    [request] = world.poll()
    world.launch(request)
    assert world.poll() == []
    assert world.tick() == []


def test_a_crawl_published_again_gets_a_run_of_its_own(world: World) -> None:
    place = crawl(world.crawls, "S")
    world.launch(world.tick()[0])
    (place / "S-00000.warc.gz").write_bytes(b"touched")
    assert world.tick() == [], "files that change under one listing start nothing"
    crawl(world.crawls, "S", files=3)
    [again] = world.tick()
    assert again.partition_key == "S"
    assert again.tags[ARRIVAL_TAG] == again.run_key


def test_snapshots_are_registered_in_the_order_of_their_names(world: World) -> None:
    for name in ("B", "A"):
        crawl(world.crawls, name)
    assert [request.partition_key for request in world.tick()] == ["A", "B"]
    assert registered_snapshots(open_store(str(world.root))) == ["A", "B"]


def test_a_name_that_cannot_be_used_is_left_alone_and_stops_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    crawl(world.crawls, "with space")
    crawl(world.crawls, "good")
    with caplog.at_level(logging.WARNING):
        assert [request.partition_key for request in world.tick()] == ["good"]
    assert world.instance.get_dynamic_partitions("snapshots") == ["good"]


def test_without_a_location_the_sensor_says_so(world: World) -> None:
    (world.root / "gristmill.yaml").write_text("{}\n")
    with pytest.raises(dg.Failure, match=r"snapshots.location is not set"):
        world.tick()


def test_complete_is_when_every_listed_file_is_there(tmp_path: Path) -> None:
    crawl(tmp_path, "half", present=1)
    crawl(tmp_path, "listing-came-first", present=0)
    crawl(tmp_path, "whole")
    assert names(tmp_path) == ["whole"]


def test_a_listing_that_is_still_being_written_is_not_complete(tmp_path: Path) -> None:
    place = crawl(tmp_path, "S")
    data = (place / "warc.paths.gz").read_bytes()
    (place / "warc.paths.gz").write_bytes(data[: len(data) // 2])
    assert names(tmp_path) == []
    assert listed(b"a/b.warc.gz\n") == {"b.warc.gz"}


def test_without_a_listing_a_folder_counts_once_it_is_quiet(tmp_path: Path) -> None:
    place = crawl(tmp_path, "S")
    (place / "warc.paths.gz").unlink()
    assert names(tmp_path) == []
    long_ago = time.time() - QUIET_SECONDS - 1
    for file in place.iterdir():
        os.utime(file, (long_ago, long_ago))
    assert names(tmp_path) == ["S"]


def test_a_pattern_finds_names_around_and_inside(tmp_path: Path) -> None:
    crawl(tmp_path, "CC-1")
    crawl(tmp_path, "other")
    assert names(f"{tmp_path}/CC-{{snapshot}}") == ["1"]
    assert names(f"{tmp_path}/{{snapshot}}/warc.paths.gz") == ["CC-1", "other"]


def test_a_location_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"snapshots\.location is not set"):
        list(complete_snapshots(load_config()))


@pytest.mark.shared
def test_the_shared_crawls_are_complete(shared: Path) -> None:
    found = names(shared / "data" / "snapshots")
    assert found == ["CRAWL-2026-40", "CRAWL-2026-45"]
    case = json.loads((shared / "cases/orchestration/sensor.json").read_text())
    assert case["tick_2"] == "sees S again"
