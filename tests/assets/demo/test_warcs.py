"""The WARC writer: what a reader gets back is what was put in."""

from __future__ import annotations

import gzip
import io
import zlib
from datetime import UTC, datetime

import brotli
import pytest
from fastwarc.warc import ArchiveIterator
from hypothesis import given
from hypothesis import strategies as st

from assets.demo.warcs import Capture, WarcFile, chunks, encode, http_block

WHEN = datetime(2026, 3, 2, 6, 0, 5, tzinfo=UTC)


def dechunk(data: bytes) -> bytes:
    out = b""
    while True:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            assert data == b"\r\n"
            return out
        out += data[:length]
        assert data[length : length + 2] == b"\r\n"
        data = data[length + 2 :]


@given(st.binary(max_size=2000), st.integers(1, 700))
def test_chunks_round_trip(body: bytes, size: int) -> None:
    assert dechunk(chunks(body, size)) == body


@pytest.mark.parametrize(
    ("coding", "decode"),
    [("gzip", gzip.decompress), ("deflate", zlib.decompress), ("br", brotli.decompress)],
)
def test_coded_and_chunked_body_comes_back(coding: str, decode: object) -> None:
    body = b"<p>grain</p>" * 500
    capture = Capture("https://a.example/", WHEN, body, coding=coding, chunked=True)
    head, _, wire = http_block(capture, raw=True).partition(b"\r\n\r\n")
    assert f"\r\nContent-Encoding: {coding}\r\n".encode() in head
    assert b"Content-Length" not in head
    assert callable(decode)
    assert decode(dechunk(wire)) == body
    assert encode(body, coding) == dechunk(wire)


def test_decoded_style_keeps_the_original_headers_aside() -> None:
    capture = Capture("https://a.example/", WHEN, b"body", coding="gzip", chunked=True)
    head, _, wire = http_block(capture, raw=False).partition(b"\r\n\r\n")
    assert wire == b"body"
    assert b"X-Crawl-Content-Encoding: gzip" in head
    assert b"X-Crawl-Transfer-Encoding: chunked" in head
    assert b"Content-Length: 4" in head


def written(*captures: Capture, raw: bool = False) -> WarcFile:
    file = WarcFile("a.warc.gz", "CRAWL-TEST", raw=raw)
    file.start(WHEN)
    for capture in captures:
        file.add(capture)
    return file


def test_a_reader_finds_every_record_in_its_own_member() -> None:
    file = written(Capture("https://a.example/x", WHEN, b"hello"))
    records = [
        (record.headers["WARC-Type"], record.headers.get("WARC-Target-URI"), record.reader.read())
        for record in ArchiveIterator(io.BytesIO(file.data), parse_http=False, verify_digests=True)
    ]
    assert [kind for kind, _, _ in records] == ["warcinfo", "request", "response", "metadata"]
    assert len(file.members) == 4
    assert records[2][2].endswith(b"\r\n\r\nhello")
    assert all(uri == "https://a.example/x" for _, uri, _ in records[1:])


def test_raw_style_has_neither_requests_nor_metadata() -> None:
    file = written(Capture("https://a.example/x", WHEN, b"hello"), raw=True)
    assert gzip.decompress(file.members[1]).startswith(b"WARC/1.0\r\nWARC-Type: response\r\n")
    assert len(file.members) == 2


def test_revisit_has_no_body_and_names_the_first_visit() -> None:
    first = datetime(2026, 2, 1, tzinfo=UTC)
    file = written(Capture("https://a.example/", WHEN, b"same", revisit_of=first), raw=True)
    record = gzip.decompress(file.members[1])
    assert b"WARC-Type: revisit" in record
    assert b"WARC-Refers-To-Date: 2026-02-01T00:00:00Z" in record
    assert b"same" not in record


def test_damage_hits_the_response_alone() -> None:
    file = written(Capture("https://a.example/", WHEN, b"x" * 500, damaged=True))
    broken = []
    for index, member in enumerate(file.members):
        try:
            gzip.decompress(member)
        except (OSError, zlib.error, EOFError):
            broken.append(index)
    assert broken == [2]
