"""Every contest on a small input: outputs agree as far as they must. Times are not looked at."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from assets.cli import main
from assets.demo.warcs import Capture, WarcFile
from tests import miniature_input
from tests.miniature_input import START

LINE = "the old mill turns while water runs over its wheel and all of the grain becomes flour"
WORDS = LINE.split(" ")
PEERS = pytest.mark.skipif(find_spec("datatrove") is None, reason="the extra `bench` is not there")


def sentence(seed: int) -> str:
    chosen = [WORDS[(seed * 7 + k * (1 + seed % 5)) % len(WORDS)] for k in range(14)]
    return " ".join(chosen).capitalize() + f", said number {seed}."


def text(seed: int) -> str:
    return "\n".join(sentence(seed * 31 + k) for k in range(12))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "documents.jsonl"
    texts = [text(k) for k in range(40)]
    texts += [texts[3] + " And one word more.", "Write to miller@mill.example or 8.8.8.8 today."]
    texts += ["{ braces } " + texts[5], "short"]
    lines = [json.dumps({"id": str(k), "text": t}) for k, t in enumerate(texts)]
    path.write_text("\n".join(lines) + "\n")
    return path


def result(
    arguments: list[str], path: Path | None, capsys: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    files = [str(path)] if path else []
    assert main(["bench", *arguments, "--rounds", "1", "--json", *files]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_banding_nominates_what_datasketch_does(
    documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agree = result(["banding"], documents, capsys)["agree"]
    assert agree["candidates_ours"] == agree["candidates_theirs"] >= 1
    assert agree["candidates_equal"] == agree["documents"] == 44


@pytest.mark.slow
def test_signatures_equal_datasketchs_on_the_same_hashes(
    documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agree = result(["signatures", "--against", "datasketch"], documents, capsys)["agree"]
    assert agree["signatures_equal"] == agree["signatures_compared"] == 44


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage",
    ["score", "tokenize", "language", "load", pytest.param("train", marks=pytest.mark.long)],
)
def test_contests_without_further_peers(
    stage: str,
    documents: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GRISTMILL_BENCH_STEPS", "2")
    found = result([stage], documents, capsys)
    agree = found["agree"]
    expected = {"score": "scores_equal", "tokenize": "ids_equal", "language": "labels_equal"}
    if stage in expected:
        assert agree[expected[stage]] == agree["documents"] == 44
    if stage == "train":
        assert agree["logits_equal"]
        sides = found["sides"]
        ours = [name for name, side in sides.items() if side["ours"]]
        assert ours == ["gristmill", "gristmill, bfloat16", "gristmill, untracked"]
        for name in ours:
            figures = sides[name]["figures"]
            parts = ("forward_share", "backward_share", "optimiser_share", "around_share")
            assert sum(figures[part] for part in parts) == pytest.approx(1, abs=0.001)
            theirs = sides["transformers"]["figures"]["last_loss"]
            assert figures["last_loss"] == pytest.approx(theirs, rel=0.05)


@pytest.mark.slow
def test_pages_are_extracted_by_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    paragraphs = "".join(f"<p>{sentence(k)}</p>" for k in range(20))
    page.write_text(f"<html><body><article>{paragraphs}</article></body></html>")
    agree = result(["extract"], page, capsys)["agree"]
    assert agree["texts_in_both"] == agree["documents"] == 1
    assert agree["word_f1"] > 0.9


@PEERS
@pytest.mark.bench
@pytest.mark.parametrize(
    ("stage", "equal"),
    [("filter", "reasons_equal"), ("scrub", "texts_equal"), ("signatures", None), ("dedup", None)],
)
def test_contests_against_datatrove(
    stage: str, equal: str | None, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agree = result([stage, "--against", "datatrove"], documents, capsys)["agree"]
    if equal:
        assert agree[equal] == agree["documents"] > 0


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two WARC files of six pages each."""
    folder = tmp_path_factory.mktemp("crawl")
    for number in range(2):
        file = WarcFile(f"S-0000{number}.warc.gz", "S")
        file.start(START)
        for i in range(6):
            lines = [sentence(100 * number + 20 * i + k) for k in range(20)]
            page = miniature_input.html(f"{number} {i}", lines)
            file.add(Capture(f"https://host.example/{number}/{i}", START, page))
        (folder / file.name).write_bytes(file.data)
    return sorted(folder.iterdir())


@PEERS
@pytest.mark.bench
def test_the_chain_against_datatroves(
    crawl: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = result(["curate", "--set", "extract.mode=cascade"], crawl[0], capsys)
    assert "datatrove without sandbox" in found["sides"]
    for side in found["sides"].values():
        assert side["figures"]["pages"] == 6
        assert side["figures"]["pages_without_text"] == 0
    assert found["agree"]["kept_ours"] == found["agree"]["kept_theirs"]
    assert found["agree"]["kept_by_both"] == found["agree"]["kept_ours"]


@pytest.mark.slow
@pytest.mark.long
def test_two_workers_and_two_copies_find_the_same(
    crawl: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(path) for path in crawl]
    assert main(["bench", "scaling", "--rounds", "1", "--json", "--input", *files]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agree"]["same_documents"]
    assert found["details"]["clock"] == "wall seconds"
    assert main(["bench", "scaling", "--rounds", "1", files[0]]) == 1
    assert "cannot be shared by 2 workers" in capsys.readouterr().err


@pytest.mark.slow
def test_growth_names_each_process_at_both_lengths(
    crawl: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "growth", "--json", *map(str, crawl)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["input_bytes"]["x10"] == 10 * found["input_bytes"]["x1"]
    for times in ("x1", "x10"):
        for stage in ("extract", "filter"):
            peaks = found["peak_mib"][times][stage]
            assert set(peaks) == {"parent", "worker", "page reader"}
            assert all(peak > 10 for peak in peaks.values())
    assert set(found["ratio"]) == {"parent", "worker", "page reader"}


@pytest.mark.bench  # it compiles everything: a minute
def test_start_is_cold_once_and_warm_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "start", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cold_seconds"] > found["warm_seconds"]["median"] > found["bare_seconds"] > 0


@pytest.mark.slow
@pytest.mark.long
def test_gold_scores_each_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = WarcFile("S-00000.warc.gz", "S")
    file.start(START)
    lines = [sentence(k) for k in range(20)]
    url = "https://host.example/page"
    file.add(Capture(url, START, miniature_input.html("page", lines)))
    (tmp_path / file.name).write_bytes(file.data)
    gold = tmp_path / "gold.jsonl"
    rows = [{"url": url, "text": " ".join(lines), "page_type": "article"}, {"url": "b", "text": ""}]
    gold.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    words = ["extract", "--set", "extract.mode=resiliparse", "--gold", str(gold)]
    sides = result(words, tmp_path / file.name, capsys)["sides"]
    for side in sides.values():
        assert side["scores"]["all"]["shingles"]["pages"] == 1
        assert side["scores"]["page_type=article"]["shingles"]["page_f1"] > 0.8
    gold.write_text(json.dumps({"url": "elsewhere", "text": "x"}))
    assert main(["bench", *words, str(tmp_path / file.name)]) == 2
    assert "names none of the pages" in capsys.readouterr().err
