"""The framework of `bench`, on two small real sides. No test looks at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from assets.bench.contests import CONTESTS, Contest, check_peer, find_contest
from assets.bench.rounds import hold, summary
from assets.cli import main
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
    return tmp_path


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
    assert result["details"]["repeatable"] == {"ours": True, "theirs": True}
    assert result["details"]["threads"] == {"ours": 1.0}
    assert "warm" in result["details"]
    assert len(said) == 2
    json.dumps(result)


def test_a_side_that_fails_is_named_with_its_last_words(material: Path) -> None:
    contest = replace(FAKE, theirs=f"{HERE}:broken")
    with pytest.raises(GristmillError, match="broken failed: RuntimeError: the peer is out of"):
        hold(contest, material, 1, print)


def test_the_ratio_is_our_speed_over_the_peers() -> None:
    ours = {"documents": 10, "bytes": 1, "cpu_seconds": 1.0, "wall_seconds": 1.0, "peak_mib": 1.0}
    figures = {
        "ours": [ours, ours | {"cpu_seconds": 2.0}, ours],
        "theirs": [ours | {"cpu_seconds": 4.0}] * 3,
    }
    found = summary(FAKE, figures, {}, {})
    assert found["ratio"] == {"min": 2.0, "median": 4.0, "max": 4.0}
    assert found["ours"]["docs_per_s"] == 10.0


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
        ("train", "transformers"),
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
    ],
)
def test_wrong_usage_exits_with_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert says in capsys.readouterr().err
