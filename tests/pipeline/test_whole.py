"""A whole snapshot from one sample file in ten: counts come out as they do when all of it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assets.cli import main
from assets.commands.planned import show_plan, show_whole
from assets.demo.warcs import Capture
from pipeline.config import merge, validate
from pipeline.mill import Mill
from pipeline.plan import Planned, rate_of
from pipeline.stages.corpus import dedup_corpus
from pipeline.stages.crawl import extract_text, list_files
from pipeline.stages.curation import filter_text, score_text, scrub_text
from pipeline.whole import Whole, plan_whole, ratio_estimate, student, try_whole
from resources.mill import open_mill
from tests import miniature, miniature_input
from tests.miniature_input import _captures, _file, _near, _page

SNAPSHOT = "WIDE-2026-40"
FILES = 10
STAGES = [
    "extracted_text", "filtered_text", "scored_text", "deduped_corpus", "scrubbed_corpus",
    "token_shards",
]  # fmt: skip


def crawl(folder: Path) -> None:
    """Ten files of ten pages: eight good ones, a thin one, one that the next file repeats."""
    place = folder / "snapshots" / SNAPSHOT
    place.mkdir(parents=True)
    times = _captures(0)
    for number in range(FILES):
        host = f"https://host-{number}.example"
        pages = [_page(f"{number} page {i}") for i in range(8)]
        pages += [miniature_input.html("thin", miniature_input.sentences(f"thin {number}", 2))]
        pages += [_near(f"{(number + 1) % FILES} page 0")]
        captures = [Capture(f"{host}/{i}", next(times), page) for i, page in enumerate(pages)]
        file = _file(SNAPSHOT, number, captures)
        (place / file.name).write_bytes(file.data)


def run(mill: Mill) -> None:
    for stage in (list_files, extract_text, filter_text, score_text, dedup_corpus, scrub_text):
        stage(mill, SNAPSHOT)


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mill]:
    given = miniature_input.build(tmp_path_factory.mktemp("input"))
    crawl(given)
    config = miniature.config(str(tmp_path_factory.mktemp("root")), given).model_dump()
    opened = open_mill(validate(merge(config, {"snapshots": {"files": 1}})))
    miniature.perform(opened, ["quality_labels", "quality_classifier"])
    run(opened)
    yield opened
    opened.engine.close()


def sliced(mill: Mill, files: int | None) -> Mill:
    values = merge(mill.config.model_dump(), {"snapshots": {"files": files}})
    return replace(mill, config=validate(values))


def planned(mill: Mill) -> Whole:
    found = plan_whole(mill, SNAPSHOT, STAGES)
    assert found is not None
    return found


@pytest.mark.slow
def test_the_plan_of_one_file_in_ten_is_what_ten_files_give(mill: Mill) -> None:
    one = planned(mill)
    assert (one.files, one.sample_files, one.missing) == (10, 1, ["token_shards"])
    assert all(stage.documents.low is None for stage in one.stages), "one file has no range"
    assert all(stage.cpu_hours and stage.cpu_hours.value > 0 for stage in one.stages)
    assert [stage.at_most for stage in one.stages] == [False, False, False, True, True]
    run(sliced(mill, 3))
    three = planned(mill)
    run(sliced(mill, None))
    assert plan_whole(mill, SNAPSHOT, STAGES) is None, "there is nothing left to estimate"
    assert "10 files" in show_whole(SNAPSHOT, one)[0]
    for guess, better in zip(one.stages, three.stages, strict=True):
        content = mill.open(guess.stage, SNAPSHOT).manifest.content
        parts = sum(entry.bytes for entry in content.parts)
        assert better.documents.low is not None
        assert better.documents.high is not None
        assert better.documents.low <= better.documents.value <= better.documents.high
        if guess.at_most:
            assert guess.documents.value >= content.counts.kept
            continue
        assert guess.documents.value == pytest.approx(content.counts.kept, rel=0.1)
        assert better.documents.value == pytest.approx(content.counts.kept, rel=0.05)
        assert guess.disk_bytes.value >= 0.7 * parts
    extracted = mill.open("extracted_text", SNAPSHOT).manifest.content
    disk = sum(e.bytes for k in ("parts", "decisions", "index") for e in extracted.entries(k))
    guessed = three.stages[0].disk_bytes
    assert guessed.low is not None
    assert guessed.high is not None
    assert guessed.low <= disk <= guessed.high, "files of one kind differ by a quarter"
    assert three.crawl_bytes.value == pytest.approx(one.crawl_bytes.value)


def test_the_verb_prints_the_whole_of_what_is_a_sample(
    mill: Mill, capsys: pytest.CaptureFixture[str]
) -> None:
    list_files(sliced(mill, 2), SNAPSHOT)
    extract_text(sliced(mill, 2), SNAPSHOT)
    place = f"snapshots.location={mill.config.snapshots.location}"
    words = ["plan", "--root", str(mill.config.storage.root), "--set", place, "--set"]
    words += ["snapshots.files=2", "--workers", "4"]
    assert main([*words, "--json"]) == 0
    [whole] = json.loads(capsys.readouterr().out)["whole"]
    assert (whole["snapshot"], whole["files"], whole["sample_files"]) == (SNAPSHOT, 10, 2)
    first = whole["stages"][0]
    assert first["wall_hours"] == pytest.approx(first["cpu_hours"]["value"] / 4)
    assert first["documents"]["low"] <= first["documents"]["value"] <= first["documents"]["high"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{SNAPSHOT}, whole: 10 files") for line in lines)
    assert any(line.startswith("  extracted_text ") for line in lines)
    assert lines[-1].startswith("  together ")


def test_a_stage_that_was_never_run_has_no_rate(mill: Mill) -> None:
    assert rate_of(mill, "token_shards", SNAPSHOT) is None
    rows = [Planned("token_shards", "S", 3, 3, 2_500_000, None, None, True, "not there yet")]
    assert show_plan(rows) == [
        "S  token_shards     3/3 parts, 2.5 MB, no rate was measured yet  not there yet"
    ]


def test_a_listing_that_is_gone_is_said(mill: Mill) -> None:
    values = merge(mill.config.model_dump(), {"snapshots": {"location": "/nowhere"}})
    gone = replace(mill, config=validate(values))
    assert try_whole(gone, SNAPSHOT, STAGES) == f"/nowhere/{SNAPSHOT} is not a folder"
    assert try_whole(mill, "NEVER-SEEN", STAGES) is None


def test_the_range_of_a_ratio() -> None:
    exact = ratio_estimate([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], 60.0, 30)
    assert (exact.value, exact.low, exact.high) == (120.0, 120.0, 120.0)
    rough = ratio_estimate([1.0, 3.0], [1.0, 1.0], 10.0, 10)
    # R = 2, s = sqrt(2), standard error 10 * sqrt(0.8 * 2 / 2) = 8.944, t(1) = 6.314
    assert rough.value == 20.0
    assert rough.low == 0.0
    assert rough.high == pytest.approx(20.0 + 6.314 * 8.944, rel=1e-3)
    whole = ratio_estimate([1.0, 3.0], [1.0, 1.0], 2.0, 2)
    assert (whole.low, whole.high) == (4.0, 4.0), "nothing is left out"


def test_students_t_beyond_the_table() -> None:
    assert student(1) == 6.314
    assert student(20) == pytest.approx(1.725, abs=5e-3)
    assert student(100) == pytest.approx(1.660, abs=5e-3)
