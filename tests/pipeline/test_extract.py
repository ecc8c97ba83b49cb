from __future__ import annotations

import gzip
import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.config.extract import ExtractConfig
from pipeline.extract import digest, extract_html
from pipeline.layout import content_key, doc_id
from pipeline.part import PartResult
from pipeline.schema import DOCUMENTS, REASONS, RECORD_DECISIONS, conform
from tests.pipeline.warcs import PAGE, extracted, record, response, write

CONFIG = ExtractConfig()
HTML = "HTTP/1.1 200 OK\r\nContent-Type: text/html"


def extract(tmp_path: Path, *records: bytes, name: str = "a.warc.gz", **config: Any) -> PartResult:
    path = write(tmp_path / name, *records)
    return extracted(path, ExtractConfig(**config))


def fate(tmp_path: Path, one: bytes, **config: Any) -> dict[str, Any]:
    result = extract(tmp_path, one, **config)
    assert result.tables["decisions"].height == 1
    return result.tables["decisions"].to_dicts()[0]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (response(), None),
        (response(kind="revisit"), "record.revisit"),
        (response(kind="request"), "record.request"),
        (response(kind="metadata"), "record.metadata"),
        (record(b"software: x", url=None, kind="warcinfo"), "record.warcinfo"),
        (response(kind="resource"), "record.other"),
        (
            record(b"1.2.3.4", url="dns:a.example").replace(b"application/http", b"text/dns"),
            "record.other",
        ),
        (response(head="HTTP/1.1 301 Moved\r\nLocation: /b"), "record.redirect"),
        (response(head="HTTP/1.1 404 Not Found\r\nContent-Type: text/html"), "record.status"),
        (response(head="HTTP/1.1 304 Not Modified"), "record.status"),
        (response(head="HTTP/1.1 200 OK\r\nContent-Type: application/pdf"), "record.mime"),
        (response(head="HTTP/1.1 200 OK\r\nContent-Type: application/xhtml+xml"), None),
        (response(head="HTTP/1.1 200 OK"), None),
        (response("just text, no markup", head="HTTP/1.1 200 OK"), "record.mime"),
        (response("  \r\n "), "record.empty"),
        (response(gzip.compress(b" "), head=f"{HTML}\r\nContent-Encoding: gzip"), "record.empty"),
        (response(fields="WARC-Truncated: length\r\n"), "damage.warc_truncated"),
        (record(b"<html>no head</html>"), "damage.http"),
        (response(b"\x00\x01\x02", head=f"{HTML}\r\nContent-Encoding: br"), "damage.decode"),
        (response("<html><body></body></html>"), "extract.empty"),
    ],
)
def test_every_record_has_a_fate(tmp_path: Path, one: bytes, reason: str | None) -> None:
    row = fate(tmp_path, one)
    assert row["reason"] == reason
    assert row["kept"] == (reason is None)
    assert row["stage"] == "extracted_text"
    if reason:
        family, rule = reason.split(".")
        assert rule in REASONS[family]


def test_limits_of_bytes_hold_before_and_after_decoding(tmp_path: Path) -> None:
    packed = response(gzip.compress(PAGE.encode()), head=f"{HTML}\r\nContent-Encoding: gzip")
    size = len(PAGE.encode())
    for one in (packed, response()):
        assert fate(tmp_path, one, max_bytes=size)["kept"]
        row = fate(tmp_path, one, max_bytes=size - 1)
        assert (row["reason"], row["threshold"]) == ("extract.too_large", size - 1)


def test_numbers_stand_beside_the_reason(tmp_path: Path) -> None:
    row = fate(tmp_path, response(head="HTTP/1.1 503 Busy\r\nContent-Type: text/html; charset=x"))
    assert (row["value"], row["status"], row["mime"]) == (503.0, 503, "text/html")
    row = fate(tmp_path, response(b"\x00\x01", head=f"{HTML}\r\nContent-Encoding: gzip"))
    assert "gzip" in json.loads(row["detail"])["error"]


