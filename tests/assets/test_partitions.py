"""Names of partitions: refused or safe, and never the same for a snapshot and a source."""

import json
from pathlib import Path

import dagster as dg
import pytest

from assets.instance import TEMPLATE, home_of, prepare_home
from assets.partitions import CORPORA, RUNS, SNAPSHOTS, SOURCES, add_requests, corpus_kind, register
from pipeline.errors import UsageError


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.mark.shared
def test_names_are_refused_by_name_or_stay_inside_the_root(
    instance: dg.DagsterInstance, shared: Path, tmp_path: Path
) -> None:
    names = json.loads((shared / "cases/orchestration/partition-names.json").read_text())
    for name in names:
        if name == "CC-MAIN-2026-05":
            register(instance, SNAPSHOTS, name)
            assert (tmp_path / name).resolve().parent == tmp_path.resolve()
            continue
        with pytest.raises(UsageError) as refused:
            register(instance, SNAPSHOTS, name)
        assert repr(name) in refused.value.message
    assert instance.get_dynamic_partitions("snapshots") == ["CC-MAIN-2026-05"]


def test_a_snapshot_and_a_source_are_corpora_once(instance: dg.DagsterInstance) -> None:
    for _ in range(2):
        register(instance, SNAPSHOTS, "A")
        register(instance, SOURCES, "code")
        register(instance, RUNS, "first")
    assert sorted(instance.get_dynamic_partitions("corpora")) == ["A", "code"]
    assert instance.get_dynamic_partitions("runs") == ["first"]
    assert corpus_kind(instance, "A") == "snapshots"
    assert corpus_kind(instance, "code") == "sources"


def test_a_name_cannot_be_both(instance: dg.DagsterInstance) -> None:
    register(instance, SNAPSHOTS, "A")
    with pytest.raises(UsageError, match="taken by one of the snapshots"):
        register(instance, SOURCES, "A")
    assert instance.get_dynamic_partitions("sources") == []


def test_an_unknown_corpus_is_an_error_that_names_it(instance: dg.DagsterInstance) -> None:
    with pytest.raises(UsageError, match="corpus 'x'"):
        corpus_kind(instance, "x")


def test_a_sensor_adds_to_both_sets() -> None:
    requests = add_requests(SNAPSHOTS, ["A"])
    assert [one.partitions_def_name for one in requests] == ["snapshots", CORPORA.name]
    assert add_requests(SNAPSHOTS, []) == []


def test_the_instance_file_is_written_once_and_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
    home = prepare_home(tmp_path / "store")
    assert home == tmp_path / "store" / "dagster"
    with dg.DagsterInstance.from_config(str(home)) as made:
        assert not made.telemetry_enabled
        assert not made.nux_enabled
        assert made.event_log_storage.get_pool_config().default_pool_limit == 1
    (home / "dagster.yaml").write_text("# mine\n" + TEMPLATE)
    monkeypatch.delenv("DAGSTER_HOME")
    prepare_home(tmp_path / "store")
    assert (home / "dagster.yaml").read_text().startswith("# mine")


def test_a_bucket_has_its_instance_at_home() -> None:
    home = home_of("s3://bucket/some/prefix")
    assert home.parent == Path.home() / ".gristmill"
    assert home.name == "s3-bucket-some-prefix"
