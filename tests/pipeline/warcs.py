"""WARC records made by hand, so that each test shows the bytes it is about."""

from __future__ import annotations

import gzip
from pathlib import Path

import polars as pl

from pipeline.config.extract import ExtractConfig
from pipeline.extract import extract_warc
from pipeline.part import PartResult
from pipeline.part_sums import PartSums

PAGE = (
    "<!DOCTYPE html><html><head><title>The mill</title></head><body><article><h1>The mill</h1>"
    + "".join(
        f"<p>Paragraph {n}: the miller opens the sluice before dawn and the wheel begins to turn "
        "slowly under the weight of the water that comes down from the upper pond.</p>"
        for n in range(5)
    )
    + "</article></body></html>"
)


def response(
    body: bytes | str = PAGE,
    *,
    head: str = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8",
    url: str = "http://a.example/",
    off: int = 0,
    fields: str = "",
    kind: str = "response",
) -> bytes:
    """One record, not compressed; `off` is added to its Content-Length."""
    body = body.encode() if isinstance(body, str) else body
    block = head.encode("latin-1") + b"\r\n\r\n" + body
    return record(block, url=url, off=off, fields=fields, kind=kind)


def record(
    block: bytes,
    *,
    url: str | None = "http://a.example/",
    off: int = 0,
    fields: str = "",
    kind: str = "response",
) -> bytes:
    """One record of any kind."""
    target = f"WARC-Target-URI: {url}\r\n" if url else ""
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:1>\r\n{target}"
        f"WARC-Date: 2026-10-02T17:06:51Z\r\n{fields}"
        f"Content-Type: application/http; msgtype={kind}\r\nContent-Length: {len(block) + off}"
    )
    return head.encode() + b"\r\n\r\n" + block + b"\r\n\r\n"


def write(path: Path, *records: bytes) -> Path:
    """A WARC file with one gzip member a record, or plain where the name has no .gz."""
    if path.name.endswith(".gz"):
        records = tuple(gzip.compress(one, mtime=0) for one in records)
    path.write_bytes(b"".join(records))
    return path


def extracted(path: Path, config: ExtractConfig, snapshot: str = "S") -> PartResult:
    """All of a WARC file as one result."""
    sums, tables = PartSums(), []
    for batch in extract_warc(path, snapshot=snapshot, warc_file=path.name, config=config):
        sums.add(batch)
        tables.append(batch.tables)
    whole = {kind: pl.concat([each[kind] for each in tables]) for kind in tables[0]}
    return PartResult(whole, damaged=sums.damaged, extra=sums.extra, reproducible=sums.reproducible)
