"""Real crawl files and hard cases from public reports, beside the checkout."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from pipeline.bodies import parse_http
from pipeline.config.extract import ExtractConfig
from pipeline.extract import extract_html
from pipeline.part import PartResult
from pipeline.warc import Record, read_records
from tests.pipeline.warcs import extracted

pytestmark = pytest.mark.shared
CONFIG = ExtractConfig()


def extract(path: Path) -> PartResult:
    if path.suffix == ".html":
        return extract_html(path, "S", CONFIG)
    return extracted(path, CONFIG)


def cases(shared: Path, kind: str) -> Iterator[tuple[list[PartResult], dict[str, Any]]]:
    for line in (shared / "cases" / "expected.jsonl").read_text().splitlines():
        case = json.loads(line)
        if case["kind"] == kind:
            results = [extract(shared / "cases" / name) for name in case["file"]]
            yield results, case["expectation"]


def urls(results: list[PartResult]) -> list[str]:
    return [url for r in results for url in r.tables["parts"]["url"].to_list()]


def texts(results: list[PartResult]) -> list[str]:
    return [text for r in results for text in r.tables["parts"]["text"].to_list()]


def test_hard_warc_files(shared: Path) -> None:
    for results, expected in cases(shared, "warc"):
        found = urls(results)
        if "docs" in expected or "docs_better" in expected:
            assert found == expected.get("docs_better", expected.get("docs"))
        assert set(expected.get("docs_at_least", ())) <= set(found)
        assert not set(expected.get("never", ())) & set(found)
        assert sum(len(r.damaged) for r in results) == expected.get("damaged", 0)
        for text in texts(results):
            assert text.isprintable() or "\n" in text
            assert not any(line.strip() in ("2bc", "18a", "0") for line in text.split("\n"))


@pytest.mark.parametrize("kind", ["charset", "html"])
def test_hard_pages(shared: Path, kind: str) -> None:
    for results, expected in cases(shared, kind):
        joined = "\n".join(texts(results))
        for text in expected.get("contains", ()):
            assert text in joined
        for text in expected.get("never_contains", ()):
            assert text not in joined
        assert joined.count("\ufffd") <= expected.get("max_fffd", len(joined))
        assert all(r.tables["decisions"].height for r in results)


def test_the_list_stands_in_its_row(shared: Path) -> None:
    (text,) = texts([extract(shared / "cases/html/list-in-table.html")])
    assert "seven to five" in next(line for line in text.split("\n") if "Thursday" in line)


def test_ten_calls_give_ten_equal_texts(shared: Path) -> None:
    path = shared / "cases/html/same-page-again.html"
    assert len({texts([extract(path)])[0] for _ in range(10)}) == 1


def kinds(path: Path) -> Counter[str]:
    return Counter(r.kind for r in read_records(path, path.name))


def test_damaged_files(shared: Path) -> None:
    folder = shared / "data" / "damaged"
    good = kinds(folder / "good.warc.gz")
    assert good == {"warcinfo": 1, "request": 40, "response": 40, "metadata": 40}
    assert kinds(folder / "one-member.warc.gz") == good
    assert kinds(folder / "empty.warc.gz") == {}
    assert kinds(folder / "plain.warc").total() == 31
    assert kinds(folder / "cut-tail.warc.gz")["response"] == 39
    flipped = kinds(folder / "flipped-byte.warc.gz")
    assert flipped == good - Counter(response=1) + Counter(damage=1)


def test_the_layout_of_a_file_changes_no_text(shared: Path) -> None:
    folder = shared / "data" / "damaged"
    good = extract(folder / "good.warc.gz").tables["parts"].select("url", "text", "title")
    one = extract(folder / "one-member.warc.gz").tables["parts"]
    assert good.equals(one.select("url", "text", "title"))
    assert one["doc_id"].n_unique() == one.height
    plain = extract(folder / "plain.warc").tables["parts"]
    assert good.head(plain.height).equals(plain.select("url", "text", "title"))


@pytest.mark.parametrize("snapshot", ["CRAWL-2026-40", "CRAWL-2026-45"])
def test_every_record_of_real_files_is_accounted_for(shared: Path, snapshot: str) -> None:
    folder = shared / "data" / "snapshots" / snapshot
    with gzip.open(folder / "index.jsonl.gz", "rt") as file:
        index = [json.loads(line) for line in file]
    for path in sorted(folder.glob("*.warc.gz")):
        records = list(read_records(path, path.name))
        with path.open("rb") as stream:  # an independent reader, which no damage stops here
            independent = Counter(r.rec_type for r in ArchiveIterator(stream, no_record_parse=True))
        assert Counter(r.kind for r in records) == independent
        assert sum(r.warc_length for r in records) == path.stat().st_size
        expected = {
            (row["offset"], row["length"], row["url"], row["status"])
            for row in index
            if row["filename"] == path.name
        }
        captures = [r for r in records if r.kind in ("response", "revisit")]
        assert {place(r) for r in captures} == expected
        assert len(captures) == len(expected)


def place(record: Record) -> tuple[int, int, str | None, int | None]:
    http = parse_http(record.block)
    return record.warc_offset, record.warc_length, record.url, http.status if http else None


FATES = {
    "page": {None, "extract.empty", "damage.warc_truncated"},
    "notype": {None},
    "other": {"record.mime"},
    "error": {"record.status"},
    "redirect": {"record.redirect"},
    "empty": {"record.empty"},
    "revisit": {"record.revisit"},
}


@pytest.mark.slow
@pytest.mark.parametrize("snapshot", ["CRAWL-2026-40", "CRAWL-2026-45"])
def test_fates_of_real_records_agree_with_the_index(shared: Path, snapshot: str) -> None:
    folder = shared / "data" / "snapshots" / snapshot
    with gzip.open(folder / "index.jsonl.gz", "rt") as file:
        index = {(row["filename"], row["offset"]): row for row in map(json.loads, file)}
    seen = 0
    for path in sorted(folder.glob("*.warc.gz")):
        result = extract(path)
        assert result.reproducible
        assert not result.damaged
        decisions = result.tables["decisions"]
        assert decisions["doc_id"].n_unique() == decisions.height
        assert decisions["kept"].sum() == result.tables["parts"].height
        for row in decisions.to_dicts():
            truth = index.get((path.name, row["warc_offset"]))
            if truth is None:
                assert row["reason"] in ("record.request", "record.metadata", "record.warcinfo")
                continue
            seen += 1
            assert row["reason"] in FATES[truth["kind"]], truth["url"]
            assert (row["reason"] == "damage.warc_truncated") == truth["truncated"]
    assert seen == len(index)
