"""`gristmill up` without a browser: ports, configuration for the UI, servers that die."""

import json
import socket
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets.up import HOST, free_port, register_known, run_servers, settings_for
from pipeline.config import load_config
from pipeline.errors import GristmillError, UsageError
from pipeline.mill import register_snapshot
from resources.storage import open_store


def test_a_taken_port_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) > port


def test_no_free_port_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assets.up.PORTS_TRIED", 1)
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        with pytest.raises(UsageError, match="no port from"):
            free_port(taken.getsockname()[1])


def test_the_code_location_reads_the_file_or_gets_what_was_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GRISTMILL_ROOT", "GRISTMILL_CONFIG", "GRISTMILL_SETTINGS"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "gristmill.yaml"
    file.write_text("dedup: {threshold: 0.7}\n")
    root = {"storage": {"root": str(tmp_path)}}
    assert settings_for(load_config(file, overrides=root), None) == {
        "GRISTMILL_ROOT": str(tmp_path)
    }
    changed = load_config(file, overrides=root, sets=["dedup.threshold=0.9"])
    whole = json.loads(settings_for(changed, file)["GRISTMILL_SETTINGS"])
    assert whole["dedup"]["threshold"] == 0.9


def test_what_a_store_holds_already_becomes_partitions(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    register_snapshot(store, "A")
    store.write("runs/first.yaml", b"steps: 1\n")
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "code.jsonl").write_text("{}\n")
    settings = {"storage": {"root": store.url}, "sources": {"location": str(sources)}}
    with dg.DagsterInstance.ephemeral() as instance:
        register_known(instance, load_config(overrides=settings))
        found = {name: sorted(instance.get_dynamic_partitions(name)) for name in
                 ("snapshots", "sources", "corpora", "runs")}  # fmt: skip
    assert found == {
        "snapshots": ["A"],
        "sources": ["code"],
        "corpora": ["A", "code"],
        "runs": ["first"],
    }


def test_a_server_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no database')"]
    with pytest.raises(GristmillError, match="Dagster ended with exit code 1: no database"):
        run_servers({"Dagster": (9, command, "/")}, {}, tmp_path, print)
