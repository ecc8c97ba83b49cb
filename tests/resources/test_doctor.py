"""Doctor: what is wrong is named, with a cure, and nothing heavy is imported for it."""

from __future__ import annotations

import importlib.metadata
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.config import load_config
from resources import doctor
from resources.doctor import Finding, check
from tests.s3_server import moto_server


def found(**settings: object) -> dict[str, Finding]:
    return {finding.name: finding for finding in check(load_config(overrides=settings))}


def test_a_ready_machine(tmp_path: Path) -> None:
    findings = found(storage={"root": str(tmp_path / "store")}, engine={"workers": 1})
    for name in ("python", "fasttext", "store", "cores", "torch", "disk for store"):
        assert findings[name].level != "fail", findings[name]
    assert not (tmp_path / "store").exists()
    assert findings["store"].as_json()["level"] == "ok"
    for finding in findings.values():
        assert (finding.level == "ok") == (finding.hint is None)


def test_stores_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert found(storage={"root": str(tmp_path / "file/store")})["store"].level == "fail"
    assert found()["store"].level == "warn"
    with moto_server() as server, server.environment():
        assert found(storage={"root": f"s3://{server.bucket()}/x"})["store"].level == "ok"
        missing = found(storage={"root": "s3://no-such-bucket/x"})["store"]
    assert missing.level == "fail"
    assert "create the bucket" in (missing.hint or "")


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        [finding] = doctor._ports((taken.getsockname()[1],))
    assert (finding.level, finding.text) == ("warn", "in use")


def test_too_many_workers() -> None:
    findings = found(engine={"workers": 4000})
    assert findings["cores"].level == "warn"
    assert findings["memory"].level == "warn"
    assert "engine.workers" in (findings["memory"].hint or "")


def test_other_versions_than_the_pinned_are_named(tmp_path: Path) -> None:
    pins = tmp_path / "constraints.txt"
    version = importlib.metadata.version("polars")
    pins.write_text(f"# comment ==\npolars=={version}\nNumPy==0.0.1  # why\n")
    [finding] = doctor._packages(pins)
    assert finding.level == "warn"
    assert finding.text == f"numpy {importlib.metadata.version('numpy')}, tried 0.0.1"


def test_ray_is_looked_for_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ray" not in found()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert found(engine={"kind": "ray"})["ray"].level == "fail"


LIGHT = """
import sys
from pipeline.config import load_config
from resources.doctor import check
check(load_config())
heavy = {"torch", "mlflow", "dagster", "numba", "boto3", "ray", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""


def test_nothing_heavy_is_imported() -> None:
    subprocess.run([sys.executable, "-c", LIGHT], check=True)
