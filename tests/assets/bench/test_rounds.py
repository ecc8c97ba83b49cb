"""The framework of `bench`, on two small real sides. No test looks at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from assets.bench.contests import CONTESTS, Contest, Side, check_peer, find_contest
from assets.bench.rounds import hold
from assets.bench.summary import Run, summary
from assets.bench.tables import as_markdown, as_text
from assets.cli import main
from pipeline.config import Config
from pipeline.config.extract import MODES
from pipeline.errors import GristmillError, UsageError

HERE = "tests.assets.bench.fake"
FAKE = Contest(
    "count",
    "python",
    f"{HERE}:ours",
    f"{HERE}:peer",
    f"{HERE}:compare",
    ("documents",),
    (),
    "words",
)
CONTRACT = {"stage", "peer", "rounds", "ours", "theirs", "ratio", "agree"}


@pytest.fixture
def material(tmp_path: Path) -> Path:
    pl.DataFrame({"text": ["a b c", "d e", "f"]}).write_parquet(tmp_path / "documents.parquet")
    (tmp_path / "config.json").write_text(Config().model_dump_json())
    return tmp_path


def with_files(material: Path, n: int) -> Path:
    rows = [{"path": f"/{i}.warc.gz", "size": 10, "pages": i + 1} for i in range(n)]
    (material / "warcs.json").write_text(json.dumps(rows))
    return material


@pytest.mark.slow
def test_rounds_alternate_and_outputs_are_compared(material: Path) -> None:
    said: list[str] = []
    result = hold(FAKE, material, 2, said.append)
    assert set(result) >= CONTRACT
    assert (result["stage"], result["peer"], result["rounds"]) == ("count", "python", 2)
    for side in ("ours", "theirs"):
        assert set(result[side]) == {"docs_per_s", "mb_per_s", "peak_mib"}
        assert all(value > 0 for value in result[side].values())
    assert set(result["ratio"]) == {"min", "median", "max"}
    assert result["agree"] == {"documents": 3, "equal": 3}
    assert result["details"]["repeatable"] == {"gristmill": True, "python": True}
    assert set(result["sides"]) == {"gristmill", "python"}
    assert result["sides"]["gristmill"]["figures"] == {"threads": 1.0}
    assert result["sides"]["gristmill"]["ratio"] == result["ratio"]
    assert set(result["sides"]["python"]["ratio"].values()) == {1.0}
    assert {"gristmill", "python", "cpu", "polars"} <= set(result["versions"])
    assert "warm" in result["details"]
    assert len(said) == 2
    json.dumps(result)


def test_a_side_that_fails_is_named_with_its_last_words(material: Path) -> None:
    contest = replace(FAKE, theirs=f"{HERE}:broken")
    with pytest.raises(GristmillError, match="broken failed: RuntimeError: the peer is out of"):
        hold(contest, material, 1, print)


@pytest.mark.slow
def test_every_mode_and_every_form_of_the_peer_has_its_round(material: Path) -> None:
    contest = replace(
        FAKE,
        ours=f"{HERE}:moded",
        modes=("cascade", "resiliparse"),
        peers=(Side("python, slow", f"{HERE}:slow_peer"),),
    )
    said: list[str] = []
    result = hold(contest, material, 1, said.append, lambda finding: {"sum": finding["n"].sum()})
    configured = Config().extract.mode
    labels = [f"gristmill, {mode}" for mode in dict.fromkeys((configured, *contest.modes))]
    assert list(result["sides"]) == [*labels, "python", "python, slow"]
    assert [side["ours"] for side in result["sides"].values()] == [True] * len(labels) + [False] * 2
    assert result["details"]["peer_form"] == "python", "the faster form"
    assert result["sides"]["python, slow"]["ratio"]["max"] < 1
    assert {side["scores"]["sum"] for side in result["sides"].values()} == {6}
    mode = result["sides"]["gristmill, resiliparse"]["figures"]["mode"]
    assert mode == MODES.index("resiliparse"), "the setting reaches the side"


@pytest.mark.slow
def test_rounds_share_the_files_where_there_are_enough(material: Path) -> None:
    contest = replace(FAKE, ours=f"{HERE}:files", theirs=f"{HERE}:files", shared=True)
    result = hold(contest, with_files(material, 5), 2, lambda line: None)
    assert result["details"]["shared"]
    assert result["details"]["documents"] == 1 + 2 + 3 + 4 + 5
    assert result["agree"]["documents"] == 5, "what both rounds found, together"
    assert result["sides"]["gristmill"]["figures"] == {"files": 5.0}


@pytest.mark.slow
def test_rounds_repeat_the_files_where_there_are_too_few(material: Path) -> None:
    contest = replace(FAKE, ours=f"{HERE}:files", theirs=f"{HERE}:files", shared=True)
    result = hold(contest, with_files(material, 1), 2, lambda line: None)
    assert not result["details"]["shared"]
    assert result["agree"]["documents"] == 1


def test_the_ratio_is_our_speed_over_the_faster_peers() -> None:
    ours = {"documents": 10, "bytes": 1, "cpu_seconds": 1.0, "wall_seconds": 1.0, "peak_mib": 1.0}
    runs = [
        Run(Side("mine", ""), True, [ours, ours | {"cpu_seconds": 2.0}, ours]),
        Run(Side("slow", ""), False, [ours | {"cpu_seconds": 8.0}] * 3),
        Run(Side("fast", ""), False, [ours | {"cpu_seconds": 4.0}] * 3),
    ]
    found = summary(FAKE, runs, {}, {})
    assert found["ratio"] == {"min": 2.0, "median": 4.0, "max": 4.0}
    assert found["ours"]["docs_per_s"] == 10.0
    assert found["theirs"]["docs_per_s"] == 2.5
    assert found["sides"]["slow"]["ratio"]["median"] == 0.5
    shared = summary(FAKE, runs, {}, {}, split=True)
    assert shared["ours"]["docs_per_s"] == 7.5, "over all rounds together"


def test_tables_have_a_row_a_form_of_ours(material: Path) -> None:
    result = hold(FAKE, material, 1, lambda line: None)
    text, rows = as_text(result), as_markdown(result)
    assert text[0].startswith("count against python: 3 documents")
    assert any(line.startswith("  gristmill ") for line in text)
    columns = {line.count("|") for line in rows if line.startswith("|")}
    assert columns == {10}
    assert rows[2].startswith("| count | python | ")
    assert rows[3].startswith("| count, warm | python |")
    assert f"polars {pl.__version__}" in rows[-1]


def test_contests_are_found_by_stage_and_peer() -> None:
    assert find_contest("signatures", None).peer == "datatrove"
    assert find_contest("signatures", "datasketch").peer == "datasketch"
    with pytest.raises(UsageError, match="no stage 'grind'"):
        find_contest("grind", None)
    with pytest.raises(UsageError, match="not measured against 'spark'"):
        find_contest("filter", "spark")


def test_every_contest_of_the_contract_is_there() -> None:
    have = {(contest.stage, contest.peer) for contest in CONTESTS}
    assert have >= {
        ("extract", "trafilatura"), ("language", "fasttext"), ("filter", "datatrove"),
        ("curate", "datatrove"), ("signatures", "datatrove"), ("dedup", "datatrove"),
        ("signatures", "datasketch"), ("banding", "datasketch"), ("score", "fasttext"),
        ("scrub", "datatrove"), ("tokenize", "tokenizers"), ("load", "memmap"),
        ("train", "transformers"), ("scaling", "copies"), ("language", "datatrove"),
        ("extract", "resiliparse"),
    }  # fmt: skip


def test_a_missing_peer_is_wrong_usage_with_the_cure() -> None:
    with pytest.raises(UsageError, match="a_peer_nobody_has is not installed") as error:
        check_peer(replace(FAKE, packages=("json", "a_peer_nobody_has")))
    assert "make bench" in str(error.value.hint)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bench", "grind"], "no stage 'grind'"),
        (["bench", "language", "--rounds", "0"], "--rounds 0"),
        (["bench", "language", "absent.jsonl"], "absent.jsonl is not there"),
        (["bench", "language", "--input", "absent.jsonl"], "absent.jsonl is not there"),
        (["bench", "language", "--gold", "pyproject.toml"], "--gold says nothing about the stage"),
        (["bench", "extract", "--gold", "absent"], "--gold absent is not there"),
        (["bench", "growth", "pyproject.toml"], "pyproject.toml is no WARC file"),
        (["bench", "start", "--against", "spark"], "start is measured against nothing"),
    ],
)
def test_wrong_usage_exits_with_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err
