"""What CONTRACT promises of every verb, from the outside: folders, exit codes, stdout, messages."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
import yaml

from assets.cli import build_parser
from tests import miniature, miniature_input
from tests.e2e.command import (
    canonical_hash,
    gristmill,
    process,
    read_folder,
    sentences,
    stage,
    write_lines,
)
from tests.s3_server import moto_server

FIRST = miniature_input.FIRST
ALPHA = "https://alpha.example"
BETA = "https://beta.example"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs in its own empty folder, so that what is left behind can be seen."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def prose(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", *({"text": sentences(i)} for i in range(4)))


# ---- what every verb says of itself


def verbs() -> list[tuple[str, ...]]:
    """Every verb, and every action of those that have some."""
    found: list[tuple[str, ...]] = []

    def walk(parser: Any, path: tuple[str, ...]) -> None:
        inner = [a.choices for a in parser._actions if isinstance(a.choices, dict)]
        if path and not inner:
            found.append(path)
        for choices in inner:
            for name, child in choices.items():
                walk(child, (*path, name))

    walk(build_parser(), ())
    return found


@pytest.mark.parametrize("path", verbs(), ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    result = gristmill(*path, "--help")
    assert (result.code, result.err) == (0, "")
    for option in ("--config", "--preset", "--set", "--workers", "--json"):
        assert option in result.out


# ---- JSON lines on the way in


def test_lines_become_documents(tmp_path: Path) -> None:
    given = tmp_path / "notes.jsonl"
    given.write_bytes(
        b"\xef\xbb\xbf"
        + json.dumps({"text": "one\r\ntwo\rthree\x00\x07\tfour", "extra": 7, "deep": [1]}).encode()
        + b"\r\n\r\nno json\n[1]\n"
        + b'{"id": 1}\n{"text": 5}\n{"text": "\xff"}\n'
        + json.dumps({"text": None, "id": "x", "url": "http://a.example/", "licence": "L"}).encode()
        + b'\n{"text": "half \\ud800 pair", "source": "other", "id": 9}\n'
        + b'{"text": "same id", "id": "x"}\n{"text": "own", "doc_id": "mine"}\n{"text": "last"}'
    )
    result = stage("scrub", given, out=tmp_path / "out")
    assert result["reasons"] == {"input.bad_line": 5, "input.duplicate_id": 1}
    folder = read_folder(tmp_path / "out")
    rows = {row["source_id"]: row for row in folder.rows()}
    assert list(rows) == ["1", "x", "9", "11", "12"]
    assert rows["1"]["text"] == "one\ntwo\nthree\tfour"
    assert (rows["1"]["extra"], json.loads(rows["1"]["deep"])) == (7, [1])
    assert (rows["x"]["text"], rows["x"]["url"]) == ("", "http://a.example/")
    assert rows["x"]["licence"] == "L"
    assert rows["9"]["text"] == "half � pair"
    assert rows["11"]["doc_id"] == "mine"
    for key, source in (("1", "notes"), ("x", "notes"), ("9", "other"), ("12", "notes")):
        identity = xxhash.xxh3_128_hexdigest(f"{source}\0{key}".encode())
        assert rows[key]["doc_id"] == identity
        assert rows[key]["source"] == source
    bad = [r for r in folder.rows("decisions") if r["reason"] == "input.bad_line"]
    assert [json.loads(row["detail"])["line"] for row in bad] == [3, 4, 5, 6, 7]


def test_ids_are_independent_of_the_folder(tmp_path: Path) -> None:
    names = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        given = write_lines(tmp_path / folder / "n.jsonl", {"text": "a"}, {"text": "b"})
        stage("scrub", given, out=tmp_path / folder / "out")
        names.append(read_folder(tmp_path / folder / "out").name)
    packed = tmp_path / "n.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "one" / "n.jsonl").read_bytes()))
    stage("scrub", packed, out=tmp_path / "packed")
    ids = [[r["doc_id"] for r in read_folder(tmp_path / n).rows()] for n in ("one/out", "packed")]
    assert names[0] == names[1]
    assert ids[0] == ids[1]


@pytest.mark.parametrize("data", [b"", b"\n\n", b"no\n[]\n"], ids=["empty", "blank", "bad"])
def test_a_file_without_documents_is_counted(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "in.jsonl").write_bytes(data)
    for verb in ("filter", "dedup", "scrub"):
        result = stage(verb, tmp_path / "in.jsonl", out=tmp_path / verb)
        assert result["records_in"] == result["dropped"] == data.count(b"o") + data.count(b"[")
        assert read_folder(tmp_path / verb).rows() == []
        refused = gristmill("dedup", tmp_path / verb, "--out", tmp_path / "next")
        refused.is_error(1, "not_empty", "accept_gate")


def test_a_broken_gzip_file_is_reported(tmp_path: Path) -> None:
    lines = b"".join(b'{"text": "line %d of many"}\n' % i for i in range(2000))
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(lines)[:-400])
    result = stage("scrub", tmp_path / "in.jsonl.gz", out=tmp_path / "out")
    assert result["kept"] > 100
    assert [d["file"] for d in result["damaged"]] == ["in.jsonl.gz"]


def test_an_id_that_another_file_has_is_counted(tmp_path: Path) -> None:
    one = write_lines(tmp_path / "a.jsonl", {"doc_id": "x", "text": sentences(1)}, {"text": "p"})
    pq.write_table(pa.table({"doc_id": ["x", "y"], "text": ["q", "r"]}), tmp_path / "b.parquet")
    for verb in ("dedup", "scrub"):
        result = stage(verb, one, tmp_path / "b.parquet", one, out=tmp_path / verb)
        assert result["reasons"] == {"input.duplicate_id": 3}
        assert result["kept"] == 3


# ---- Parquet on the way in


def test_parquet_follows_the_rules_of_lines(tmp_path: Path) -> None:
    table = pa.table({"text": ["a\r\nb\x00", None, "c"], "id": [1, 2, 1], "more": [[], [], ["x"]]})
    pq.write_table(table, tmp_path / "t.parquet")
    result = stage("scrub", tmp_path / "t.parquet", out=tmp_path / "out")
    assert result["reasons"] == {"input.duplicate_id": 1}
    first, second = read_folder(tmp_path / "out").rows()
    assert (first["text"], second["text"]) == ("a\nb", "")
    assert first["doc_id"] == xxhash.xxh3_128_hexdigest(b"t\x001")
    assert first["more"] == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"doc_id": ["a"]}, ["no column 'text'", "doc_id"]),
        ({"text": [1]}, ["'text'", "int64"]),
        ({"text": ["a"], "url": [{"x": 1}]}, ["'url'"]),
        (None, ["no readable Parquet"]),
    ],
    ids=["no text", "numbers", "struct", "garbage"],
)
def test_parquet_that_is_no_documents(
    tmp_path: Path, table: dict[str, Any] | None, words: list[str]
) -> None:
    if table is None:
        (tmp_path / "t.parquet").write_bytes(b"PAR1 and more")
    else:
        pq.write_table(pa.table(table), tmp_path / "t.parquet")
    for verb in ("filter", "dedup", "scrub"):
        refused = gristmill(verb, "t.parquet", "--out", "out")
        refused.is_error(1, "t.parquet", *words)
        assert not (tmp_path / "out" / "current").exists()


# ---- folders, keys, order


def test_order_of_arguments_is_irrelevant(tmp_path: Path) -> None:
    files = [
        write_lines(tmp_path / f"{name}.jsonl", *({"text": sentences(i)} for i in (n, n + 5, 9)))
        for n, name in enumerate("abc")
    ]
    for verb in ("filter", "scrub", "dedup"):
        names = set()
        for i, order in enumerate(permutations(files)):
            stage(verb, *order, out=tmp_path / f"{verb}-{i}")
            names.add(read_folder(tmp_path / f"{verb}-{i}").name)
        assert len(names) == 1, verb


def test_the_same_again_does_nothing_and_another_setting_something(prose: Path) -> None:
    out = Path("out")
    stage("filter", prose, out=out)
    first, stamp = read_folder(out), (out / "current").stat().st_mtime_ns
    stage("filter", prose, out=out)
    assert (out / "current").stat().st_mtime_ns == stamp
    stage("filter", prose, "--set", "filter.gopher.min_words=10000", out=out)
    second = read_folder(out)
    assert second.name != first.name
    assert set(second.content["counts"]["reasons"]) == {"gopher_quality.gopher_short_doc"}
    assert (out / "manifests" / f"{first.name}.json").is_file()
    stage("filter", prose, "--set", "filter.gopher.min_words=49", out=out)
    assert read_folder(out).content["output"] == first.content["output"]  # early cutoff


def test_workers_do_not_show(tmp_path: Path) -> None:
    files = [write_lines(tmp_path / f"{n}.jsonl", {"text": sentences(n)}) for n in range(4)]
    stage("filter", *files, out=tmp_path / "one")
    result = gristmill("filter", *files, "--out", tmp_path / "two", "--workers", "2", "--json").json
    assert result["manifest"] == read_folder(tmp_path / "one").name
    assert read_folder(tmp_path / "two").files() == read_folder(tmp_path / "one").files()


def test_a_folder_with_an_unusual_name(tmp_path: Path) -> None:
    place = tmp_path / "läßt 文 'x'"
    place.mkdir()
    given = write_lines(place / "naïve 文.jsonl", {"text": sentences(1)})
    stage("filter", given, out=place / "out 1")
    stage("dedup", place / "out 1", out=place / "out 2")
    assert read_folder(place / "out 2").rows()[0]["source"] == "naïve 文"


def test_signals_stand_for_kept_and_dropped(prose: Path) -> None:
    short = write_lines(Path("short.jsonl"), {"text": "Too short a text, that is."})
    stage("filter", prose, short, out=Path("out"))
    folder = read_folder(Path("out"))
    signals = {row["doc_id"] for row in folder.rows("signals")}
    assert signals == {row["doc_id"] for row in folder.rows("decisions")}


def test_dedup_leaves_what_the_next_needs(prose: Path) -> None:
    stage("dedup", prose, out=Path("first"))
    first = read_folder(Path("first"))
    assert {"doc_id"} < set(first.tables("signatures")[0].column_names)
    again = write_lines(
        Path("again.jsonl"), {"text": sentences(0)}, {"text": sentences(7)}, {"text": sentences(2)}
    )
    result = stage("dedup", again, "--against", "first", out=Path("second"))
    assert result["reasons"] == {"exact.text": 2}
    second = read_folder(Path("second"))
    assert first.name in [ref.get("hash") for ref in second.content["inputs"]]
    ids = {row["doc_id"] for row in first.rows()}
    details = [json.loads(r["detail"]) for r in second.rows("decisions") if not r["kept"]]
    assert all(set(detail) == {"kept", "kept_url", "band"} for detail in details)
    assert {detail["kept"] for detail in details} <= ids


def test_dedup_follows_the_order_of_snapshots(tmp_path: Path) -> None:
    """Several snapshots in one input that nobody registered: by name, whatever the lines' order."""
    rows = [{"text": sentences(1), "snapshot": name, "url": name} for name in "BCA"]
    for scope, kept in (("all", "A"), ("snapshot", "BCA")):
        given = write_lines(tmp_path / f"{scope}.jsonl", *rows)
        stage("dedup", given, "--set", f"dedup.scope={scope}", out=tmp_path / scope)
        assert "".join(row["url"] for row in read_folder(tmp_path / scope).rows()) == kept


