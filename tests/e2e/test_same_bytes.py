"""The same bytes at any number of workers, in any order, on any store, incrementally or at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pipeline.dataset import Dataset
from pipeline.errors import ContractError
from pipeline.stages.corpus import dedup_input
from pipeline.stages.crawl import extract_files
from pipeline.store import Store
from resources.mill import open_mill
from resources.storage import open_store
from resources.storage_local import LocalStore
from tests import miniature, miniature_input
from tests.miniature import STEPS, Hashes, config, hashes, perform, run, verify
from tests.miniature_input import FIRST, SECOND
from tests.s3_server import moto_server, seaweed_server

BOTH_FIRST = (
    *(f"{stage}/{name}" for stage in ("snapshots", "extracted_text") for name in (FIRST, SECOND)),
    "quality_labels",
    "quality_classifier",
    *(f"filtered_text/{name}" for name in (SECOND, FIRST)),
    *(f"scored_text/{name}" for name in (SECOND, FIRST)),
    *(f"deduped_corpus/{name}" for name in (FIRST, SECOND)),
    f"source_texts/{miniature_input.SOURCE}",
    f"scrubbed_corpus/{FIRST}",
    "tokenizer_sample",
    "tokenizer",
    f"scrubbed_corpus/{SECOND}",
    *(f"token_shards/{name}" for name in (SECOND, miniature_input.SOURCE, FIRST)),
    "mixture",
)
"""The same partitions stage by stage, both snapshots at once."""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return miniature_input.build(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, given: Path) -> Path:
    """A finished miniature, made by one worker. Not to be changed."""
    folder = tmp_path_factory.mktemp("one") / "root"
    run(str(folder), given)
    return folder


@pytest.fixture(scope="module")
def expected(root: Path) -> Hashes:
    return hashes(str(root))


def files(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below a root with its size and time of writing."""
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(p.relative_to(root)): (p.stat().st_size, p.stat().st_mtime_ns) for p in found}


def test_the_miniature_has_what_a_crawl_has(root: Path, expected: Hashes) -> None:
    assert {name for name in expected if "/steps/" not in name} == set(STEPS)
    reasons = set()
    for dataset in miniature.visible(str(root)).values():
        reasons |= set(dataset.manifest.content.counts.reasons)
    assert {
        "exact.text",
        "near.minhash",
        "damage.gzip",
        "record.revisit",
        "input.bad_line",
    } < reasons
    assert verify(str(root)) > 80


def test_the_input_is_a_function(given: Path, tmp_path: Path) -> None:
    again = miniature_input.build(tmp_path / "again")
    for path in given.rglob("*.*"):
        assert (again / path.relative_to(given)).read_bytes() == path.read_bytes(), path


def test_twice_changes_nothing(root: Path, given: Path, expected: Hashes) -> None:
    before = files(root)
    assert run(str(root), given) == expected
    assert files(root) == before


@pytest.mark.e2e
@pytest.mark.parametrize("workers", [2, 4])
def test_workers(workers: int, given: Path, expected: Hashes, tmp_path: Path) -> None:
    assert run(str(tmp_path / "root"), given, workers=workers) == expected


def test_full_rebuild_is_the_incremental_result(
    given: Path, expected: Hashes, tmp_path: Path
) -> None:
    assert sorted(BOTH_FIRST) == sorted(STEPS)
    assert run(str(tmp_path / "root"), given, steps=BOTH_FIRST) == expected


def test_a_second_snapshot_changes_nothing_of_the_first(
    given: Path, expected: Hashes, tmp_path: Path
) -> None:
    alone = STEPS[: STEPS.index(f"snapshots/{SECOND}")]
    made = run(str(tmp_path / "root"), given, steps=alone)
    assert made == {name: expected[name] for name in made}
    assert len(made) == len(alone) + 2


def test_order_of_arguments(given: Path, root: Path, expected: Hashes, tmp_path: Path) -> None:
    """Files given by a person in any order; a folder whose files were written in any order."""
    paths = sorted((given / "snapshots" / FIRST).iterdir())
    mill = open_mill(config(str(tmp_path / "root"), given))
    made = [
        extract_files(mill, shuffled, open_store(str(tmp_path / f"out{i}")), FIRST).hash
        for i, shuffled in enumerate((paths, paths[::-1]))
    ]
    assert made[0] == made[1]
    extracted = Dataset.open(open_store(str(root / "extracted_text" / FIRST))).manifest
    own = Dataset.open(open_store(str(tmp_path / "out0"))).manifest
    assert own.content.output == extracted.content.output

    moved = tmp_path / "moved"
    names = [path.relative_to(given) for path in given.rglob("*.*")]
    random.Random(7).shuffle(names)
    for name in names:
        (moved / name).parent.mkdir(parents=True, exist_ok=True)
        (moved / name).write_bytes((given / name).read_bytes())
    steps = [f"snapshots/{FIRST}", f"extracted_text/{FIRST}"]
    there = run(str(tmp_path / "root"), moved, steps=steps)
    assert there == {
        name: expected for name, expected in hashes(str(root)).items() if name in there
    }


def test_input_that_moved_is_read_where_it_is_now(
    given: Path, root: Path, expected: Hashes, tmp_path: Path
) -> None:
    """Where files lie is in no hash, and is up to date all the same."""
    moved, copy = tmp_path / "moved", tmp_path / "root"
    shutil.copytree(given, moved)
    shutil.copytree(root, copy)
    shutil.rmtree(copy / "extracted_text")
    steps = [f"snapshots/{FIRST}", f"extracted_text/{FIRST}"]
    made = run(str(copy), moved, steps=steps)
    assert made.items() <= expected.items()
    for step in steps:
        block = Dataset.open(open_store(str(copy / step))).manifest.run
        assert str(given) not in str(block)


