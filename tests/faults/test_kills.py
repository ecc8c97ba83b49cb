"""The miniature, killed at every named point and run again, ends as if nothing had happened.

Each test takes a root that is finished up to some step, starts the miniature from there as a
process that dies by SIGKILL at a point, looks at what is visible then, runs everything undisturbed,
and compares with a root that never met a kill: hashes of all manifests and outputs, names and sizes
of all files.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from pipeline.config import merge, validate
from pipeline.faults import POINTS
from pipeline.store import Store
from resources.mill import open_mill
from resources.storage import open_store
from tests import miniature_input
from tests.faults.harness import run_undisturbed, run_until_killed
from tests.miniature import STEPS, Hashes, config, hashes, perform, run, verify
from tests.miniature_input import FIRST, SECOND, SOURCE
from tests.s3_server import moto_server

pytestmark = pytest.mark.faults

EXTRACT, DEDUP = f"extracted_text/{FIRST}", f"deduped_corpus/{SECOND}"
SHARDS, TEXTS, LIST = f"token_shards/{FIRST}", f"source_texts/{SOURCE}", f"snapshots/{FIRST}"
Kill = tuple[str, str]
"""(step from which the process starts, point at which it dies)"""

IN_A_FOLDER: list[Kill] = [
    ("quality_labels", "store.write.start"),
    ("quality_labels", "stage.part.before_file"),
    ("quality_labels", "store.swap.before"),
    # a model, published as the file it is; its plain name is written after the commit
    ("quality_classifier", "stage.file.before_upload"),
    ("quality_classifier", "stage.file.after_upload"),
    ("quality_classifier", "store.upload.before_rename"),
    ("quality_classifier", "store.upload.after_rename"),
    ("quality_classifier", "stage.commit.before_pointer"),
    ("quality_classifier", "stage.commit.after_pointer"),
    # the first swap is the registration
    (LIST, "store.swap.before"),
    (LIST, "store.swap.after"),
    (LIST, "store.swap.before_rename:2"),
    (LIST, "stage.commit.before_manifest"),
    (EXTRACT, "stage.part.after_file:2"),
    (EXTRACT, "stage.part.before_receipt:2"),
    (EXTRACT, "stage.part.after_receipt:2"),
    # two signatures, two parts of three tables each, pairs and clusters
    (DEDUP, "stage.part.before_file:2"),
    (DEDUP, "stage.part.after_receipt:2"),
    (DEDUP, "stage.part.after_file:5"),
    (DEDUP, "stage.part.before_receipt:4"),
    (DEDUP, "stage.part.after_receipt:5"),
    (DEDUP, "store.swap.before_rename"),
    # three datasets, one after the other
    (TEXTS, "stage.commit.after_pointer"),
    (TEXTS, "store.write.after_rename:3"),
    (TEXTS, "stage.commit.before_manifest:2"),
    (TEXTS, "stage.commit.before_pointer:3"),
    ("tokenizer", "stage.file.after_upload"),
    ("tokenizer", "stage.commit.after_pointer"),
    # two shards of four files
    (SHARDS, "store.upload.before_rename:3"),
    (SHARDS, "stage.file.after_upload:6"),
    (SHARDS, "stage.part.before_receipt:2"),
    ("mixture", "store.write.before_rename:2"),
    ("mixture", "store.swap.after"),
]
IN_A_WORKER: list[Kill] = [
    (EXTRACT, "stage.part.after_file"),
    (EXTRACT, "store.write.before_rename:2"),
    (DEDUP, "stage.part.before_receipt"),
    (DEDUP, "stage.part.after_receipt"),
    (SHARDS, "stage.file.after_upload:2"),
]
ON_S3: list[Kill] = [
    ("quality_classifier", "s3.upload.start"),
    ("quality_classifier", "s3.upload.part:2"),
    ("quality_classifier", "s3.upload.before_complete"),
    ("quality_classifier", "s3.upload.after_complete"),
    ("quality_classifier", "stage.commit.after_pointer"),
    (LIST, "s3.swap.before"),
    (LIST, "s3.swap.after"),
    (LIST, "s3.swap.before:2"),
    (DEDUP, "s3.put.before:3"),
    (DEDUP, "s3.put.after:7"),
    (DEDUP, "stage.commit.before_pointer"),
    (SHARDS, "s3.put.after:4"),
    ("mixture", "s3.swap.after"),
]


def name(kill: Kill) -> str:
    return f"{kill[0].partition('/')[0]}-{kill[1]}"


@dataclass(frozen=True)
class Undisturbed:
    """A finished root, copies of it as it was before some steps, and what it holds."""

    given: Path
    states: Path
    expected: Hashes
    files: dict[str, int]

    def state(self, step: str) -> Path:
        return self.states / step.replace("/", "@")

    def command(self, root: str, step: str, workers: int = 1) -> list[str]:
        options = ["--input", str(self.given), "--since", step, "--workers", str(workers)]
        return [sys.executable, "-m", "tests.miniature", root, *options]

    def check(self, root: str) -> None:
        """Look at a killed root, finish it and compare."""
        visible = hashes(root)
        assert visible == {key: self.expected[key] for key in visible}
        verify(root)
        assert run(root, self.given) == self.expected
        assert sizes(open_store(root)) == self.files
        verify(root)


def sizes(store: Store) -> dict[str, int]:
    """Name -> bytes of every object but manifests, whose `run` block is volatile; of receipts,
    which say what a part cost, names only."""
    return {
        info.key: 0 if "/receipts/" in info.key else info.size
        for info in store.list()
        if "/manifests/" not in info.key
    }


def link(source: Path, target: Path) -> None:
    """A copy that shares the files: stores replace files, they never write into one."""
    ignore = shutil.ignore_patterns(".tmp-*", ".lock-*")
    shutil.copytree(source, target, copy_function=os.link, ignore=ignore)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    given = miniature_input.build(tmp_path_factory.mktemp("input"))
    states = tmp_path_factory.mktemp("states")
    root = tmp_path_factory.mktemp("undisturbed") / "root"
    root.mkdir()
    starts = {step for step, _ in IN_A_FOLDER + IN_A_WORKER + ON_S3}
    mill = open_mill(config(str(root), given))
    for step in STEPS:
        if step in starts:
            link(root, states / step.replace("/", "@"))
        perform(mill, [step])
    store = open_store(str(root))
    return Undisturbed(given, states, hashes(store), sizes(store))


@pytest.mark.parametrize("kill", IN_A_FOLDER, ids=name)
def test_in_a_folder(kill: Kill, undisturbed: Undisturbed, tmp_path: Path) -> None:
    step, point = kill
    root = tmp_path / "root"
    link(undisturbed.state(step), root)
    run_until_killed(undisturbed.command(str(root), step), point)
    undisturbed.check(str(root))


@pytest.mark.parametrize("kill", IN_A_WORKER, ids=name)
def test_in_a_worker(kill: Kill, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """One of two workers dies; the process says so and ends."""
    step, point = kill
    root = tmp_path / "root"
    link(undisturbed.state(step), root)
    command = undisturbed.command(str(root), step, workers=2)
    run_until_killed(command, point, by_worker=True)
    undisturbed.check(str(root))


@pytest.mark.parametrize("wanted", [1, 3, 5])
def test_from_outside(wanted: int, undisturbed: Undisturbed, tmp_path: Path) -> None:
    """SIGKILL from outside once so many datasets are there: its workers end by themselves."""
    root = tmp_path / "root"
    link(undisturbed.state(LIST), root)
    before = len(hashes(str(root)))
    command = undisturbed.command(str(root), LIST, workers=2)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while len(list(root.rglob("current"))) < before + wanted:
            assert process.poll() is None
            time.sleep(0.05)
        workers = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    alive = psutil.wait_procs(workers, timeout=30)[1]
    assert [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE] == []
    undisturbed.check(str(root))


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    with moto_server() as server, server.environment():
        yield f"s3://{server.bucket()}"


@pytest.mark.parametrize("kill", ON_S3, ids=name)
def test_on_s3(kill: Kill, undisturbed: Undisturbed, bucket: str) -> None:
    step, point = kill
    url = f"{bucket}/{secrets.token_hex(4)}"
    store = open_store(url)
    state = undisturbed.state(step)
    for info in open_store(str(state)).list():
        store.write(info.key, (state / info.key).read_bytes())
    run_until_killed(undisturbed.command(url, step), point)
    undisturbed.check(url)


def test_every_point_kills_the_miniature() -> None:
    points = {point.partition(":")[0] for _, point in IN_A_FOLDER + ON_S3}
    assert points == set(POINTS)


ONE_AFTER_THE_OTHER = (
    "store.write.before_rename:2",
    "store.upload.before_rename",
    "stage.commit.before_pointer:2",
    "store.write.before_rename:3",
    "stage.part.after_file:12",
    "stage.commit.before_pointer:6",
    "store.swap.before_rename:5",
    "stage.file.after_upload:7",
)


def test_prune_after_many_kills(undisturbed: Undisturbed, tmp_path: Path) -> None:
    root = tmp_path / "root"
    for point in ONE_AFTER_THE_OTHER:
        run_until_killed(undisturbed.command(str(root), STEPS[0]), point)
        verify(str(root))
    undisturbed.check(str(root))
    _filter_otherwise(root, undisturbed.given)
    assert run(str(root), undisturbed.given) == undisturbed.expected
    store = open_store(str(root))
    assert len(sizes(store)) > len(undisturbed.files)
    assert len(list(store.leftovers())) >= 4

    _age(root)
    command = [sys.executable, "-m", "assets.cli", "prune", "--root", str(root), "--json"]
    planned = json.loads(run_undisturbed(command).stdout)
    assert planned["objects"] > 10
    done = json.loads(run_undisturbed([*command, "--apply"]).stdout)
    assert (done["objects"], done["applied"]) == (planned["objects"], True)

    assert list(store.leftovers()) == []
    assert json.loads(run_undisturbed(command).stdout)["objects"] == 0
    assert hashes(store) == undisturbed.expected
    verify(store)
    undisturbed.check(str(root))


def _filter_otherwise(root: Path, given: Path) -> None:
    """Another configuration for a moment: files that nothing references afterwards."""
    wanted = config(str(root), given).model_dump(mode="json", exclude_none=True)
    changed = validate(merge(wanted, {"filter": {"gopher": {"min_words": 300}}}))
    perform(open_mill(changed), [f"filtered_text/{FIRST}"])


def _age(root: Path) -> None:
    """Two hours older than the grace period asks for."""
    old = time.time() - 3 * 3600
    for path in root.rglob("*"):
        os.utime(path, (old, old))
