"""Engines: order, names of failures, dead workers, bounded results, no worker left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.config.engine import EngineConfig, cores
from pipeline.engine import task_name
from pipeline.errors import ContractError, GristmillError, StorageError
from resources.engine import LocalEngine, limits, open_engine


@dataclass(frozen=True)
class Part:
    name: str
    number: int
    folder: Path | None = None


def square(part: Part) -> int:
    return part.number**2


def later_is_faster(part: Part) -> int:
    time.sleep(0.2 / (part.number + 1))
    return part.number


def fail_on_odd(part: Part) -> int:
    time.sleep(0.2 / (part.number + 1))  # the later one fails first
    if part.number % 2:
        message = f"row {part.number} lacks a text"
        raise ContractError(message, hint="write it again")
    return part.number


def bug(part: Part) -> int:
    return 1 // (part.number - 2)


def killed(part: Part) -> int:
    if part.number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return part.number


def name_conflict(part: Part) -> int:
    message = f"{part.name}: refused"
    raise StorageError(message)


class Awkward(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first + second)


def awkward(part: Part) -> int:
    raise Awkward("a", "b")


def unpicklable(part: Part) -> object:
    return lambda: part


def environment(part: Part) -> tuple[int, str, str | None]:
    return os.getpid(), os.environ["POLARS_MAX_THREADS"], os.environ.get("GRISTMILL_TEST")


def touch_and_wait(part: Part) -> None:
    assert part.folder is not None
    (part.folder / str(os.getpid())).touch()
    time.sleep(600)


def touch(part: Part) -> str:
    assert part.folder is not None
    (part.folder / part.name).touch()
    return part.name


PARTS = [Part(f"part-{n:05}", n) for n in range(12)]


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalEngine]:
    with LocalEngine(2) as engine:
        yield engine


@pytest.fixture(params=[1, 2])
def engine(request: pytest.FixtureRequest, pool: LocalEngine) -> LocalEngine:
    return LocalEngine(1) if request.param == 1 else pool


def test_results_come_in_order_of_tasks(engine: LocalEngine) -> None:
    assert list(engine.map(square, PARTS)) == [n * n for n in range(12)]
    assert list(engine.map(later_is_faster, PARTS[:5])) == [0, 1, 2, 3, 4]
    assert list(engine.map(square, [])) == []


def test_progress_counts_every_task(engine: LocalEngine) -> None:
    seen: list[tuple[int, int]] = []
    list(engine.map(square, PARTS, progress=lambda done, total: seen.append((done, total))))
    assert seen == [(n, 12) for n in range(1, 13)]


def test_first_failure_in_order_names_its_task(engine: LocalEngine) -> None:
    results = engine.map(fail_on_odd, PARTS)
    assert next(results) == 0
    with pytest.raises(
        ContractError, match=r"^part-00001: row 1 lacks a text\nhint: write it again"
    ):
        next(results)
    assert list(engine.map(square, PARTS[:3])) == [0, 1, 4]  # still usable


def test_name_is_not_said_twice(engine: LocalEngine) -> None:
    with pytest.raises(StorageError, match=r"^part-00000: refused$"):
        list(engine.map(name_conflict, PARTS[:2]))


def test_bug_keeps_its_type_and_tells_task_and_place(engine: LocalEngine) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(engine.map(bug, PARTS))
    assert caught.value.__notes__[-1] == "task: part-00002"
    if engine.workers > 1:
        assert "1 // (part.number - 2)" in caught.value.__notes__[0]


def test_error_that_pickle_cannot_rebuild(pool: LocalEngine) -> None:
    with pytest.raises(GristmillError, match="part-00000: Awkward: ab"):
        list(pool.map(awkward, PARTS))


def test_result_that_pickle_refuses(pool: LocalEngine) -> None:
    with pytest.raises((AttributeError, TypeError), match=r"[Pp]ickle"):
        list(pool.map(unpicklable, PARTS))


def test_killed_worker_is_one_error_that_names_the_task(pool: LocalEngine) -> None:
    results = pool.map(killed, PARTS)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(
        GristmillError, match=r"part-00002: its worker process died \(SIGKILL\)"
    ) as e:
        next(results)
    assert "out of memory" in (e.value.hint or "")
    assert list(pool.map(square, PARTS)) == [n * n for n in range(12)]


def test_worker_that_died_idle_is_replaced(pool: LocalEngine) -> None:
    pids = {pid for pid, _, _ in pool.map(environment, PARTS)}
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.1)
    assert list(pool.map(square, PARTS)) == [n * n for n in range(12)]


def test_workers_share_the_cores_and_see_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRISTMILL_TEST", "seen")
    with LocalEngine(2) as engine:
        answers = list(engine.map(environment, PARTS))
        assert engine.peak_bytes() > 20 << 20
    assert os.getpid() not in {pid for pid, _, _ in answers}
    assert {(threads, seen) for _, threads, seen in answers} == {
        (str(max(1, cores() // 2)), "seen")
    }
    assert set(limits(1, None).values()) == {str(cores())}
    assert set(limits(4, 3).values()) == {"3"}


def test_work_ahead_of_the_reader_is_bounded(pool: LocalEngine, tmp_path: Path) -> None:
    parts = [Part(f"{n:02}", n, tmp_path) for n in range(40)]
    results = pool.map(touch, parts)
    next(results)
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) <= 2 * pool.workers
    assert len(list(results)) == 39


def test_reader_that_stops_early_leaves_no_task_running(tmp_path: Path) -> None:
    with LocalEngine(2) as engine:
        results = engine.map(touch_and_wait, [Part("a", 0, tmp_path), Part("b", 1, tmp_path)])
        started = time.monotonic()
        with pytest.raises(RuntimeError, match="enough"):
            _interrupt(results, tmp_path)
        results.close()  # type: ignore[attr-defined]
        assert time.monotonic() - started < 20
    assert _alive(tmp_path) == []


def _interrupt(results: Iterator[None], folder: Path) -> None:
    """An exception in the reading process while it waits for the workers."""

    def alarm(number: int, frame: object) -> None:
        message = "enough"
        raise RuntimeError(message)

    before = signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        next(results)
    finally:
        signal.signal(signal.SIGALRM, before)


PARENT = """
import sys
from pathlib import Path
from resources.engine import LocalEngine
from tests.resources.test_engine import Part, touch_and_wait
folder = Path(sys.argv[1])
list(LocalEngine(2).map(touch_and_wait, [Part(name, 0, folder) for name in "abc"]))
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)])
    deadline = time.monotonic() + 30
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(_alive(tmp_path)) == 2
    process.kill()
    process.wait()
    while _alive(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _alive(tmp_path) == []


def _alive(folder: Path) -> list[str]:
    """The processes that left a file with their id in `folder` and still run."""
    states = {}
    for path in folder.iterdir():
        status = Path(f"/proc/{path.name}/stat")
        states[path.name] = status.read_text().split(")")[1].split()[0] if status.exists() else "Z"
    return [pid for pid, state in states.items() if state != "Z"]


def test_an_engine_that_nobody_closed_ends_with_its_last_reference() -> None:
    engine = LocalEngine(2)
    pids = {pid for pid, _, _ in engine.map(environment, PARTS)}
    del engine
    gc.collect()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_configuration_chooses_the_engine() -> None:
    engine = open_engine(EngineConfig(workers=3))
    assert isinstance(engine, LocalEngine)
    assert engine.workers == 3
    assert EngineConfig().n_workers == cores()


def test_names_of_tasks() -> None:
    assert task_name(PARTS[3]) == "part-00003"
    assert task_name(Path("a/b.warc.gz")) == "a/b.warc.gz"
    assert task_name("part") == "part"
    assert task_name((1, 2)) == "(1, 2)"