def test_a_document_that_an_earlier_dataset_has_is_counted(tmp_path: Path) -> None:
    """Files of one name in two folders: ids are those of the lines, whatever the folder."""
    for day, numbers in (("one", (1, 2)), ("two", (1, 3, 4))):
        (tmp_path / day).mkdir()
        texts = ({"text": sentences(n)} for n in numbers)
        write_lines(tmp_path / day / "in.jsonl", *texts)
    stage("dedup", "one/in.jsonl", out=Path("first"))
    result = stage("dedup", "two/in.jsonl", "--against", "first", out=Path("second"))
    assert result["reasons"] == {"input.duplicate_id": 2}
    assert [row["text"] for row in read_folder(Path("second")).rows()] == [sentences(4)]


def test_edits_lead_back_to_the_extracted_text(tmp_path: Path) -> None:
    """C4 takes lines away, scrub replaces: composed, each span copies the very bytes."""
    body = sentences(3).split("\n")
    body[2:2] = ["Short «line».", "Please enable JavaScript in your browser to go on reading."]
    body[6] += " Écrivez à anna.miller@mail-host.org or to 8.8.4.4, say [12] the others."
    text = "\n".join(body)
    plain = "\n".join(sentences(5).split("\n"))
    given = write_lines(tmp_path / "in.jsonl", {"text": text}, {"text": plain})
    stage("filter", given, out=tmp_path / "f")
    stage("dedup", tmp_path / "f", out=tmp_path / "d")
    stage("scrub", tmp_path / "d", out=tmp_path / "s")
    edited, whole = read_folder(tmp_path / "s").rows()
    assert whole["edits"] is None
    assert whole["text"] == plain
    final, source = edited["text"].encode(), text.encode()
    assert b"JavaScript" not in final
    assert b"mail-host" not in final
    assert "Écrivez".encode() in final
    spans = edited["edits"]
    for span in spans:
        copied = final[span["out"] : span["out"] + span["length"]]
        assert copied == source[span["in"] : span["in"] + span["length"]]
        assert copied
    for one, two in pairwise(spans):
        assert one["out"] + one["length"] <= two["out"]
        assert one["in"] + one["length"] <= two["in"]
    assert sum(span["length"] for span in spans) > 0.9 * len(final)