def test_the_columns_of_a_document(tmp_path: Path) -> None:
    page = PAGE.replace("</head>", '<meta name=robots content=noai><link rel=license '
                        'href="https://creativecommons.org/licenses/by/4.0/"></head>')  # fmt: skip
    fields = "WARC-Payload-Digest: sha1:ABC\r\n"
    one = response(page, url="<http://a.example/x>", fields=fields)
    result = extract(tmp_path, response(kind="request"), one)
    start = len(gzip.compress(response(kind="request"), mtime=0))
    (row,) = result.tables["parts"].to_dicts()
    text = row.pop("text")
    assert text.count("the miller opens the sluice") == 5
    assert str(row.pop("fetched_at")) == "2026-10-02 17:06:51+00:00"
    assert row == {
        "doc_id": doc_id("S", "a.warc.gz", start),
        "snapshot": "S",
        "url": "http://a.example/x",
        "warc_file": "a.warc.gz",
        "warc_offset": start,
        "warc_length": len(gzip.compress(one, mtime=0)),
        "member_offset": None,
        "payload_digest": "sha1:ABC",
        "mime": "text/html",
        "charset": "utf-8",
        "title": "The mill",
        "licence": "CC-BY-4.0",
        "licence_source": "link",
        "reservations": ["noai"],
        "extractor": "gristmill",
    }
    assert result.tables["decisions"]["doc_id"].n_unique() == 2


def test_a_missing_payload_digest_is_computed(tmp_path: Path) -> None:
    result = extract(tmp_path, response())
    assert result.tables["parts"]["payload_digest"].to_list() == [digest(PAGE.encode())]
    assert digest(b"") == "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ"


def test_one_record_id_for_two_payloads_is_two_documents(tmp_path: Path) -> None:
    result = extract(tmp_path, response(), response(PAGE.replace("sluice", "gate")))
    assert result.tables["parts"]["doc_id"].n_unique() == 2


def test_tables_keep_the_contract_even_when_empty(tmp_path: Path) -> None:
    for records in ([], [response(kind="request")], [response()]):
        result = extract(tmp_path, *records)
        for kind, schema in (("parts", DOCUMENTS), ("decisions", RECORD_DECISIONS)):
            assert isinstance(conform(result.tables[kind], schema), pa.Table)
    empty = extract(tmp_path)
    assert [d.as_json() for d in empty.damaged] == [
        {"file": "a.warc.gz", "offset": 0, "what": "empty file"}
    ]


def test_damage_is_named_with_file_and_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", response(), response(url="http://a.example/2"))
    path.write_bytes(path.read_bytes()[:-9])
    result = extracted(path, CONFIG)
    (damage,) = result.damaged
    assert (damage.file, damage.offset) == (path.name, len(gzip.compress(response(), mtime=0)))
    assert result.tables["decisions"]["reason"].to_list() == [None, "damage.truncated"]
    assert result.extra["records"] == {"damage": 1, "response": 1}


def test_html_files(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(PAGE.replace("sluice", "Schütz").encode("latin-1"))
    result = extract_html(path, "S", CONFIG)
    (row,) = result.tables["parts"].to_dicts()
    assert "opens the Schütz" in row["text"]
    assert (row["url"], row["warc_offset"], row["warc_file"]) == (None, 0, "page.html")
    assert row["doc_id"] == doc_id("S", "page.html", 0)
    path.write_bytes(b"")
    assert extract_html(path, "S", CONFIG).tables["decisions"]["reason"].to_list() == [
        "record.empty"
    ]


def test_the_order_of_pages_changes_no_text(tmp_path: Path) -> None:
    pages = [response(PAGE.replace("mill", word), url=f"http://a.example/{word}")
             for word in ("smithy", "bakery", "brewery", "dairy")]  # fmt: skip
    one = extract(tmp_path, *pages).tables["parts"]
    other = extract(tmp_path, *reversed(pages)).tables["parts"]
    assert dict(one.select("url", "text").rows()) == dict(other.select("url", "text").rows())


def test_worker_processes_give_the_same_tables(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", response(), response("<p></p>"))
    here = extracted(path, CONFIG)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(extracted, path, CONFIG).result()
    for kind, table in here.tables.items():
        assert table.equals(there.tables[kind])


def test_the_output_is_the_golden_one(tmp_path: Path) -> None:
    """Bump CODE_VERSION when this changes on purpose."""
    result = extract(tmp_path, response(), response(kind="request"), response("<p>short</p>"))
    rows = [
        {k: str(v) for k, v in row.items()}
        for kind in ("parts", "decisions")
        for row in result.tables[kind].drop("warc_offset", "warc_length", "doc_id").to_dicts()
    ]
    assert content_key(rows) == "f36089c33c6f49dc26dee5af285e5e7b74ed96167ac7adcfa1d2d8bf0745ae8a"
