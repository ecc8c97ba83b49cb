"""The engine on Ray gives what local processes give. Needs the extra `ray`; starts a cluster."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from pipeline.config.engine import EngineConfig
from pipeline.engine import Engine
from pipeline.errors import ConfigError, ContractError, GristmillError
from resources.engine import LocalEngine, open_engine
from tests.resources.test_engine import PARTS, Part, bug, environment, fail_on_odd, square

HAS_RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="the extra `ray` is not installed")
# Ray itself leaves sockets and processes to the collector
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning",
    "ignore::FutureWarning",
    "ignore::DeprecationWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with open_engine(EngineConfig(kind="ray", workers=2)) as engine:
        yield engine


def killed_always(part: Part) -> int:
    if part.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return part.number


@needs_ray
@pytest.mark.slow
def test_same_results_in_the_same_order(engine: Engine) -> None:
    seen: list[tuple[int, int]] = []
    results = list(engine.map(square, PARTS, progress=lambda *done: seen.append(done)))
    with LocalEngine(2) as local:
        assert results == list(local.map(square, PARTS))
    assert seen == [(n, 12) for n in range(1, 13)]
    assert engine.peak_bytes() > 20 << 20
    assert list(engine.map(square, [])) == []


@needs_ray
@pytest.mark.slow
def test_tasks_run_elsewhere_with_limited_threads(engine: Engine) -> None:
    answers = list(engine.map(environment, PARTS))
    assert os.getpid() not in {pid for pid, _, _ in answers}
    assert {threads for _, threads, _ in answers} == {
        str(max(1, len(os.sched_getaffinity(0)) // 2))
    }


@needs_ray
@pytest.mark.slow
def test_failures_name_the_task(engine: Engine) -> None:
    results = engine.map(fail_on_odd, PARTS)
    assert next(results) == 0
    with pytest.raises(ContractError, match="part-00001: row 1 lacks a text"):
        next(results)
    with pytest.raises(ZeroDivisionError) as caught:
        list(engine.map(bug, PARTS))
    assert caught.value.__notes__[-1] == "task: part-00002"


@needs_ray
@pytest.mark.slow
def test_a_worker_that_dies_every_time_names_the_task(engine: Engine) -> None:
    results = engine.map(killed_always, PARTS[:4])
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(GristmillError, match="part-00002: its Ray worker died"):
        next(results)
    assert list(engine.map(square, PARTS)) == [n * n for n in range(12)]


def test_without_ray_the_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # what an import finds where it is absent
    with pytest.raises(ConfigError, match="not installed") as caught:
        list(open_engine(EngineConfig(kind="ray")).map(square, PARTS))
    assert "gristmill[ray]" in (caught.value.hint or "")