# ---- used wrongly: exit code 2, nothing left behind

SETTINGS = [
    "",
    "=",
    "filter",
    "filter.nope=1",
    "nope.x=1",
    "filter=1",
    "filter..min_score=1",
    "filter.language.min_score=2",
    "filter.language.min_score=abc",
    "filter.language.keep=en",
    "filter.language.keep=[en",
    "filter.language.keep=@x",
    "filter.language.keep=!!python/object:os.system x",
    "filter.gopher.min_words=-5",
    "filter.gopher.min_words=.nan",
    "dedup.threshold=.nan",
    "dedup.bands=0",
    "dedup.scope=world",
    "dedup.memory_gb=-1",
    "scrub.mode=foo",
    "scrub.benchmarks=[nowhere]",
    "references.benchmark_sets=[nowhere]",
    "extract.mode=foo",
    "score.min_quality=7",
    "tokenizer.vocab_size=10",
    "engine.workers=0",
    "engine.kind=cluster",
    "snapshots.files=-1",
    "preset=unknown",
    "accept_gate.name=x",
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_wrong_setting(prose: Path, setting: str) -> None:
    section = setting.partition("=")[0].partition(".")[0]
    named = "scrub" if section == "references" else section
    gristmill("scrub", prose, "--out", "out", "--json", "--set", setting).is_error(2, named)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    "data",
    [b"- a\n", b"hello\n", b"a: [1\n", b"a: \xff\n", b"1: 2\n", b"filter:\n", b"nope:\n  x: 1\n"],
)
def test_a_wrong_configuration_file(prose: Path, data: bytes) -> None:
    Path("c.yaml").write_bytes(data)
    gristmill("scrub", prose, "--out", "out", "--config", "c.yaml", "--json").is_error(2)
    assert not Path("out").exists()


