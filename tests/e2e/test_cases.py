"""Hard inputs from public bug reports, through the command, against the outcomes written for them.

The expectations are those of `cases/expected.jsonl` beside the checkout; each test reads its own.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.command import Folder, gristmill, read_folder, sentences, stage, write_lines
from training.shards import write_shard

pytestmark = pytest.mark.shared
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


@pytest.fixture(scope="module")
def cases(shared: Path) -> Path:
    return shared / "cases"


def lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    data = gzip.decompress(data) if path.name.endswith(".gz") else data
    return [json.loads(line) for line in data.splitlines()]


def expected(cases: Path, file: str) -> dict[str, Any]:
    """The expectation of the case that has `file`."""
    found = [c for c in lines(cases / "expected.jsonl") if file in c["file"]]
    assert len(found) == 1
    return dict(found[0]["expectation"])


def extracted(cases: Path, out: Path, *files: str) -> Folder:
    stage("extract", *(cases / file for file in files), out=out)
    return read_folder(out)


WARC_CASES = (
    ("cut-in-last-member.warc.gz",),
    ("empty-member.warc.gz",),
    ("chunked-and-gzip.warc.gz", "chunked-only.warc.gz"),
    ("length-off-by-one.warc.gz",),
    ("damaged-middle-member.warc.gz",),
    ("odd-http-headers.warc.gz",),
    ("marked-truncated.warc.gz",),
)


@pytest.mark.parametrize("files", WARC_CASES, ids=lambda files: files[0])
def test_warc(cases: Path, tmp_path: Path, files: tuple[str, ...]) -> None:
    want = expected(cases, f"warc/{files[0]}")
    folder = extracted(cases, tmp_path / "out", *(f"warc/{name}" for name in files))
    texts = folder.texts()
    if "docs" in want:
        assert sorted(texts) == sorted(want["docs"])
    assert set(texts) >= set(want.get("docs_at_least", [])) | set(want.get("docs_better", []))
    assert not set(texts) & set(want.get("never", []))
    assert len(folder.content["damaged"]) == want.get("damaged", 0)
    for damage in folder.content["damaged"]:
        assert damage["file"] == files[0]
        assert 0 < damage["offset"] < (cases / "warc" / files[0]).stat().st_size
    for text in texts.values():
        assert len(text) > 100
        assert not CONTROLS.search(text)
        assert "�" not in text
        assert not re.search(r"^[0-9a-f]{1,4}$", text, re.MULTILINE)  # chunk sizes


def test_warc_records_are_found_again_at_their_address(cases: Path, tmp_path: Path) -> None:
    names = [name for files in WARC_CASES for name in files]
    folder = extracted(cases, tmp_path / "out", *(f"warc/{name}" for name in names))
    for row in folder.rows():
        data = (cases / "warc" / row["warc_file"]).read_bytes()
        member = data[row["warc_offset"] : row["warc_offset"] + row["warc_length"]]
        assert f"WARC-Target-URI: {row['url']}".encode() in gzip.decompress(member)


@pytest.mark.parametrize(
    "files",
    [
        ("meta-only-latin1.warc.gz", "header-lies-utf8.warc.gz"),
        ("one-bad-byte.warc.gz",),
        ("nul-and-controls.warc.gz",),
    ],
    ids=lambda files: files[0],
)
def test_charset(cases: Path, tmp_path: Path, files: tuple[str, ...]) -> None:
    want = expected(cases, f"charset/{files[0]}")
    folder = extracted(cases, tmp_path / "out", *(f"charset/{name}" for name in files))
    assert len(folder.rows()) >= len(files)
    text = "\n".join(folder.texts().values())
    for words in want.get("contains", []):
        assert words in text
    for words in want.get("never_contains", []):
        assert words not in text
    assert text.count("�") <= want.get("max_fffd", 0)
    assert not CONTROLS.search(text)


def test_html(cases: Path, tmp_path: Path) -> None:
    """Every page has an outcome, whatever it does to a parser; the text is in it."""
    pages = sorted((cases / "html").glob("*.html"))
    folder = extracted(cases, tmp_path / "out", *(f"html/{page.name}" for page in pages))
    fates = folder.fates("warc_file")
    assert sorted(fates) == [page.name for page in pages]
    texts = {row["warc_file"]: row["text"] for row in folder.rows()}
    for file in ("nested-300.html", "nested-tables-60.html", "list-in-table.html"):
        for words in expected(cases, f"html/{file}")["contains"]:
            assert words in texts[file]
    (line,) = (x for x in texts["list-in-table.html"].splitlines() if "Thursday" in x)
    assert "seven to five" in line
    for row in folder.rows():
        assert (row["warc_offset"], row["url"]) == (0, None)


def test_a_page_never_changes_another(cases: Path, tmp_path: Path) -> None:
    """Ten captures of one page among others give ten equal texts, in any order."""
    page = (cases / "html" / "same-page-again.html").read_bytes()
    repeats = expected(cases, "html/same-page-again.html")["repeats"]
    folder = tmp_path / "pages"
    folder.mkdir()
    for i in range(repeats):
        (folder / f"page-{i}.html").write_bytes(page)
    for name in ("list-in-table.html", "nested-300.html"):
        shutil.copy(cases / "html" / name, folder / f"page-5-{name}")
    paths = sorted(folder.iterdir())
    stage("extract", *paths, out=tmp_path / "one")
    stage("extract", *reversed(paths), out=tmp_path / "two")
    one, two = read_folder(tmp_path / "one"), read_folder(tmp_path / "two")
    assert one.name == two.name
    texts = {row["warc_file"]: row["text"] for row in one.rows()}
    assert len({texts[f"page-{i}.html"] for i in range(repeats)}) == 1


def test_filters(cases: Path, tmp_path: Path) -> None:
    files = [cases / "filters" / n for n in ("no-spaces.jsonl", "blank-lines.jsonl", "empty.jsonl")]
    stage("filter", *files, "--set", "filter.language.keep=[]", out=tmp_path / "out")
    folder = read_folder(tmp_path / "out")
    fates = {row["url"].rpartition("/")[2]: row["reason"] for row in folder.rows("decisions")}
    want = expected(cases, "filters/empty.jsonl")
    assert all(fates[name] is None for name in want["kept"])
    assert all(fates[name] for name in want["rejected"])
    signals = folder.rows("signals")
    assert len(signals) == len(fates)
    for name in ("zh", "th"):
        assert "word" not in (fates[name] or ""), fates


def test_filters_alpha_share(cases: Path, tmp_path: Path) -> None:
    stage("filter", cases / "filters" / "alpha-share.jsonl", out=tmp_path / "out")
    rows = read_folder(tmp_path / "out").rows("decisions")
    fates = {row["url"].rpartition("/")[2]: row for row in rows}
    want = expected(cases, "filters/alpha-share.jsonl")
    assert all(fates[name]["kept"] for name in want["kept"])
    for name in want["rejected"]:
        assert fates[name]["reason"].startswith("gopher_quality.")
        assert fates[name]["value"] < fates[name]["threshold"] == 0.8


def fasttext_lines(path: Path, out: Path) -> Path:
    rows = (line.split(" ", 1) for line in path.read_text().splitlines())
    labels = ({"label": a.removeprefix("__label__"), "text": b} for a, b in rows)
    return write_lines(out, *labels)


def test_classifier(cases: Path, tmp_path: Path) -> None:
    labels = fasttext_lines(cases / "classifier" / "train.txt", tmp_path / "labels.jsonl")
    models = [tmp_path / "one.bin", tmp_path / "two.bin"]
    for model in models:
        gristmill("classifier", "train", labels, "--out", model, "--json").json  # noqa: B018
    assert models[0].read_bytes() == models[1].read_bytes()
    scores: dict[str, float | None] = {}
    for name in ("newlines", "one-and-many"):
        file = cases / "classifier" / f"{name}.jsonl"
        stage("score", file, "--model", models[0], out=tmp_path / name)
        folder = read_folder(tmp_path / name)
        scores |= {r["url"].rpartition("/")[2]: r["quality_score"] for r in folder.rows()}
        assert {row["split"] for row in folder.rows()} <= {"train", "held_out"}
    want = expected(cases, "classifier/newlines.jsonl")
    first, second = (scores[name] for name in want["equal"])
    assert first is not None
    assert first == pytest.approx(second, abs=1e-5)
    assert all(scores.get(name) is None for name in want["null"])
    for record in lines(cases / "classifier" / "one-and-many.jsonl"):
        alone = write_lines(tmp_path / f"alone-{record['id']}.jsonl", record)
        stage("score", alone, "--model", models[0], out=tmp_path / record["id"])
        (row,) = read_folder(tmp_path / record["id"]).rows()
        assert row["quality_score"] == scores[record["id"]]


def test_a_text_without_score_never_passes_a_threshold(cases: Path, tmp_path: Path) -> None:
    labels = fasttext_lines(cases / "classifier" / "train.txt", tmp_path / "labels.jsonl")
    model = tmp_path / "m.bin"
    gristmill("classifier", "train", labels, "--out", model, "--json").json  # noqa: B018
    given = cases / "classifier" / "newlines.jsonl"
    stage("score", given, "--model", model, "--set", "score.min_quality=0.01", out=tmp_path / "o")
    rows = read_folder(tmp_path / "o").rows("decisions")
    fates = {row["url"].rpartition("/")[2]: row["reason"] for row in rows}
    null = expected(cases, "classifier/newlines.jsonl")["null"]
    assert {fates[name] for name in null} == {"quality.below"}


def test_dedup_short(cases: Path, tmp_path: Path) -> None:
    result = stage("dedup", cases / "dedup" / "short.jsonl", out=tmp_path / "out")
    assert "near.minhash" not in result["reasons"]
    assert result["kept"] == result["records_in"]


def test_dedup_same_after_normalising(cases: Path, tmp_path: Path) -> None:
    records = lines(cases / "dedup" / "same-after-normalising.jsonl")
    groups = expected(cases, "dedup/same-after-normalising.jsonl")["groups"]
    kept = []
    for turn in range(len(records)):
        folder = tmp_path / str(turn)
        folder.mkdir()
        turned = records[turn:] + records[:turn]
        stage("dedup", write_lines(folder / "in.jsonl", *turned), out=folder / "out")
        made = read_folder(folder / "out")
        kept.append(sorted(row["url"].rpartition("/")[2] for row in made.rows()))
        texts = {record["url"]: record["text"].replace("\r\n", "\n") for record in records}
        assert all(row["text"] == texts[row["url"]] for row in made.rows())
        dropped = [row for row in made.rows("decisions") if not row["kept"]]
        assert {row["reason"] for row in dropped} == {"exact.text"}
        ids = {row["doc_id"]: row["url"] for row in made.rows()}
        details = [json.loads(row["detail"]) for row in dropped]
        assert all(ids[detail["kept"]] == detail["kept_url"] for detail in details)
    assert kept == [kept[0]] * len(records)
    assert [len(set(group) & set(kept[0])) for group in groups] == [1, 1]


@pytest.mark.slow
def test_dedup_hub(cases: Path, tmp_path: Path) -> None:
    records = lines(cases / "dedup" / "hub.jsonl.gz")
    stage("dedup", write_lines(tmp_path / "thousand.jsonl", *records[:1000]), out=tmp_path / "less")
    result = stage("dedup", cases / "dedup" / "hub.jsonl.gz", out=tmp_path / "all")
    less, measured = (
        read_folder(tmp_path / name).content["summary"]["dedup"]["measured"]
        for name in ("less", "all")
    )
    assert 0 < measured <= 6 * less, "pairs that are measured, which is what takes the time"
    assert result["kept"] == expected(cases, "dedup/hub.jsonl.gz")["kept_count"]
    urls = [row["url"].rpartition("/")[2] for row in read_folder(tmp_path / "all").rows()]
    assert "other" in urls


def test_personal_data(cases: Path, tmp_path: Path) -> None:
    want = expected(cases, "pii/versions.jsonl")
    stage("scrub", cases / "pii" / "versions.jsonl", out=tmp_path / "out")
    texts = {url.rpartition("/")[2]: t for url, t in read_folder(tmp_path / "out").texts().items()}
    for number in want["v1_must_keep"] + want["v1_better_keep"]:
        assert number in texts["v1"]
    for address in want["v2_never"]:
        assert address not in texts["v2"]
    assert ":8080" in texts["v2"]


def tokenizer(given: Path, out: Path, size: int = 300) -> Path:
    setting = f"tokenizer.vocab_size={size}"
    gristmill("tokenizer", "train", given, "--out", out, "--set", setting, "--json").json  # noqa: B018
    return out


def read_megatron(prefix: Path) -> list[list[int]]:
    """Token ids of each document, read as Megatron-LM lays `.bin/.idx` out."""
    index = prefix.with_name(f"{prefix.name}.idx").read_bytes()
    magic, version, code, sequences, documents = struct.unpack_from("<9sQBQQ", index)
    assert (magic, version) == (b"MMIDIDX\0\0", 1)
    assert documents == sequences + 1
    at = struct.calcsize("<9sQBQQ")
    lengths = np.frombuffer(index, "<i4", sequences, at)
    pointers = np.frombuffer(index, "<i8", sequences, at + 4 * sequences)
    numbers = np.frombuffer(index, "<i8", documents, at + 12 * sequences)
    assert numbers.tolist() == list(range(documents))
    kind = np.dtype({4: "<i4", 8: "<u2"}[code])
    data = prefix.with_name(f"{prefix.name}.bin").read_bytes()
    return [
        np.frombuffer(data, kind, n, at).tolist() for n, at in zip(lengths, pointers, strict=True)
    ]


def shards(folder: Path) -> list[tuple[dict[str, Any], list[list[int]], list[dict[str, Any]]]]:
    """Sidecar, token ids of each document and rows of `.docs.parquet` of every shard."""
    made = read_folder(folder)
    found = []
    for entry in made.content["parts"]:
        if not entry["path"].endswith(".bin"):
            continue
        name = entry["path"].removesuffix(".bin")
        assert (folder / f"{name}.idx").is_file()
        info = json.loads((folder / f"{name}.json").read_text())
        rows = pq.read_table(folder / f"{name}.docs.parquet").to_pylist()
        documents = read_megatron(folder / name)
        assert info["documents"] == len(documents)
        assert info["tokens"] == sum(map(len, documents))
        starts = np.cumsum([0, *map(len, documents)])[:-1].tolist()
        assert [row["first_token"] for row in rows] == starts
        assert [row["n_tokens"] for row in rows] == [len(ids) for ids in documents]
        found.append((info, documents, rows))
    return found


@pytest.mark.parametrize("name", ["specials-in-text.jsonl", "round-trip.jsonl"])
def test_tokenizer_round_trip(cases: Path, tmp_path: Path, name: str) -> None:
    """Text comes back exactly; the end mark stands once, last, also where a text spells it."""
    import tokenizers

    given = cases / "tokenizer" / name
    prose = [{"id": i, "text": sentences(i)} for i in range(20)]
    learn = write_lines(tmp_path / "learn.jsonl", *prose)
    file = tokenizer(learn, tmp_path / "tokenizer.json")
    stage("tokenize", given, "--tokenizer", file, out=tmp_path / "shards")
    codec = tokenizers.Tokenizer.from_file(str(file))
    end = codec.token_to_id("<|endoftext|>") or 0
    ((_, documents, rows),) = shards(tmp_path / "shards")
    records = lines(given)
    if name.startswith("specials"):
        count = expected(cases, f"tokenizer/{name}")["eot_count"]
        assert sum(ids.count(end) for ids in documents) == count == len(documents)
    kept = {row["doc_id"] for row in rows}
    assert len(kept) == len(records)
    for record, ids in zip(records, documents, strict=True):
        assert ids.count(end) == 1
        assert ids[-1] == end
        text = codec.decode(ids[:-1], skip_special_tokens=False)
        assert text == record["text"].replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.slow
def test_tokenizer_one_blob(cases: Path, tmp_path: Path) -> None:
    records = lines(cases / "tokenizer" / "one-blob.jsonl.gz")
    without = write_lines(tmp_path / "without.jsonl", *records[:-1])
    tokenizer(without, tmp_path / "warm.json", 600)
    began = time.perf_counter()
    tokenizer(without, tmp_path / "one.json", 600)
    less = time.perf_counter() - began
    began = time.perf_counter()
    tokenizer(cases / "tokenizer" / "one-blob.jsonl.gz", tmp_path / "two.json", 600)
    ratio = expected(cases, "tokenizer/one-blob.jsonl.gz")["max_ratio"]
    assert time.perf_counter() - began <= ratio * less + 1


@pytest.mark.parametrize("name", ["ids-over-16-bits.json", "empty-first.json"])
def test_shards(cases: Path, tmp_path: Path, name: str) -> None:
    """Ids above 16 bits come back; documents without tokens are left out."""
    case = json.loads((cases / "shards" / name).read_text())
    want = expected(cases, f"shards/{name}")
    end = case["end_id"]
    documents = [ids if ids[-1] == end else [*ids, end] for ids in case["docs"] if ids]
    write_shard(
        tmp_path / "case",
        np.asarray([token for ids in documents for token in ids]),
        np.asarray([len(ids) for ids in documents]),
        vocab_size=case["vocab_size"],
    )
    read = read_megatron(tmp_path / "case")
    assert read == documents
    if "lengths" in want:
        assert [len(ids) for ids in read] == want["lengths"]
    if "ids" in want:
        assert [i for ids in read for i in ids] == want["ids"]


def test_tables_null_title(cases: Path, tmp_path: Path) -> None:
    """A column that is null in one file and text in the other is text in both."""
    parts = [cases / "tables" / "null-title" / f"part-{i}.parquet" for i in (0, 1)]
    refused = gristmill("scrub", *parts, "--out", tmp_path / "no", "--json")
    refused.is_error(1, "part-0.parquet", "'text'")
    whole = []
    for path in parts:
        table = pq.read_table(path)
        text = pa.array(["A quiet text."] * table.num_rows)
        whole.append(tmp_path / path.name)
        pq.write_table(table.append_column("text", text), whole[-1])
    stage("scrub", *whole, out=tmp_path / "out")
    folder = read_folder(tmp_path / "out")
    assert len(folder.rows()) == expected(cases, "tables/null-title/part-0.parquet")["rows"]
    assert [(r["doc_id"], r["title"], r["langs"]) for r in folder.rows()] == [
        ("a", None, []),
        ("b", None, []),
        ("c", "Harbour log", ["en", "fr"]),
    ]
    one, two = (table.schema for table in folder.tables())
    assert one.names == two.names
    assert one.types[:-1] == two.types[:-1]
    stage("dedup", tmp_path / "out", out=tmp_path / "next")
    assert len(read_folder(tmp_path / "next").rows()) >= 1


def test_tables_half_written(cases: Path, tmp_path: Path) -> None:
    """Only what the manifest names is read; a named file that is damaged is named."""
    given = write_lines(tmp_path / "in.jsonl", *({"text": sentences(i)} for i in range(3)))
    stage("scrub", given, out=tmp_path / "made")
    for file in (cases / "tables" / "half-written").glob("*.parquet"):
        shutil.copyfile(file, tmp_path / "made" / file.name)
    assert stage("dedup", tmp_path / "made", out=tmp_path / "next")["records_in"] == 3
    (entry,) = read_folder(tmp_path / "made").content["parts"]
    for broken in (b"", (cases / "tables" / "half-written" / "part-2.parquet").read_bytes()):
        (tmp_path / "made" / entry["path"]).write_bytes(broken)
        refused = gristmill("dedup", tmp_path / "made", "--out", tmp_path / "no", "--json")
        refused.is_error(1, entry["path"])
        assert not (tmp_path / "no" / "current").exists()


@pytest.mark.parametrize("name", ["part-1.parquet", "part-2.parquet"])
def test_tables_damaged_file_is_named(cases: Path, tmp_path: Path, name: str) -> None:
    file = cases / "tables" / "half-written" / name
    gristmill("scrub", file, "--out", tmp_path / "no", "--json").is_error(1, name)
    assert not (tmp_path / "no" / "current").exists()


def test_resume_crashed(cases: Path, tmp_path: Path) -> None:
    """The remains of a run that died are never read; a rerun gives what one that lived gives."""
    given = cases / "resume" / "input.jsonl"
    stage("scrub", given, out=tmp_path / "whole")
    whole = read_folder(tmp_path / "whole")
    out = tmp_path / "crashed"
    shutil.copytree(cases / "resume" / "crashed", out)
    (out / "decisions").mkdir()
    (out / "decisions" / ".tmp-0123456789abcdef").write_bytes(b"half")
    name, data = next((p.name, p.read_bytes()) for p in (tmp_path / "whole").glob("part-*.parquet"))
    (out / name).write_bytes(data[: len(data) // 2])  # cut, under the very name the rerun uses
    stage("scrub", given, out=out)
    again = read_folder(out)
    assert again.name == whole.name
    assert again.files() == whole.files()
    for path in whole.files():
        assert (out / path).read_bytes() == (tmp_path / "whole" / path).read_bytes()
    ids = sorted(row["source_id"] for row in again.rows())
    assert ids == expected(cases, "resume/input.jsonl")["ids"]


DAMAGED = {  # records of the file that are whole, responses among them
    "good.warc.gz": 40,
    "cut-tail.warc.gz": 39,
    "flipped-byte.warc.gz": 39,
    "one-member.warc.gz": 40,
    "empty.warc.gz": 0,
}


def test_damaged_files(shared: Path, tmp_path: Path) -> None:
    """Every whole record has a fate; one address reads every kept record again, in any layout."""
    files = sorted((shared / "data" / "damaged").glob("*.warc*"))
    stage("extract", *files, out=tmp_path / "out")
    folder = read_folder(tmp_path / "out")
    damaged = {damage["file"] for damage in folder.content["damaged"]}
    assert {"cut-tail.warc.gz", "flipped-byte.warc.gz", "empty.warc.gz"} == damaged
    decisions = folder.rows("decisions")
    for name, responses in DAMAGED.items():
        mine = [row for row in decisions if row["warc_file"] == name]
        whole = [r for r in mine if r["status"] and not (r["reason"] or "").startswith("damage.")]
        assert len(whole) == responses, name
    good, one = (
        [row["text"] for row in folder.rows() if row["warc_file"] == name]
        for name in ("good.warc.gz", "one-member.warc.gz")
    )
    assert good == one
    inside = [row for row in decisions if row["warc_file"] == "one-member.warc.gz"]
    assert all(row["member_offset"] is not None for row in inside)
    assert len({row["doc_id"] for row in decisions if row["doc_id"]}) == len(decisions)


FATES = {
    "error": "record.status",
    "redirect": "record.redirect",
    "other": "record.mime",
    "empty": "record.empty",
    "revisit": "record.revisit",
}
"""Kind of a capture in the index -> reason; pages are kept, or dropped for what they hold."""


@pytest.mark.slow
def test_every_record_of_a_real_crawl_is_accounted_for(shared: Path, tmp_path: Path) -> None:
    """Two files of a snapshot, one as a large crawler writes them, one as it came over the wire."""
    crawl = shared / "data" / "snapshots" / "CRAWL-2026-40"
    files = sorted(crawl.glob("*-0000[34].warc.gz"))
    made = gristmill("extract", *files, "--out", tmp_path / "out", "--workers", "2", "--json").json
    folder = read_folder(tmp_path / "out")
    assert folder.content["partition"] == "CRAWL-2026-40"
    names = {file.name for file in files}
    index = [row for row in lines(crawl / "index.jsonl.gz") if row["filename"] in names]
    rows = folder.rows("decisions")
    fates = {(row["warc_file"], row["warc_offset"]): row for row in rows}
    assert len(fates) == len(rows) == made["records_in"]
    texts = {row["doc_id"]: row for row in folder.rows()}
    for truth in index:
        row = fates.pop((truth["filename"], truth["offset"]))
        assert (row["url"], row["warc_length"]) == (truth["url"], truth["length"])
        if truth["kind"] in FATES:
            assert row["reason"] == FATES[truth["kind"]]
        elif truth["truncated"]:
            assert row["reason"] == "damage.warc_truncated"
        elif row["kept"]:
            document = texts.pop(row["doc_id"])
            if row["warc_file"].endswith("-00003.warc.gz"):  # the other's are of encoded bodies
                assert document["payload_digest"] == f"sha1:{truth['payload_sha1']}"
            assert document["snapshot"] == "CRAWL-2026-40"
        else:
            assert row["reason"].startswith("extract.")
            assert truth["text_chars"] < 200
    assert texts == {}  # nothing is kept that the index does not list
    left = {row["reason"] for row in fates.values()}
    assert left == {"record.request", "record.metadata", "record.warcinfo"}
    for row in folder.rows()[::97]:
        with (crawl / row["warc_file"]).open("rb") as stream:
            stream.seek(row["warc_offset"])
            member = gzip.decompress(stream.read(row["warc_length"]))
        assert f"WARC-Target-URI: {row['url']}".encode() in member
