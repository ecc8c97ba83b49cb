"""Benchmark items in documents: found as a whole, not by everyday phrases."""

from __future__ import annotations

import json

import polars as pl
import pytest

from pipeline.config.scrub import ScrubConfig
from pipeline.errors import ConfigError, ContractError
from pipeline.scrub.decontaminate import build, units
from pipeline.scrub.run import scrub_documents

LONG = "which of the four planets in this list is the one that takes longest to turn around its sun"
SHORT = "what do tall plants need most of all"
ITEMS = [
    ("a.jsonl", "a/1", {"id": "a/1", "query": LONG, "choices": ["Neptune", "Mars"], "gold": 0}),
    ("b.jsonl", "b/1", {"id": "b/1", "question": SHORT, "answers": [{"text": "some light"}]}),
    ("b.jsonl", "b/2", {"id": "b/2", "question": "too short", "answer": "yes"}),
    ("c.jsonl", "c/1", {"prompt": "def f", "test": "[" + ", ".join(map(str, range(40))) + "]"}),
]


def index(common: int = 10, short: int = 8):
    return build(ITEMS, ngram=13, short=short, common=common)


def hits(text: str, **options: int) -> int:
    return int(index(**options).match(pl.Series([text]))[0][0])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"Some page. {LONG.upper()}? It goes on.", True),
        (" ".join(LONG.split()[:13]), True),
        (" ".join(LONG.split()[:12]), False),
        (f"Once more: {SHORT}?", True),
        (f"Once more: {SHORT}? Some light!", True),
        (SHORT.rsplit(" ", 1)[0], False),
        ("too short yes", False),
        (" ".join(map(str, range(40))), False),
        ("", False),
    ],
)
def test_thirteen_words_or_a_whole_question(text, found):
    assert (hits(text) > 0) is found


def test_questions_under_the_limit_are_no_items():
    assert hits(SHORT, short=9) == 0
    assert hits(f"{SHORT} some light", short=9) > 0


def test_phrases_of_many_items_are_ignored():
    assert hits(LONG, common=1) > 0
    twice = [*ITEMS, ("d.jsonl", "d/1", {"query": f"{LONG} or another"})]
    shared_phrase = build(twice, ngram=13, short=8, common=1)
    assert shared_phrase.match(pl.Series([LONG]))[0][0] == 0


def test_the_question_is_known_by_its_field_else_the_longest():
    assert next(units({"id": "some/long/identifier", "query": "ask"})) == ("ask", True)
    assert next(units({"a": "b", "c": "the longest"})) == ("the longest", True)
    assert list(units({"gold": 1})) == []


def test_a_contaminated_document_is_dropped_with_the_item(tmp_path):
    lines = [json.dumps(record) for _, _, record in ITEMS[:2]]
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets/a.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    frame = pl.DataFrame(
        {
            "doc_id": ["1", "2", "3"],
            "url": ["u1", "u2", "u3"],
            "text": ["clean bob@site.org", f"x {LONG} y", None],
        }
    )
    result = scrub_documents(frame, ScrubConfig(benchmarks=[str(tmp_path / "sets")]))
    decisions = result.tables["decisions"]
    assert decisions["kept"].to_list() == [True, False, True]
    dropped = decisions.row(1, named=True)
    assert dropped["reason"] == "contamination.ngram"
    assert dropped["value"] == len(LONG.split()) - 12
    assert json.loads(dropped["detail"]) == {"item": "a/1", "file": "a.jsonl"}
    assert decisions["detail"][0] == '{"replaced": {"email": 1}}'
    assert result.tables["parts"]["doc_id"].to_list() == ["1", "3"]


def test_places_without_items_are_named(tmp_path):
    frame = pl.DataFrame({"doc_id": ["1"], "text": ["a"]})
    for place in (tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError, match=r"scrub\.benchmarks"):
            scrub_documents(frame, ScrubConfig(benchmarks=[str(place)]))
    (tmp_path / "x.jsonl").write_text('{"a": 1}\nnot json\n', encoding="utf-8")
    with pytest.raises(ContractError, match=r"x\.jsonl line 2"):
        scrub_documents(frame, ScrubConfig(benchmarks=[str(tmp_path)]))


@pytest.mark.shared
def test_the_probe(shared):
    folder = shared / "data/benchmarks"
    sets = [str(p) for p in sorted(folder.glob("*.jsonl")) if "probe" not in p.name]
    lines = (folder / "contamination_probe.jsonl").read_text(encoding="utf-8").splitlines()
    pages = [json.loads(line) for line in lines]
    frame = pl.DataFrame({"doc_id": [p["id"] for p in pages], "text": [p["text"] for p in pages]})
    result = scrub_documents(frame, ScrubConfig(benchmarks=sets))
    for page, row in zip(pages, result.tables["decisions"].iter_rows(named=True), strict=True):
        assert row["kept"] is not page["contaminated"], page["id"]
        if page["contaminated"]:
            assert json.loads(row["detail"])["item"] == page["item"]