USAGE = [
    ("nonsense",),
    (),
    ("scrub",),
    ("scrub", "in.jsonl"),
    ("scrub", "in.jsonl", "--out", ""),
    ("scrub", "in.jsonl", "--out", "s3://bucket/x"),
    ("scrub", "in.jsonl", "--out", "in.jsonl"),
    ("scrub", "in.jsonl", "--out", "in.jsonl/x"),
    ("scrub", "in.jsonl", "--out", "out", "--nonsense"),
    ("scrub", "in.jsonl", "--out", "out", "--workers", "0"),
    ("scrub", "in.jsonl", "--out", "out", "--workers", "x"),
    ("scrub", "in.jsonl", "--out", "out", "--preset", "nonsense"),
    ("scrub", "in.jsonl", "--out", "out", "--preset", ""),
    ("scrub", "in.jsonl", "--out", "out", "--config", "nowhere.yaml"),
    ("scrub", "in.jsonl", "--out", "out", "--config", "folder"),
    ("scrub", "nowhere.jsonl", "--out", "out"),
    ("scrub", "in.jsonl", "nowhere.jsonl", "--out", "out"),
    ("scrub", "folder", "--out", "out"),
    ("scrub", "plain.txt", "--out", "out"),
    ("filter", "plain.txt", "--out", "out"),
    ("dedup", "in.jsonl", "--against", "nowhere", "--out", "out"),
    ("dedup", "in.jsonl", "--against", "folder", "--out", "out"),
    ("dedup", "in.jsonl", "--against", "in.jsonl", "--out", "out"),
    ("dedup", "in.jsonl", "--against", "scrubbed", "--out", "out"),
    ("dedup", "scrubbed", "--out", "scrubbed"),
    ("score", "in.jsonl", "--out", "out"),
    ("score", "in.jsonl", "--model", "nowhere.bin", "--out", "out"),
    ("score", "in.jsonl", "--model", "folder", "--out", "out"),
    ("classifier", "--out", "out"),
    ("classifier", "train", "plain.txt", "--out", "out"),
    ("classifier", "train", "nowhere.jsonl", "--out", "out"),
    ("classifier", "train", "folder", "--out", "out"),
    ("classifier", "train", "in.jsonl", "--out", "folder"),
    ("tokenizer", "train", "nowhere.jsonl", "--out", "out"),
    ("tokenizer", "train", "in.jsonl", "--out", "folder"),
    ("tokenizer", "train", "in.jsonl", "--out", "out", "--set", "tokenizer.vocab_size=60000"),
    ("tokenize", "in.jsonl", "--tokenizer", "nowhere.json", "--out", "out"),
    ("tokenize", "in.jsonl", "--tokenizer", "folder", "--out", "out"),
    ("extract", "nowhere.warc", "--out", "out"),
    ("extract", "folder", "--out", "out"),
    ("extract", "plain.txt", "--out", "out"),
    ("extract", "in.jsonl", "--out", "out"),
    ("extract", "a/x.warc", "b/y.warc", "--out", "out"),
    ("extract", "a/x.warc", "a/x.warc", "--out", "out"),
    ("extract", "a/x.warc", "b/x.warc", "--snapshot", "S", "--out", "out"),
    ("extract", "a/x.warc", "--snapshot", "../x", "--out", "out"),
    ("extract", "a/x.warc", "--snapshot", "", "--out", "out"),
    ("mixture", "--out", "out"),
    ("mixture", "--root", "nowhere", "--out", "out"),
    ("mixture", "--root", "folder", "--out", "out"),
    ("plan",),
    ("plan", "--root", "nowhere"),
    ("plan", "--root", "in.jsonl"),
    ("prune",),
    ("prune", "--root", "nowhere"),
    ("prune", "--root", "s3://"),
    ("prune", "--root", "ftp://x/y"),
    ("trace", "--root", "folder"),
    ("trace", "--url", "http://x/"),
    ("trace", "--root", "nowhere", "--url", "http://x/"),
    ("trace", "--root", "folder", "--url", "http://x/"),
    ("trace", "--root", "folder", "--url", "http://x/", "--doc", "y"),
    ("trace", "--root", "folder", "--url", ""),
    ("trace", "--root", "folder", "--url", "http://x/\udcff"),
    ("trace", "--root", "folder", "--doc", ""),
    ("trace", "--root", "folder", "--doc", "zz"),
    ("trace", "--root", "folder", "--token", ""),
    ("trace", "--root", "folder", "--token", "zz"),
    ("trace", "--root", "folder", "--token", "zz:1"),
    ("trace", "--root", "folder", "--token", "zz:-1"),
    ("try",),
    ("try", "nowhere.html"),
    ("try", "folder"),
    ("try", "http://x/"),
    ("try", "http://x/", "--root", "folder"),
]


