"""Plan: what would be rebuilt, and what only stands at another manifest than is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import merge, validate
from pipeline.mill import Mill, registered_snapshots
from pipeline.plan import UP_TO_DATE, Planned, changed_keys, plan_partition
from pipeline.stages.corpus import dedup_corpus
from pipeline.stages.crawl import list_files
from pipeline.stages.curation import filter_text
from pipeline.stages.order import SNAPSHOT_STAGES
from resources.mill import open_mill
from resources.storage import open_store
from tests import miniature, miniature_input
from tests.miniature_input import FIRST, SECOND

STAGES = SNAPSHOT_STAGES[:5]


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mill]:
    given = miniature_input.build(tmp_path_factory.mktemp("input"))
    opened = open_mill(miniature.config(str(tmp_path_factory.mktemp("root")), given))
    names = ("quality_labels", "quality_classifier")
    stages = [f"{stage}/{name}" for name in (FIRST, SECOND) for stage, _ in STAGES]
    miniature.perform(opened, [*names, *stages])
    yield opened
    opened.engine.close()


def changed(mill: Mill, **sections: object) -> Mill:
    return replace(mill, config=validate(merge(mill.config.model_dump(), sections)))


def plan(mill: Mill, snapshot: str = FIRST) -> dict[str, Planned]:
    return {row.stage: row for row in plan_partition(mill, snapshot, STAGES)}


def test_what_is_there_is_up_to_date(mill: Mill) -> None:
    for snapshot in (FIRST, SECOND):
        rows = plan(mill, snapshot).values()
        assert {(row.why, row.missing, row.certain) for row in rows} == {(UP_TO_DATE, 0, True)}


def test_a_threshold_names_the_stage_and_what_may_follow(mill: Mill) -> None:
    rows = plan(changed(mill, filter={"gopher": {"min_words": 70}}))
    filtered, scored = rows["filtered_text"], rows["scored_text"]
    assert rows["extracted_text"].missing == 0
    assert (filtered.missing, filtered.certain) == (filtered.parts, True)
    assert filtered.why == "configuration: gopher.min_words"
    assert filtered.cpu_seconds is not None
    assert filtered.cpu_seconds > 0
    assert filtered.rate_of == FIRST
    assert (scored.missing, scored.certain) == (scored.parts, False)


def test_parts_that_are_there_under_another_manifest(mill: Mill) -> None:
    try:
        filter_text(changed(mill, filter={"gopher": {"min_words": 70}}), FIRST)
        rows = plan(mill)
    finally:
        filter_text(mill, FIRST)
    filtered = rows["filtered_text"]
    assert (filtered.missing, filtered.certain) == (0, True)
    assert filtered.why.startswith("configuration: gopher.min_words; materialise it")
    assert not rows["scored_text"].certain


def test_files_that_are_listed_no_more(mill: Mill) -> None:
    try:
        list_files(changed(mill, snapshots={"files": 1}), FIRST)
        assert plan(mill)["snapshots"].why.startswith("configuration: files; materialise it")
    finally:
        list_files(mill, FIRST)
    folder = Path(str(mill.config.snapshots.location)) / FIRST
    extra = folder / "extra.warc.gz"
    extra.write_bytes(min(folder.glob("*.warc.gz")).read_bytes())
    try:
        list_files(mill, FIRST)
    finally:
        extra.unlink()
    try:
        assert plan(mill)["snapshots"].why.startswith("its input changed; materialise it")
    finally:
        list_files(mill, FIRST)


def test_an_earlier_snapshot_that_moved(mill: Mill) -> None:
    try:
        loose = {"threshold": 0.1, "ngram": 1, "bands": 56, "rows": 2}
        dedup_corpus(changed(mill, dedup=loose), FIRST)
        moved = plan(mill, SECOND)["deduped_corpus"].why
    finally:
        dedup_corpus(mill, FIRST)
    assert moved.startswith(f"its input changed: deduped_corpus/{FIRST}")


def test_a_snapshot_that_is_not_there_yet(mill: Mill) -> None:
    rows = plan(changed(mill, snapshots={"location": "/nowhere"}), "NEW")
    assert rows["snapshots"].why.startswith("cannot run: /nowhere/NEW is not a folder")
    assert rows["extracted_text"].why == "cannot run: snapshots/NEW is not there yet"


def test_planning_registers_nothing(mill: Mill, tmp_path: Path) -> None:
    elsewhere = replace(mill, root=open_store(str(tmp_path)))
    assert plan(elsewhere)["snapshots"].missing == 1
    assert registered_snapshots(elsewhere.root) == []


def test_changed_keys() -> None:
    assert changed_keys({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": 4}) == ["a.c", "d"]
    assert changed_keys({"a": 1}, {"a": 1}) == []
