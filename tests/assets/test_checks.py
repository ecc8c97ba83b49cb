"""Checks: a gate's verdict with its cure, what was made differently, and the chain of snapshots."""

from pathlib import Path

import dagster as dg
import pytest

from assets.checks import chain, configuration, results, verdict
from pipeline.commit import Clock, publish
from pipeline.config import load_config
from pipeline.dataset import read_manifest
from pipeline.manifest import Content, Counts, Entry, Gate, InputRef, Manifest, output_hash
from pipeline.mill import Mill
from pipeline.stages.crawl import list_files
from resources.mill import open_mill

ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


def mill_at(folder: Path, **snapshots: object) -> Mill:
    section = {"location": str(folder / "crawls"), **snapshots}
    overrides = {
        "storage": {"root": str(folder / "store")},
        "snapshots": section,
        "engine": {"workers": 1},
    }
    return open_mill(load_config(overrides=overrides))


def content(**more: object) -> Content:
    counts = Counts(records_in=100, kept=10, dropped=90, reasons={"language.not_kept": 90})
    base: dict[str, object] = {
        "stage": "deduped_corpus", "partition": "B", "inputs": [], "config": {},
        "code_version": "1", "libraries": {}, "parts": [], "decisions": [], "output": "x",
        "counts": counts, "damaged": [], "gates": [],
    }  # fmt: skip
    return Content.model_validate(base | more)


def gate(name: str = "yield", *, failed: bool = True, blocking: bool = True) -> Gate:
    return Gate(name=name, verdict="fail" if failed else "pass", value=0.1, threshold=[0.2, 1.0],
                sample=100, blocking=blocking)  # fmt: skip


def test_a_failed_blocking_gate_is_an_error_with_its_cure() -> None:
    result = verdict(gate(), content())
    assert (result.passed, result.severity) == (False, ERROR)
    assert "0.1 against [0.2, 1.0], over 100" in str(result.description)
    assert "Cure:" in str(result.description)
    assert "accept_gate" in str(result.description)


def test_a_failed_gate_that_only_reports_is_a_warning() -> None:
    result = verdict(gate(blocking=False), content())
    assert (result.passed, result.severity) == (False, WARN)


def test_an_accepted_gate_passes_and_says_why() -> None:
    accepted = content(accepted_gates=[{"name": "yield", "reason": "a tiny crawl"}])
    result = verdict(gate(), accepted)
    assert result.passed
    assert "accepted (a tiny crawl)" in str(result.description)


def test_too_few_records_are_no_verdict_and_stop_nobody() -> None:
    few = gate().model_copy(update={"verdict": "not_enough_sample"})
    result = verdict(few, content())
    assert result.passed
    assert "not enough sample" in str(result.description)


def test_a_passed_gate_passes() -> None:
    assert verdict(gate(failed=False), content()).passed


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A store with two listed snapshots."""
    for name in ("A", "B"):
        folder = tmp_path / "crawls" / name
        folder.mkdir(parents=True)
        for n in range(2):
            (folder / f"{name}-{n}.warc.gz").write_bytes(b"x" * 10)
        list_files(mill_at(tmp_path), name)
    return tmp_path


def test_the_configuration_check_names_the_partitions_that_are_behind(listed: Path) -> None:
    assert configuration(mill_at(listed), "snapshots", ["A", "B"]).passed
    list_files(mill_at(listed, files=1), "A")
    result = configuration(mill_at(listed, files=1), "snapshots", ["A", "B"])
    assert (result.passed, result.severity) == (False, WARN)
    assert "B: files changed" in str(result.description)
    assert "A:" not in str(result.description)
    assert result.metadata["partitions"] == dg.MetadataValue.text("B")


def test_where_files_lie_makes_no_difference(listed: Path) -> None:
    (listed / "crawls").rename(listed / "moved")
    moved = mill_at(listed, location=str(listed / "moved"))
    assert configuration(moved, "snapshots", ["A"]).passed


def test_all_checks_of_an_asset_over_one_partition_and_over_all(listed: Path) -> None:
    names = {"conserved", "not_empty", "configuration"}
    for partitions in (["A"], ["A", "B"]):
        found = list(results(mill_at(listed), "snapshots", list(partitions), names))
        assert {one.check_name for one in found} == names
        assert all(one.passed for one in found)


def test_a_gate_that_the_manifest_lacks_is_a_warning(listed: Path) -> None:
    [found] = results(mill_at(listed), "snapshots", ["A"], {"yield"})
    assert (found.passed, found.severity) == (False, WARN)


def commit(mill: Mill, partition: str, checksum: str, inputs: list[InputRef]) -> Manifest:
    """A manifest of deduped_corpus with one part."""
    part = Entry(key="k", path=f"part-{checksum}.parquet", rows=1, bytes=1, checksum=checksum)
    made = Manifest(
        content=content(
            partition=partition, parts=[part], output=output_hash([part]), inputs=inputs
        ),
        run=Clock().block(),
    )
    publish(mill.folder("deduped_corpus", partition), made)
    return made


def test_the_chain_breaks_when_an_earlier_output_changes_and_not_before(tmp_path: Path) -> None:
    mill = mill_at(tmp_path)
    first = commit(mill, "A", "one", [])
    ref = InputRef(asset="deduped_corpus", partition="A", hash=first.hash)
    second = commit(mill, "B", "two", [ref])
    assert chain(mill, second.content).passed

    same = commit(mill, "A", "one", [InputRef(file="another", checksum="input")])
    assert same.hash != first.hash
    assert chain(mill, second.content).passed, "an equal output does not ripple"

    commit(mill, "A", "changed", [])
    result = chain(mill, second.content)
    assert (result.passed, result.severity) == (False, ERROR)
    assert "another output of A" in str(result.description)
    assert read_manifest(mill.folder("deduped_corpus", "B")).hash == second.hash