@pytest.mark.parametrize("arguments", USAGE, ids=lambda call: ascii(" ".join(call)))
def test_used_wrongly(prose: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for name in ("folder", "a", "b"):
        Path(name).mkdir()
    for name in ("plain.txt", "a/x.warc", "b/x.warc", "b/y.warc"):
        Path(name).write_text("some text\n")
    if "scrubbed" in arguments:
        stage("scrub", prose, out=Path("scrubbed"))
    before = sorted(tmp_path.rglob("*"))
    gristmill(*arguments, *(["--json"] if arguments else [])).is_error(2)
    assert sorted(tmp_path.rglob("*")) == before


# ---- data that will not do: exit code 1, nothing visible


def test_shards_are_no_documents(prose: Path) -> None:
    size = ("--set", "tokenizer.vocab_size=300", "--json")
    assert gristmill("tokenizer", "train", prose, "--out", "t.json", *size).code == 0
    stage("tokenize", prose, "--tokenizer", "t.json", out=Path("shards"))
    for verb in ("filter", "dedup", "scrub"):
        gristmill(verb, "shards", "--out", "out").is_error(2, "token_shards, not documents")


def test_labels_that_teach_nothing() -> None:
    rows = [{"text": sentences(i), "label": 1} for i in range(20)]
    one = write_lines(Path("one.jsonl"), *rows)
    dev = [{**row, "label": i % 2, "split": "dev"} for i, row in enumerate(rows)]
    for name, given, words in (
        ("one", one, ["no negative row", "'1'"]),
        ("dev", write_lines(Path("dev.jsonl"), *dev), ["no positive and negative row"]),
        ("none", write_lines(Path("none.jsonl"), {"text": "a"}), ["`label`"]),
        ("empty", write_lines(Path("empty.jsonl")), ["`label`"]),
    ):
        made = gristmill("classifier", "train", given, "--out", f"{name}.bin", "--json")
        made.is_error(1, *words)
        assert not Path(f"{name}.bin").exists()


@pytest.mark.parametrize("data", [b"", b"text", b"\xff\xfe\x00", b"{}", b'{"model": 1}'])
def test_models_and_tokenizers_that_are_none(prose: Path, data: bytes) -> None:
    Path("model").write_bytes(data)
    gristmill("score", prose, "--model", "model", "--out", "o", "--json").is_error(1, "model")
    made = gristmill("tokenize", prose, "--tokenizer", "model", "--out", "o", "--json")
    made.is_error(1, "tokenizer")
    assert not Path("o/current").exists()


@pytest.mark.parametrize("name", ["x.warc", "x.warc.gz"])
@pytest.mark.parametrize(
    "data",
    [b"no warc at all\n" * 40, gzip.compress(b"text\n" * 99, mtime=0), b"\0"],
    ids=["text", "gzip", "nul"],
)
def test_a_file_without_a_record(tmp_path: Path, name: str, data: bytes) -> None:
    Path(name).write_bytes(data)
    gristmill("extract", name, "--out", "out", "--json").is_error(1, name)
    assert not Path("out/current").exists()


def test_an_empty_file_is_counted() -> None:
    Path("S").mkdir()
    for name in ("S/x.warc", "S/y.warc.gz", "S/z.html"):
        Path(name).write_bytes(b"")
    result = stage("extract", "S/x.warc", "S/y.warc.gz", "S/z.html", out=Path("out"))
    assert result["kept"] == 0
    assert {damage["file"] for damage in result["damaged"]} >= {"x.warc", "y.warc.gz"}
    assert read_folder(Path("out")).content["partition"] == "S"


def test_a_run_of_what_is_not_there(prose: Path, tmp_path: Path) -> None:
    """Refused from the configuration alone, before the store is made."""
    Path("crawl/EMPTY").mkdir(parents=True)
    here = ("--root", "root", "--set", "snapshots.location=crawl")
    labels = ("--set", "references.quality_labels=labels.jsonl")
    write_lines(Path("labels.jsonl"), {"text": "a", "label": 1})
    for call, words in (
        (("--snapshot", "ABSENT", *here, *labels), ["ABSENT"]),
        (("--snapshot", "../x", *here, *labels), ["../x"]),
        (("--snapshot", "EMPTY", "--root", "root", *labels), ["snapshots.location"]),
        (("--snapshot", "EMPTY", *here), ["references.quality_labels"]),
        (("--snapshot", "EMPTY", *here, "--set", "references.quality_labels=no"), ["no"]),
        (("--source", "absent", *here), ["absent"]),
        (("--train", "absent", *here), ["absent"]),
        (("--snapshot", "EMPTY", *here, "--select", "nonsense"), ["nonsense"]),
    ):
        gristmill("run", *call).is_error(2, *words)
        assert not Path("root").exists(), call


@pytest.mark.slow
def test_a_snapshot_without_files(tmp_path: Path) -> None:
    Path("crawl/EMPTY").mkdir(parents=True)
    labels = ({"text": sentences(n), "label": n % 2} for n in range(40))
    write_lines(Path("labels.jsonl"), *labels)
    sets = ("snapshots.location=crawl", "references.quality_labels=labels.jsonl")
    arguments = [option for setting in sets for option in ("--set", setting)]
    done = process("run", "--snapshot", "EMPTY", "--root", "root", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    sentence, hint = done.stderr.decode().strip().splitlines()[-2:]
    assert sentence.startswith("error: ")
    assert "EMPTY" in sentence
    assert hint.startswith("hint: ")
    assert b"Traceback" not in done.stderr
    assert not list(tmp_path.glob("root/snapshots/*/current"))


# ---- services


@pytest.mark.e2e
def test_a_store_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = (("plan",), ("prune",), ("trace", "--url", "http://x/"), ("try", "http://x/"))
    with moto_server() as server, server.environment():
        for call in calls:
            refused = gristmill(*call, "--root", "s3://no-such-bucket/x", "--json")
            refused.is_error(1, "NoSuchBucket", "no-such-bucket")
        root = f"s3://{server.bucket()}/x"
        gristmill("trace", "--root", root, "--url", "http://x/").is_error(2)
        assert gristmill("prune", "--root", root, "--json").json["objects"] == 0
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    once = ("--set", "storage.attempts=1", "--root", "s3://some-bucket/x", "--json")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    for call in calls:
        gristmill(*call, *once).is_error(1, "some-bucket")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "nowhere")
    gristmill("trace", "--url", "http://x/", *once).is_error(1, "redentials")


# ---- as a process


def test_stdout_is_one_json_object(prose: Path, tmp_path: Path) -> None:
    done = process("filter", prose, "--out", "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert {"records_in", "kept", "dropped", "reasons", "seconds", "out"} <= set(result)
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""
    wrong = process("filter", prose, "--out", "o", "--set", "x=1", "--json", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, b"")
    assert wrong.stderr.startswith(b"error: x")


@pytest.mark.slow
def test_no_library_writes_to_stdout(tmp_path: Path) -> None:
    """Every stage verb as a process: one JSON object, although libraries below print progress."""
    paragraphs = "".join(f"<p>{line}</p>" for line in sentences(4).split("\n"))
    Path("S").mkdir()
    for n in range(3):
        Path(f"S/{n}.html").write_text(f"<html><body><main>{paragraphs}{n}</main></body></html>")
    labels = ({"text": sentences(n), "label": n % 2} for n in range(40))
    write_lines(Path("labels.jsonl"), *labels)
    vocabulary = ("--set", "tokenizer.vocab_size=300")
    calls: list[tuple[str, ...]] = [
        ("extract", "S/0.html", "S/1.html", "S/2.html", "--out", "e"),
        ("filter", "e", "--out", "f"),
        ("classifier", "train", "labels.jsonl", "--out", "m.bin"),
        ("score", "f", "--model", "m.bin", "--out", "s"),
        ("dedup", "s", "--out", "d"),
        ("scrub", "d", "--out", "c"),
        ("tokenizer", "train", "c", "--out", "t.json", *vocabulary),
        ("tokenize", "c", "--tokenizer", "t.json", "--out", "shards"),
    ]
    for call in calls:
        done = process(*call, "--json", cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, b""), call
        assert done.stdout.count(b"\n") == 1
        assert json.loads(done.stdout)["out"] == call[call.index("--out") + 1]


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
from assets.cli import main
sys.exit(main(sys.argv[2:]))
"""


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """No file may be larger than 20 kB: the stage says so, shows nothing, and goes on later."""
    texts = (" ".join(f"{i * j * 7919:x}" for j in range(1, 400)) for i in range(1, 41))
    given = write_lines(tmp_path / "in.jsonl", *({"text": text} for text in texts))
    call = ["scrub", str(given), "--out", "out", "--workers", "1"]
    full = subprocess.run(
        [sys.executable, "-c", LIMITED, "20000", *call],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert full.returncode == 1, full.stderr
    sentence, hint = full.stderr.strip().split("\nhint: ")
    assert "cannot write" in sentence
    assert hint
    assert not (tmp_path / "out" / "current").exists()
    assert not list((tmp_path / "out").rglob(".tmp-*"))
    assert stage("scrub", given, out=tmp_path / "out")["kept"] == 40


@pytest.mark.parametrize("verb", ["classifier", "tokenizer"])
def test_a_disk_that_is_full_for_one_file(tmp_path: Path, verb: str) -> None:
    rows = ({"text": sentences(i), "label": i % 2} for i in range(40))
    given = write_lines(tmp_path / "in.jsonl", *rows)
    call = [verb, "train", str(given), "--out", "made", "--set", "tokenizer.vocab_size=400"]
    full = subprocess.run(
        [sys.executable, "-c", LIMITED, "4000", *call], cwd=tmp_path, capture_output=True, text=True
    )
    assert full.returncode == 1, full.stderr
    assert "\nhint: " in full.stderr
    assert "Traceback" not in full.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_name_that_is_too_long(prose: Path) -> None:
    gristmill("scrub", f"{'x' * 300}.jsonl", "--out", "out").is_error(1, "too long")
    gristmill("scrub", prose, "--out", "x" * 300).is_error(1, "too long")


def test_two_commands_into_one_folder(tmp_path: Path) -> None:
    """Whoever comes second is done or told to run again; what is visible is whole."""
    given = [
        write_lines(tmp_path / f"{name}.jsonl", *({"text": sentences(i)} for i in range(300)))
        for name in "ab"
    ]
    command = [str(Path(sys.executable).with_name("gristmill")), "scrub"]
    running = [
        subprocess.Popen(
            [*command, str(file), "--out", "out", "--workers", "1"],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for file in (*given, given[0])
    ]
    for one in running:
        _, err = one.communicate(timeout=120)
        assert one.returncode in (0, 1), err
        assert one.returncode == 0 or "run again" in err
        assert "Traceback" not in err
    assert len(read_folder(tmp_path / "out").rows()) == 300


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only(prose: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o500)
    gristmill("scrub", prose, "--out", "out").is_error(1, "Permission denied")


# ---- a store: trace, try, plan, prune


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature's store, with its configuration in it."""
    folder = tmp_path_factory.mktemp("mini")
    given, root = folder / "in", folder / "root"
    given.mkdir()
    miniature_input.build(given)
    miniature.run(str(root), given)
    config = miniature.config(str(root), given).model_dump(mode="json", exclude_defaults=True)
    (root / "gristmill.yaml").write_text(yaml.safe_dump(config))
    return root


def trace(store: Path, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gristmill("trace", "--root", store, *arguments, "--json").json[
        "found"
    ]
    return found


def test_store_folders_keep_the_contract(store: Path) -> None:
    folders = {p.parent.relative_to(store).as_posix(): p.parent for p in store.rglob("current")}
    assert {f"token_shards/{FIRST}", f"snapshots/{FIRST}", "tokenizer"} < set(folders)
    hashes = {name: read_folder(path).name for name, path in folders.items() if "/" in name}
    content = read_folder(folders[f"filtered_text/{FIRST}"]).content
    inputs = {(ref["asset"], ref["partition"]): ref["hash"] for ref in content["inputs"]}
    assert inputs[("extracted_text", FIRST)] == hashes[f"extracted_text/{FIRST}"]
    for name in ("tokenizer/tokenizer.json", "quality_classifier/model.bin", "mixture/plan.json"):
        assert (store / name).is_file()


def test_trace_tells_the_fate_at_every_stage(store: Path) -> None:
    (near,) = trace(store, "--url", f"{BETA}/edited")
    assert [fate["stage"] for fate in near["fates"]] == [
        "extracted_text",
        "filtered_text",
        "scored_text",
        "deduped_corpus",
    ]
    last = near["fates"][-1]
    assert (last["kept"], last["reason"]) == (False, "near.minhash")
    assert last["value"] > last["threshold"]
    assert last["detail"]["kept_url"] == f"{BETA}/page-2"
    (broken,) = trace(store, "--url", f"{BETA}/broken")
    assert [fate["reason"] for fate in broken["fates"]] == ["damage.gzip"]
    twice = trace(store, "--url", f"{ALPHA}/page-0")
    assert [len(story["shards"]) for story in twice] == [1, 0]
    assert twice[1]["fates"][-1]["reason"] == "exact.text"
    assert trace(store, "--doc", near["doc_id"]) == [near]


def test_trace_leads_a_token_to_the_bytes_of_its_record(store: Path) -> None:
    story = trace(store, "--url", f"{ALPHA}/page-0")[0]
    (shard,) = story["shards"]
    end = shard["first_token"] + shard["n_tokens"] - 1
    for offset in (shard["first_token"], end):
        (found,) = trace(store, "--token", f"{shard['shard']}:{offset}")
        assert found["doc_id"] == story["doc_id"]
    (after,) = trace(store, "--token", f"{shard['shard']}:{end + 1}")
    assert after["doc_id"] != story["doc_id"]
    token = f"{shard['shard']}:{end}"
    done = process("trace", "--root", store, "--token", token, "--raw", cwd=store)
    assert done.returncode == 0, done.stderr
    file = store.parent / "in" / "snapshots" / FIRST / story["warc_file"]
    start = story["warc_offset"]
    assert done.stdout == file.read_bytes()[start : start + story["warc_length"]]
    assert f"WARC-Target-URI: {ALPHA}/page-0".encode() in gzip.decompress(done.stdout)


def test_trace_of_a_source(store: Path) -> None:
    row = read_folder(store / "source_texts" / miniature_input.SOURCE).rows()[0]
    (story,) = trace(store, "--doc", row["doc_id"])
    assert (story["source"], story["source_id"]) == (row["source"], row["source_id"])
    refused = gristmill("trace", "--root", store, "--doc", row["doc_id"], "--raw")
    refused.is_error(2, "source", "crawl")


def test_trace_where_the_crawl_is_gone(store: Path, tmp_path: Path) -> None:
    crawl = store.parent / "in" / "snapshots"
    crawl.rename(tmp_path / "elsewhere")
    try:
        made = gristmill("trace", "--root", store, "--url", f"{ALPHA}/page-0", "--raw")
    finally:
        (tmp_path / "elsewhere").rename(crawl)
    assert made.code in (1, 2)
    made.is_error(made.code, "not there")


LIGHT = """
import sys, time
from assets.cli import main
code = main(sys.argv[1:])
names = "dagster torch mlflow numba trafilatura spacy fasttext transformers boto3".split()
print(time.process_time(), *(name for name in names if name in sys.modules), file=sys.stderr)
sys.exit(code)
"""


def test_trace_is_light(store: Path) -> None:
    call = ["trace", "--root", str(store), "--url", f"{ALPHA}/page-0", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *call], capture_output=True, text=True, check=True
    )
    seconds, *heavy = done.stderr.split()
    assert heavy == []
    assert float(seconds) < 2  # of the processor: others may be at work here


def test_try_a_page(store: Path, tmp_path: Path) -> None:
    paragraphs = "".join(f"<p>{line}</p>" for line in sentences(4).split("\n"))
    page = tmp_path / "page.html"
    page.write_text(f"<html><title>T</title><body><main>{paragraphs}</main></body></html>")
    result = gristmill("try", page, "--json").json
    assert sentences(4).split("\n")[3] in result["text"]
    assert result["kept"] is True
    assert all({"rule", "value", "threshold", "passes"} <= set(row) for row in result["rules"])
    strict = gristmill("try", page, "--set", "filter.gopher.min_words=9999", "--json").json
    assert strict["reason"] == "gopher_quality.gopher_short_doc"
    url = f"{ALPHA}/page-0"
    crawled = gristmill("try", url, "--root", store, "--json").json
    (row,) = (r for r in read_folder(store / "extracted_text" / FIRST).rows() if r["url"] == url)
    assert (crawled["text"], crawled["url"]) == (row["text"], url)


def test_plan_says_what_a_setting_would_cost(store: Path) -> None:
    still = gristmill("plan", "--root", store, "--json").json
    assert still["missing"] == 0
    setting = ("--set", "filter.gopher.min_words=60")
    moved = gristmill("plan", "--root", store, *setting, "--json").json
    touched = {row["stage"] for row in moved["stages"] if row["missing"]}
    assert "filtered_text" in touched
    assert not touched & {"snapshots", "extracted_text"}
    assert moved["input_bytes"] > 0
    assert gristmill("plan", "--root", store, "--json").json == still


def test_prune_takes_only_what_nothing_names(prose: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    out = root / "filtered_text" / "S"
    stage("filter", prose, out=out)
    stage("filter", prose, "--set", "filter.gopher.min_words=10000", out=out)
    current = read_folder(out)
    before = {p for p in root.rglob("*") if p.is_file()}
    shown = gristmill("prune", "--root", root, "--json").json
    assert shown["objects"] > 0
    assert not shown["applied"]
    assert {p for p in root.rglob("*") if p.is_file()} == before
    assert gristmill("prune", "--root", root, "--apply", "--json").json["applied"]
    assert read_folder(out).name == current.name
    assert {p for p in root.rglob("*") if p.is_file()} < before
    assert gristmill("prune", "--root", root, "--json").json["objects"] == 0


def test_a_manifest_that_was_altered_is_refused(prose: Path) -> None:
    stage("scrub", prose, out=Path("out"))
    name = read_folder(Path("out")).name
    file = Path("out/manifests") / f"{name}.json"
    value = json.loads(file.read_text())
    value["content"]["counts"]["kept"] += 1
    assert canonical_hash(value["content"]) != name
    file.write_text(json.dumps(value))
    gristmill("dedup", "out", "--out", "next").is_error(1, name[:12])
    file.write_text("{")
    gristmill("dedup", "out", "--out", "next").is_error(1, name[:12])
    file.unlink()
    gristmill("dedup", "out", "--out", "next").is_error(1, name[:12])
    Path("out/current").write_bytes(b"\xff\n")
    gristmill("dedup", "out", "--out", "next").is_error(1, "current")
