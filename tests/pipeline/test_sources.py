"""JSON lines to documents: ids, types, bad lines, round trips."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.layout import doc_id
from pipeline.part import PartResult
from pipeline.schema import DECISIONS, DOCUMENTS, conform
from pipeline.sources import base_name, parse_jsonl, read_source


def parse(*rows: Any, name: str = "notes.jsonl", first_line: int = 1) -> PartResult:
    lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    return parse_jsonl(b"\n".join(lines) + b"\n", name, first_line=first_line)


def reasons(result: PartResult) -> list[str | None]:
    return result.tables["decisions"]["reason"].to_list()


def details(result: PartResult) -> list[dict[str, Any]]:
    return [json.loads(d) for d in result.tables["decisions"]["detail"].drop_nulls()]


def test_ids_come_from_source_and_id_or_base_name_and_line() -> None:
    result = parse({"text": "a"}, b"", {"text": "b", "id": 7}, {"text": "c", "source": "wiki"})
    documents = result.tables["parts"]
    assert documents["source"].to_list() == ["notes", "notes", "wiki"]
    assert documents["source_id"].to_list() == ["1", "7", "4"]
    ids = [doc_id("notes", "1"), doc_id("notes", "7"), doc_id("wiki", "4")]
    assert documents["doc_id"].to_list() == ids
    assert documents.columns[: len(DOCUMENTS)] == DOCUMENTS.names
    assert result.tables["decisions"]["doc_id"].to_list() == ids
    assert conform(result.tables["decisions"], DECISIONS).num_rows == 3


@pytest.mark.parametrize(
    ("name", "base"),
    [("a/b/code.jsonl.gz", "code"), ("web-1.2.ndjson", "web-1.2"), ("x.json", "x"), (".gz", ".gz")],
)
def test_base_name(name: str, base: str) -> None:
    assert base_name(name) == base


def test_given_ids_and_licences_pass_through() -> None:
    row = {"text": "a", "doc_id": "f" * 32, "url": "http://a.example/", "licence": "CC0-1.0"}
    document = parse(row).tables["parts"].to_dicts()[0]
    assert {name: document[name] for name in row} == row


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"text": "cut', "no JSON"),
        (b"[1]", "no JSON object"),
        (b'{"id": 1}', "no column 'text'"),
        (b'{"text": 5}', "column 'text' is no text but int"),
        (b'{"text": "a\xff"}', "no UTF-8 at byte 11"),
        (b'{"text": "a", "warc_offset": "x"}', "column 'warc_offset' is not int64"),
        (b'{"text": "a", "fetched_at": "then"}', "column 'fetched_at' is not timestamp"),
        (b"[" * 100_000, "no JSON"),
        (b'{"text": "a", "n": ' + b"9" * 5000 + b"}", "no JSON"),
    ],
)
def test_bad_lines_are_counted_with_their_number(line: bytes, problem: str) -> None:
    result = parse({"text": "good"}, line, {"text": "also good"})
    assert reasons(result) == [None, "input.bad_line", None]
    assert result.tables["parts"]["text"].to_list() == ["good", "also good"]
    (detail,) = details(result)
    assert (detail["file"], detail["line"]) == ("notes.jsonl", 2)
    assert problem in detail["problem"]


def test_the_second_of_two_equal_ids_falls() -> None:
    result = parse({"text": "a", "id": "x"}, {"text": "b", "id": "x"}, first_line=11)
    assert reasons(result) == [None, "input.duplicate_id"]
    assert details(result) == [{"file": "notes.jsonl", "line": 12, "first_line": 11}]


def test_text_is_normalised_and_null_is_empty() -> None:
    result = parse({"text": "a\r\nb\rc\td\u0000\u001b\u007fe\u0085"}, {"text": None})
    assert result.tables["parts"]["text"].to_list() == ["a\nb\nc\td\u007fe\u0085", ""]


def test_half_surrogates_become_the_replacement_character() -> None:
    result = parse(b'{"text": "a\\ud83d b \\ud83d\\ude00", "x": "\\udc00"}')
    assert result.tables["parts"].select("text", "x").row(0) == ("a\ufffd b 😀", "\ufffd")


def test_unknown_columns_keep_their_type_or_become_json() -> None:
    rows = [
        {"text": "a", "n": 1, "f": 1, "b": True, "s": "x", "nest": {"k": [1, None]}, "mix": "1"},
        {"text": "b", "n": None, "f": 0.5, "s": None, "mix": 1, "big": 2**70, "nan": float("nan")},
    ]
    documents = parse(*rows).tables["parts"]
    assert documents.select("n", "f", "b", "s", "nest", "mix", "big", "nan").rows() == [
        (1, 1.0, True, "x", '{"k":[1,null]}', '"1"', None, None),
        (None, 0.5, None, None, None, "1", str(2**70), None),
    ]
    assert documents.schema["n"] == pl.Int64
    assert documents.schema["nan"] == pl.String


def test_contract_columns_take_its_types() -> None:
    edits = [{"out": 0, "in": 3, "length": 2}]
    row = {"text": "a", "fetched_at": "2026-10-01T12:00:00Z", "quality_score": 1, "edits": edits}
    documents = parse(row, {"text": "b"}).tables["parts"]
    assert str(documents["fetched_at"][0]) == "2026-10-01 12:00:00+00:00"
    assert documents.schema["quality_score"] == pl.Float32
    assert documents["edits"].to_list() == [edits, None]


def test_broken_gzip_keeps_the_lines_before_it(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"line {i} " + "word " * i}).encode() for i in range(500)]
    whole = gzip.compress(b"\n".join(lines))
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    result = read_source(path)
    kept = result.tables["parts"].height
    assert 0 < kept < 500
    assert reasons(result) == [None] * kept + ["input.bad_line"]
    assert [d.what for d in result.damaged] == ["gzip: ends too early"]
    path.write_bytes(gzip.compress(lines[0] + b"\n") + gzip.compress(lines[1]))
    assert read_source(path).tables["parts"].height == 2


def test_nothing_in_nothing_out() -> None:
    result = parse_jsonl(b"\n\n", "empty.jsonl")
    assert result.tables["parts"].height == result.tables["decisions"].height == 0
    assert set(DOCUMENTS.names) < set(result.tables["parts"].columns)


def test_golden_output() -> None:
    # another hash for the same lines: bump CODE_VERSION of pipeline.sources, then this
    result = parse({"text": "a\r\nb", "n": [1]}, b"{", {"text": None, "id": 7, "url": "http://a/"})
    text = "".join(frame.write_ndjson() for frame in result.tables.values())
    assert sha256(text.encode()).hexdigest()[:16] == "962cb8bd8440d1f8"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=8))
def test_round_trip_after_normalising(texts: list[str]) -> None:
    result = parse(*({"text": text} for text in texts))
    once = result.tables["parts"]["text"].to_list()
    again = parse(*({"text": text} for text in once)).tables["parts"]["text"].to_list()
    assert again == once
    dropped = set(range(32)) - {9, 10, 13}
    expected = [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]
    assert once == ["".join(c for c in t if ord(c) not in dropped) for t in expected]


@pytest.mark.shared
def test_real_sources_come_in_whole(shared: Path) -> None:
    path = shared / "data/sources/encyclopedic.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    result = read_source(path)
    decisions = result.tables["decisions"]
    assert decisions.height == len(rows) == 3506
    assert set(decisions["reason"].drop_nulls()) == {"input.duplicate_id"}
    assert result.tables["parts"].height == len({(row["source"], row["id"]) for row in rows})
