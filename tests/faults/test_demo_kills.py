"""The demo's whole process tree, killed three times with SIGKILL while it works, then finished.

One store takes all three kills, one after the other: while the first snapshot is extracted, while
the second is deduplicated or tokenised, and in the middle of training. What comes out must be what
an undisturbed demo makes: every manifest, every loss, the checkpoint, the exported weights.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import psutil
import pytest

from assets.demo.run import prepare
from tests.e2e.demo import SECONDS, Demo, command, environment, identity, run, undisturbed

pytestmark = pytest.mark.faults

FIRST, SECOND = "CRAWL-DEMO-01", "CRAWL-DEMO-02"
POLL_SECONDS = 0.02
GONE_SECONDS = 30
TRAINED_LINES = 35
"""Steps done when training is killed: behind its first checkpoint, which is of step 30."""


def extracting(root: Path) -> bool:
    """Some WARC file of the first snapshot is done, and the snapshot is not."""
    folder = root / "extracted_text" / FIRST
    return any(folder.glob("receipts/*.json")) and not (folder / "current").exists()


def second_under_way(root: Path) -> bool:
    """The second snapshot is being deduplicated, or behind it, and has no token shards yet."""
    begun = any((root / "deduped_corpus" / SECOND).glob("**/*.json"))
    return begun and not (root / "token_shards" / SECOND / "current").exists()


def training(root: Path) -> bool:
    """Training has written steps behind its first checkpoint, and no result."""
    folder = root / "checkpoints/demo"
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / "metrics.jsonl").read_bytes().count(b"\n")
        return lines >= TRAINED_LINES and not (folder / "result.json").exists()
    return False


def kill_when(root: Path, condition: Callable[[Path], bool]) -> None:
    """Start the demo, kill all its processes when `condition` holds, and see them gone."""
    log = root.parent / f"{condition.__name__}.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command(root, "--keep"),
            cwd=root.parent,
            env=environment(),
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        deadline = time.monotonic() + SECONDS
        while not condition(root):
            assert process.poll() is None, f"ended too early: {log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"never came to be {condition.__name__}"
            time.sleep(POLL_SECONDS)
        top = psutil.Process(process.pid)
        tree = [top, *top.children(recursive=True)]
        for one in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        process.wait(GONE_SECONDS)
    _, alive = psutil.wait_procs(tree, GONE_SECONDS)
    assert not alive
    assert left(root) == []
    assert "Traceback" not in log.read_text()


def left(root: Path) -> list[str]:
    """Command lines of processes that still work on a store."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(root) in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(line)
    return found


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return undisturbed(tmp_path_factory)


@pytest.fixture(scope="module")
def killed(baseline: Demo, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """A demo that was killed three times, then allowed to end."""
    root = tmp_path_factory.mktemp("killed") / "store"
    prepare(root, keep=True)
    # the same sample, whatever was installed meanwhile
    shutil.copytree(baseline.root / "sample", root / "sample")
    for condition in (extracting, second_under_way, training):
        kill_when(root, condition)
    return run(root, "--keep")


def test_three_kills_change_nothing(baseline: Demo, killed: Demo) -> None:
    assert identity(killed.root) == identity(baseline.root)


def test_training_went_on_from_its_checkpoint(killed: Demo) -> None:
    assert "resumed from step-30" in killed.told


def test_no_process_is_left(killed: Demo) -> None:
    assert left(killed.root) == []


def test_killed_runs_are_shown_as_failed(killed: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(killed.root / "dagster"))
    with dg.DagsterInstance.get() as instance:
        statuses = [run.status for run in instance.get_runs()]
    assert set(statuses) == {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE}
    assert statuses.count(dg.DagsterRunStatus.FAILURE) == 3
