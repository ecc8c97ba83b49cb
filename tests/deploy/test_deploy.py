"""What can be said of deploy/ without a container engine: lint, schemas, pins, and what listens."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
WEB = {"webserver", "mlflow"}


def load(name: str) -> dict[str, Any]:
    found = yaml.safe_load((DEPLOY / name).read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    found: dict[str, Any] = load("compose.yaml")["services"]
    return found


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.train"])
def test_hadolint_finds_nothing(name: str) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("hadolint is not installed (extra dev)")
    done = subprocess.run([hadolint, DEPLOY / name], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.train"])
def test_image_is_pinned_and_runs_without_privileges(name: str) -> None:
    text = (DEPLOY / name).read_text()
    bases = re.findall(r"^FROM (\S+)", text, flags=re.MULTILINE)
    assert bases
    assert all(re.fullmatch(r"[^:]+:\d+\.\d+\.\d+-[a-z-]+", base) for base in bases)
    users = re.findall(r"^USER (\S+)", text, flags=re.MULTILINE)
    assert users[-1] == "10001:10001"
    for line in re.findall(r"pip install[^\n]*", text):
        assert "-c constraints.txt" in line


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.train"])
def test_everything_copied_exists_and_is_not_ignored(name: str) -> None:
    allowed = set(re.findall(r"^!(\S+)", (ROOT / ".dockerignore").read_text(), flags=re.MULTILINE))
    for words in re.findall(r"^COPY (?:--\S+ )?(.+)$", (DEPLOY / name).read_text(), re.MULTILINE):
        for source in words.split()[:-1]:
            assert source.split("/")[0] in allowed
            assert (ROOT / source).exists(), source


def test_compose_file_fits_the_specification() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="extra dev")
    # as compose itself does: merge keys first, then defaults in place of variables that are not set
    text = yaml.safe_dump(load("compose.yaml"))
    merged = yaml.safe_load(re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", text))
    compose = compose_spec.PyCompose.from_yaml(yaml.safe_dump(merged))
    assert compose.validate() is None
    spec = compose_spec.ComposeSpecification.model_validate(merged)
    assert set(spec.services) == {
        "postgres", "s3", "buckets", "mlflow", "code", "webserver", "daemon"
    }  # fmt: skip


def test_only_the_web_uis_are_published_and_on_loopback(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert set(published) == WEB
    for ports in published.values():
        assert all(port.startswith("${GRISTMILL_BIND:-127.0.0.1}:") for port in ports)
    assert not [name for name, service in services.items() if "network_mode" in service]
    assert "docker.sock" not in (DEPLOY / "compose.yaml").read_text()
    assert "proxy" in (DEPLOY / "README.md").read_text()


def test_every_image_has_an_exact_tag(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert re.fullmatch(r"[\w/.-]+:\d+\.\d+[\w.-]*", service["image"]), name


def test_every_lasting_service_is_watched(services: dict[str, Any]) -> None:
    for name, service in services.items():
        if name != "buckets":  # runs once
            assert "test" in service["healthcheck"], name
        for other in service.get("depends_on", {}):
            assert other in services


def test_no_password_stands_in_a_file(services: dict[str, Any]) -> None:
    for name, service in services.items():
        for key, value in service.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|ACCESS_KEY", key):
                assert str(value).startswith("${GRISTMILL_"), f"{name}: {key}"
    lines = (DEPLOY / ".env.example").read_text().splitlines()
    secrets = [line for line in lines if re.match(r"\w*(PASSWORD|SECRET_KEY)=", line)]
    assert secrets
    assert all(line.endswith("=") for line in secrets)


def test_dagster_accepts_the_instance_and_the_workspace() -> None:
    from dagster._config import validate_config
    from dagster._core.instance.config import dagster_instance_config_schema
    from dagster._core.workspace.config_schema import WORKSPACE_CONFIG_SCHEMA

    instance = load("dagster.yaml")
    result = validate_config(dagster_instance_config_schema(), instance)
    assert result.success, result.errors
    assert validate_config(WORKSPACE_CONFIG_SCHEMA, load("workspace.yaml")).success
    assert instance["telemetry"] == {"enabled": False}
    assert instance["nux"] == {"enabled": False}
    assert instance["concurrency"]["pools"]["default_limit"] == 1


def test_variables_of_the_instance_are_given_by_compose(services: dict[str, Any]) -> None:
    asked = set(re.findall(r"\{env: (\w+)\}", (DEPLOY / "dagster.yaml").read_text()))
    assert asked
    for name in ("code", "webserver", "daemon"):
        assert asked <= set(services[name]["environment"])


def test_requirements_are_pinned_by_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0].lower() for line in lines if "==" in line}
    for name in ("requirements.txt", "requirements-train.txt"):
        wanted = [
            line for line in (DEPLOY / name).read_text().splitlines() if not line.startswith("#")
        ]
        assert wanted
        assert {line.lower() for line in wanted} <= pinned
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {re.split(r"[<>=\[ ]", line)[0].lower() for line in project["dependencies"]}
    assert core <= pinned


def test_trainer_image_has_what_the_trainer_imports() -> None:
    given = {"torch", "numpy", "pydantic", "yaml", "mlflow", "dagster_pipes", "safetensors"}
    imported: set[str] = set()
    for path in (ROOT / "training").glob("*.py"):
        found = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), flags=re.MULTILINE)
        imported |= set(found) - set(sys.stdlib_module_names) - {"training"}
    assert imported - given <= {"transformers", "tokenizers"}  # export and evaluation only
    assert "torch" in imported


def test_scripts_are_valid_shell() -> None:
    for path in sorted(DEPLOY.glob("*.sh")):
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
