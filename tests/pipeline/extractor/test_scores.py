"""The scorer: its numbers, and that they are the official tool's."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.extractor.scores import Score, score, shingles, table, words


def test_words_and_shingles() -> None:
    assert words("Zwei Wörter, x_1! 漢字かな 한국어 ไทย") == [
        "Zwei", "Wörter", "x_1", "漢", "字", "か", "な", "한국어", "ไ", "ท", "ย",
    ]  # fmt: skip
    assert shingles("a b c d e").total() == 2
    assert shingles("a b") == {("a", "b"): 1}
    assert not shingles(" -- ")


def test_a_page_half_found() -> None:
    one = Score()
    f1 = one.add("a b c d e f g", {"text": "a b c d e f g h i j k"})
    assert f1 == pytest.approx(2 * 4 / (4 + 8))
    assert one.result()["shingles"] == {
        "pages": 1, "empty": 0, "precision": 1.0, "recall": 0.5, "f1": 0.6667, "page_f1": 0.6667,
    }  # fmt: skip


def test_an_empty_answer_costs_recall_and_page_f1_only() -> None:
    gold = [{"url": url, "text": "a b c d e"} for url in "xy"]
    result = score({"x": "a b c d e"}, gold, ())["all"]["shingles"]
    assert (result["precision"], result["recall"], result["page_f1"]) == (1.0, 0.5, 0.5)
    assert result["empty"] == 1


def test_segments_are_counted_over_pages() -> None:
    gold = {"url": "x", "with": ["one  two", "absent"], "without": ["menu", "footer"]}
    result = score({"x": "one\ntwo menu"}, [gold], ())["all"]
    assert "shingles" not in result
    assert result["segments"] == {"pages": 1, "precision": 0.5, "recall": 0.5, "f1": 0.5}


def test_the_table_has_a_line_a_group() -> None:
    gold: list[dict[str, Any]] = [
        {"url": "x", "text": "a b c d", "source": "s", "page_type": "forum", "language": "en"},
        {"url": "y", "with": ["a"], "source": "t", "page_type": "forum", "language": "de"},
    ]
    lines = table(score({"x": "a b c d"}, gold)).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        "all", "language=de", "language=en", "page_type=forum", "source=s", "source=t",
    ]  # fmt: skip
    assert "1.0000" in lines[1]


@pytest.mark.shared
def test_equals_the_official_tool(shared: Path) -> None:
    official = _official(shared / "tools" / "extraction_score.py")
    lines = (shared / "data" / "extraction" / "gold-dev.jsonl").read_text("utf-8").split("\n")
    gold: list[dict[str, Any]] = [json.loads(line) for line in lines[:-1:6]]
    rng = random.Random(5)
    texts = {row["url"]: _spoilt(row, rng) for row in gold if rng.random() < 0.9}
    theirs = official.score(texts, gold, ["source", "page_type", "language"])
    del theirs["pages"]
    assert score(texts, gold) == theirs


def _official(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("extraction_score", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _spoilt(row: dict[str, Any], rng: random.Random) -> str:
    """The gold with lines lost and doubled; sometimes nothing."""
    lines = (row["text"] or "\n".join(row["with"] + row["without"])).split("\n")
    return "\n".join(line for line in lines for _ in range(rng.choice((0, 1, 1, 1, 2))))
