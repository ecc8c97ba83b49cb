"""Every contest on a small input: outputs agree as far as they must. Times are not looked at."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from assets.cli import main

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
@pytest.mark.parametrize("stage", ["score", "tokenize", "language", "load", "train"])
def test_contests_without_further_peers(
    stage: str, documents: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agree = result([stage], documents, capsys)["agree"]
    expected = {"score": "scores_equal", "tokenize": "ids_equal", "language": "labels_equal"}
    if stage in expected:
        assert agree[expected[stage]] == agree["documents"] == 44
    if stage == "train":
        assert agree["logits_equal"]


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


@PEERS
@pytest.mark.bench
def test_the_chain_against_datatroves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    paragraphs = "".join(f"<p>{sentence(k)}</p>" for k in range(20))
    page.write_text(f"<html><body><article>{paragraphs}</article></body></html>")
    assert result(["curate"], page, capsys)["agree"]["documents"] == 1
