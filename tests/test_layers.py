"""The import arrows between the packages, and what must never be imported where."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("pipeline", "assets", "resources", "training")

FORBIDDEN = {
    "pipeline": {"dagster", "torch", "mlflow", "boto3", "assets", "resources"},
    "resources": {"assets"},
    "training": {"dagster", "polars", "pipeline", "assets", "resources"},
    "assets": set(),
}
PIPELINE_MAY_READ = {"training.shards", "training.rows"}
HEAVY = ("torch", "mlflow", "ray", "numba", "matplotlib", "trafilatura", "spacy", "transformers")


def imports_of(path: Path) -> set[str]:
    """Dotted names that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("package", PACKAGES)
def test_arrows(package: str) -> None:
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules(package)
        for name in imports_of(path)
        if name.split(".")[0] in FORBIDDEN[package]
    ]
    assert broken == []


def test_pipeline_reads_only_the_shard_format_of_training() -> None:
    broken = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in modules("pipeline")
        for name in imports_of(path)
        if name.startswith("training.")
        and not any(name == m or name.startswith(f"{m}.") for m in PIPELINE_MAY_READ)
    ]
    assert broken == []


@pytest.mark.parametrize("package", ["assets", "resources"])
def test_dagster_reads_annotations_at_run_time(package: str) -> None:
    late = [
        str(p) for p in modules(package) if "from __future__ import annotations" in p.read_text()
    ]
    assert late == []


def loaded_after(statement: str) -> set[str]:
    """Top-level modules in sys.modules after a statement in a fresh interpreter."""
    code = f"{statement}; import sys; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return set(done.stdout.split())


def test_definitions_load_light() -> None:
    assert loaded_after("import assets.definitions").isdisjoint(HEAVY)


@pytest.mark.parametrize("module", ["pipeline.trace", "pipeline.config", "assets.cli"])
def test_light_modules_stay_light(module: str) -> None:
    assert loaded_after(f"import {module}").isdisjoint({*HEAVY, "dagster", "polars", "boto3"})


def test_generic_names_belong_to_nobody_else() -> None:
    owners = packages_distributions()
    for package in PACKAGES:
        assert set(owners.get(package, ["gristmill"])) == {"gristmill"}


def test_one_provider_of_fasttext() -> None:
    assert packages_distributions()["fasttext"] == ["fasttext-community"]
