"""Headless runs: the real stages through a real Dagster instance, on a crawl of a few pages."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.headless import materialise
from assets.millwork import MillResource
from pipeline.config import Config, load_config
from pipeline.errors import ConfigError, GateError, UsageError
from resources.mill import open_mill

TEXT = (
    "<p>The miller of page {0} opens the sluice before dawn, and the wheel begins to turn under "
    "the weight of the water that comes down from the upper pond of the village.</p>"
)


def record(n: int, status: str) -> bytes:
    body = f"<html><body><article>{TEXT.format(n) * 6}</article></body></html>".encode()
    block = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\n\r\n".encode() + body
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{n}>\r\n"
        f"WARC-Target-URI: http://mill.example/{n}\r\nWARC-Date: 2026-10-02T17:06:51Z\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return gzip.compress(head.encode() + block + b"\r\n\r\n", mtime=0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two small crawls: four pages and eight errors each."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    for name in ("A", "B"):
        folder = tmp_path / "crawls" / name
        folder.mkdir(parents=True)
        records = [record(n, "200 OK" if n < 4 else "404 Not Found") for n in range(12)]
        (folder / f"{name}.warc.gz").write_bytes(b"".join(records))
    yield tmp_path
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


def config(store: Path, **more: Any) -> Config:
    base = {
        "storage": {"root": str(store / "store")},
        "snapshots": {"location": str(store / "crawls")},
        "engine": {"workers": 1},
    }
    return load_config(overrides=base | more)


def instance(store: Path) -> dg.DagsterInstance:
    return dg.DagsterInstance.from_config(str(store / "store" / "dagster"))


@pytest.mark.slow
def test_a_run_leaves_partitions_counts_and_checks_for_the_ui(
    store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = config(store)
    done: list[tuple[str, int, int]] = []
    result = materialise(
        given,
        kind="snapshot",
        partition="A",
        select=["extracted_text", "snapshots"],
        progress=lambda stage, n, total: done.append((stage, n, total)),
    )
    assert [one["asset"] for one in result["assets"]] == ["snapshots", "extracted_text"]
    extracted = result["assets"][1]
    assert (extracted["records_in"], extracted["kept"]) == (12, 4)
    assert extracted["reasons"] == {"record.status": 8}
    assert ("extracted_text", 1, 1) in done
    assert capfd.readouterr().out == "", "stdout is the caller's"
    assert json.loads(json.dumps(result)) == result

    manifest = open_mill(given).find("extracted_text", "A")
    assert manifest is not None
    with instance(store) as ui:
        assert ui.get_dynamic_partitions("corpora") == ["A"]
        event = ui.get_latest_materialization_event(dg.AssetKey("extracted_text"))
        assert event is not None
        made = event.asset_materialization
        assert made is not None
        assert made.partition == "A"
        assert made.tags is not None
        assert made.tags["dagster/data_version"] == manifest.content.output
        assert made.metadata["dagster/row_count"].value == 4
        key = dg.AssetCheckKey(dg.AssetKey("extracted_text"), "conserved")
        [check] = ui.event_log_storage.get_asset_check_execution_history(key, limit=5)
        assert check.status.value == "SUCCEEDED"
        [run] = ui.get_runs()
        assert run.job_name == "mill_snapshot"
        assert manifest.run["ids"]["dagster"] == run.run_id


@pytest.mark.slow
def test_a_failed_gate_stops_the_run_and_names_the_cure(store: Path) -> None:
    gates = {"min_sample": 5, "yields": {"extracted_text": {"low": 0.9, "high": 1.0}}}
    given = config(store, gates=gates)
    names = ["snapshots", "extracted_text", "filtered_text"]
    with pytest.raises(GateError, match=r"extracted_text/A failed its gate 'yield'"):
        materialise(given, kind="snapshot", partition="A", select=names)
    assert open_mill(given).find("filtered_text", "A") is None
    with instance(store) as ui:
        [run] = ui.get_runs()
        assert run.status is dg.DagsterRunStatus.FAILURE


def test_a_failed_stage_raises_its_own_sentence(store: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        materialise(config(store), kind="snapshot", partition="absent", select=["snapshots"])


def test_an_unknown_asset_and_a_missing_root_are_wrong_usage(store: Path) -> None:
    with pytest.raises(UsageError, match="there is no asset 'tokens'"):
        materialise(config(store), kind="snapshot", partition="A", select=["tokens"])
    with pytest.raises(UsageError, match="no store was named"):
        materialise(load_config(), kind="snapshot", partition="A")


@pytest.mark.slow
def test_several_partitions_in_one_run_are_done_in_their_order(store: Path) -> None:
    """What a single-run backfill of deduped_corpus does, on the first stage."""
    from assets.definitions import defs

    given = config(store)
    for name in ("B", "A"):
        materialise(given, kind="snapshot", partition=name, select=["snapshots"])
    with instance(store) as ui:
        first, *_, last = ui.get_dynamic_partitions("snapshots")
        result = defs.resolve_job_def("arrival").execute_in_process(
            instance=ui,
            tags={
                "dagster/asset_partition_range_start": first,
                "dagster/asset_partition_range_end": last,
            },
            run_config={
                "resources": {"mill": {"config": {"settings": given.model_dump_json()}}},
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
        )
        assert result.success
        lines = [e.message for e in ui.all_logs(result.run_id) if " of 1 kept" in e.message]
        assert [line.split(":")[0] for line in lines] == ["snapshots/B", "snapshots/A"]


@pytest.mark.slow
def test_overrides_of_the_launchpad_stand_in_the_manifest(store: Path) -> None:
    from assets.definitions import defs

    given = config(store)
    materialise(given, kind="snapshot", partition="A", select=["snapshots"])
    with instance(store) as ui:
        ops = {"snapshots": {"config": {"overrides": {"snapshots": {"files": 1}}}}}
        defs.resolve_job_def("arrival").execute_in_process(
            instance=ui,
            partition_key="A",
            run_config={
                "ops": ops,
                "resources": {"mill": {"config": {"settings": given.model_dump_json()}}},
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
        )
    manifest = open_mill(given).find("snapshots", "A")
    assert manifest is not None
    assert manifest.content.config["files"] == 1


def test_a_run_cannot_move_the_store() -> None:
    with pytest.raises(ConfigError, match=r"overrides\.storage"):
        MillResource(root="anywhere").load({"storage": {"root": "elsewhere"}})


def test_the_configuration_is_found_in_the_root_in_a_file_or_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GRISTMILL_ROOT", "GRISTMILL_CONFIG", "GRISTMILL_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "gristmill.yaml").write_text("preset: fineweb\ndedup: {threshold: 0.7}\n")
    (tmp_path / "other.yaml").write_text("dedup: {threshold: 0.6}\n")
    monkeypatch.setenv("GRISTMILL_ROOT", str(tmp_path))
    assert MillResource().load().dedup.threshold == 0.7
    assert MillResource().load({"dedup": {"threshold": 0.9}}).dedup.threshold == 0.9
    monkeypatch.setenv("GRISTMILL_CONFIG", str(tmp_path / "other.yaml"))
    assert MillResource().load().dedup.threshold == 0.6
    assert MillResource().load().storage.root == str(tmp_path)
    whole = load_config(overrides={"dedup": {"threshold": 0.5}}).model_dump_json()
    monkeypatch.setenv("GRISTMILL_SETTINGS", whole)
    assert MillResource().load().dedup.threshold == 0.5