@pytest.mark.parametrize("step", [f"snapshots/{FIRST}", f"token_shards/{SECOND}"])
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_a_lost_manifest_heals_by_its_hint(
    step: str, damage: str, given: Path, root: Path, expected: Hashes, tmp_path: Path
) -> None:
    copy = tmp_path / "root"
    shutil.copytree(root, copy)
    manifest = copy / step / "manifests" / f"{expected[step][0]}.json"
    if damage == "cut":
        manifest.write_bytes(manifest.read_bytes()[:-100])
    else:
        manifest.unlink()
    with pytest.raises(ContractError) as refused:
        run(str(copy), given)
    assert refused.value.hint is not None
    assert "current" in refused.value.hint
    (copy / step / "current").unlink()
    assert run(str(copy), given) == expected


@pytest.mark.e2e
def test_another_time_zone_locale_and_folder(given: Path, expected: Hashes, tmp_path: Path) -> None:
    elsewhere = {
        "TZ": "Pacific/Auckland",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "POLARS_MAX_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.miniature", "root", "--input", str(given)]
    subprocess.run(command, cwd=tmp_path, env=os.environ | elsewhere, check=True)
    assert hashes(str(tmp_path / "root")) == expected


@pytest.mark.e2e
def test_two_runs_at_once(given: Path, expected: Hashes, tmp_path: Path) -> None:
    """On one root: both end well, and the result is whole."""
    root = str(tmp_path / "root")
    command = [sys.executable, "-m", "tests.miniature", root, "--input", str(given)]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, said = process.communicate()
        assert process.returncode == 0, said
    assert hashes(root) == expected
    verify(root)


@dataclass(frozen=True)
class Recording(LocalStore):
    """A folder that writes down which of its files are read."""

    seen: list[str] = field(default_factory=list, compare=False)

    def child(self, prefix: str) -> Recording:
        return Recording(self.root / prefix, self.seen)

    def read(self, key: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.seen.append(str(self.root / key))
        return super().read(key, offset=offset, length=length)

    @contextmanager
    def local(self, key: str) -> Iterator[Path]:
        self.seen.append(str(self.root / key))
        with super().local(key) as path:
            yield path


def test_what_the_second_snapshot_reads_of_the_first(
    given: Path, expected: Hashes, tmp_path: Path
) -> None:
    folder = tmp_path / "root"
    start, end = STEPS.index(f"snapshots/{SECOND}"), STEPS.index("mixture")
    run(str(folder), given, steps=STEPS[:start])
    mill = open_mill(config(str(folder), given))
    store = Recording(folder)
    perform(replace(mill, root=store), STEPS[start:end])
    assert hashes(str(folder)) == {k: v for k, v in expected.items() if k != "mixture"}

    prefix = f"{folder}/"
    of_first = {path.removeprefix(prefix) for path in store.seen if f"/{FIRST}/" in path}
    deduped = Dataset.open(open_store(str(folder / "deduped_corpus" / FIRST)))
    own = f"deduped_corpus/{FIRST}/"
    signatures = {own + entry.path for entry in deduped.entries("signatures")}
    texts = [own + entry.path for entry in deduped.entries("parts")]
    pinned = {path for path in of_first if path.endswith("/current") or "/manifests/" in path}
    # candidates are in the first file only: pages of alpha.example
    assert of_first - pinned == {*signatures, texts[0]}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with moto_server() as server, server.environment():
        yield f"s3://{server.bucket()}/mill"


@pytest.fixture(scope="module")
def seaweed() -> Iterator[str]:
    with seaweed_server() as server, server.environment():
        yield f"s3://{server.bucket()}/mill"


@pytest.mark.e2e
@pytest.mark.parametrize("server", ["moto", "seaweed"])
def test_s3(
    server: str, request: pytest.FixtureRequest, given: Path, root: Path, expected: Hashes
) -> None:
    """Same hashes as in a folder, and the same objects, byte for byte."""
    url = request.getfixturevalue(server)
    workers = 2 if server == "moto" else 1  # a store must also work from worker processes
    assert run(url, given, workers=workers) == expected
    assert verify(url) == verify(str(root))
    assert contents(open_store(url)) == contents(open_store(str(root)))


def contents(store: Store) -> dict[str, object]:
    """All objects but manifests, whose `run` block is volatile; receipts without their cost."""
    found: dict[str, object] = {}
    for info in store.list():
        if "/receipts/" in info.key:
            found[info.key] = json.loads(store.read(info.key)) | {"cost": None}
        elif "/manifests/" not in info.key:
            found[info.key] = store.read(info.key)
    return found


def test_against_two_earlier_datasets_in_order(given: Path, root: Path, tmp_path: Path) -> None:
    """`--against` is an order, and the same order is the same bytes."""
    mill = open_mill(config(str(tmp_path / "root"), given))
    scored = Dataset.open(open_store(str(root / "scored_text" / SECOND)))
    earlier = Dataset.open(open_store(str(root / "deduped_corpus" / FIRST)))
    from pipeline.inputs import dataset_input

    made = [
        dedup_input(mill, dataset_input(scored), [earlier], mill.root.child(name), SECOND)
        for name in ("x", "y")
    ]
    graph = Dataset.open(open_store(str(root / "deduped_corpus" / SECOND))).manifest
    assert made[0].hash == made[1].hash
    assert made[0].content.output == graph.content.output
