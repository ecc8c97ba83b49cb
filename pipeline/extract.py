"""`extracted_text`: WARC records -> documents, with a fate for every record.

The columns of `parts` are `schema.DOCUMENTS`; `decisions` (`schema.RECORD_DECISIONS`) has one row
for each record of the file, kept or not, damaged stretches included: it is the record index.
Reading, body decoding and charset happen here, the page itself is read in a child process
(`pipeline.page_worker`), so a parser that hangs or crashes costs one page.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.bodies import BodyError, BodyTooLargeError, Http, decode_body, parse_http
from pipeline.charset import decode
from pipeline.config.extract import ExtractConfig
from pipeline.layout import doc_id
from pipeline.licences import reservations
from pipeline.page_worker import page_worker
from pipeline.pages import Extracted, extract_page
from pipeline.part import Damage, PartResult
from pipeline.schema import DOCUMENTS, RECORD_DECISIONS
from pipeline.warc import Record, read_records

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CODE_VERSION", "LIBRARIES", "Extracted", "extract_html", "extract_page", "extract_warc"]

STAGE = "extracted_text"
CODE_VERSION = "2"
LIBRARIES = (
    "selectolax", "numba", "numpy", "trafilatura", "justext", "courlan", "htmldate", "lxml",
    "lxml_html_clean", "Resiliparse", "brotli", "zstandard", "xxhash",
)  # fmt: skip

REDIRECTS = {301, 302, 303, 307, 308}
BATCH_RECORDS = 1000
BATCH_CHARACTERS = 1_000_000
"""Records and text that wait as Python objects before they become columns."""

HTML_START = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|<\?xml[^>]{0,200}>|<!--.{0,2000}?-->)*"
    rb"<(?:!doctype\s+html|html|head|body|title|meta|script|style|table|div|h1|p|a|b|br|font)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
"""What browsers take for HTML where no type was sent (WHATWG MIME Sniffing, 7.1)."""


@dataclass(frozen=True)
class _Fate:
    """What becomes of a record: a page to be kept, or a reason."""

    reason: str | None = None
    value: float | None = None
    threshold: float | None = None
    detail: dict[str, Any] | None = None
    status: int | None = None
    mime: str | None = None
    page: Extracted | None = None
    reserved: list[str] | None = None
    digest: str | None = None
    """Of the body as stored, where the record carries none."""
    reproducible: bool = True


@dataclass
class _Batch:
    """Rows of one file as they come."""

    snapshot: str
    documents: list[dict[str, Any]] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    characters: int = 0
    damaged: list[Damage] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    extractors: Counter[str] = field(default_factory=Counter)
    reproducible: bool = True

    @property
    def full(self) -> bool:
        """Whether it is time for the next one."""
        return len(self.decisions) >= BATCH_RECORDS or self.characters >= BATCH_CHARACTERS

    def add(self, record: Record, fate: _Fate) -> None:
        """One record with its fate."""
        address = {
            "warc_file": record.warc_file,
            "warc_offset": record.warc_offset,
            "warc_length": record.warc_length,
            "member_offset": record.member_offset,
        }
        name = doc_id(self.snapshot, record.warc_file, record.warc_offset, record.member_offset)
        common = {"doc_id": name, "url": record.url, "mime": fate.mime, **address}
        detail = (
            json.dumps(fate.detail, sort_keys=True, ensure_ascii=False) if fate.detail else None
        )
        decision = {"stage": STAGE, "kept": fate.reason is None, "reason": fate.reason}
        numbers = {"value": fate.value, "threshold": fate.threshold, "status": fate.status}
        self.decisions.append({**common, **decision, **numbers, "detail": detail})
        self.kinds[record.kind] += 1
        self.reproducible &= fate.reproducible
        if fate.page and fate.reason is None:
            self.extractors[fate.page.extractor or ""] += 1
            self.characters += len(fate.page.text)
            self.documents.append({**common, **self._document(record, fate, fate.page)})

    def _document(self, record: Record, fate: _Fate, page: Extracted) -> dict[str, Any]:
        return {
            "snapshot": self.snapshot,
            "fetched_at": record.fetched_at,
            "payload_digest": record.payload_digest or fate.digest,
            "charset": page.charset,
            "title": page.title,
            "text": page.text,
            "licence": page.marks.licence,
            "licence_source": page.marks.licence_source,
            "reservations": fate.reserved,
            "extractor": page.extractor,
        }

    def result(self) -> PartResult:
        """The tables of the batch."""
        tables = {
            "parts": _frame(self.documents, DOCUMENTS),
            "decisions": _frame(self.decisions, RECORD_DECISIONS),
        }
        extra = {
            "records": dict(sorted(self.kinds.items())),
            "extractors": dict(sorted(self.extractors.items())),
        }
        return PartResult(tables, damaged=self.damaged, extra=extra, reproducible=self.reproducible)


def extract_warc(
    path: Path, *, snapshot: str, warc_file: str, config: ExtractConfig
) -> Iterator[PartResult]:
    """Documents and decisions of one WARC file, plain or gzip, in file order, batch by batch.

    `warc_file` is its base name, which with the snapshot and the offset makes `doc_id`. Damaged and
    empty files are counted; GristmillError where a file holds no WARC record at all.
    """
    batch, empty = _Batch(snapshot), True
    for record in read_records(path, warc_file):
        empty = False
        if batch.full:
            yield batch.result()
            batch = _Batch(snapshot)
        if record.kind == "damage":
            inside = f" (byte {record.member_offset} of it)" if record.member_offset else ""
            damage = Damage(warc_file, record.warc_offset, f"{record.what}{inside}")
            batch.damaged.append(damage)
        batch.add(record, _fate(record, config))
    if empty:
        batch.damaged.append(Damage(warc_file, 0, "empty file"))
    yield batch.result()


def extract_html(path: Path, snapshot: str, config: ExtractConfig) -> PartResult:
    """The document of one HTML file: offset 0, no URL, the file's base name as `warc_file`."""
    body = path.read_bytes()
    record = Record(path.name, "html", 0, len(body), None, {}, body)
    batch = _Batch(snapshot)
    batch.add(record, _page(Http(200, (), body), record, "text/html", config))
    return batch.result()


def digest(payload: bytes) -> str:
    """A payload digest as crawlers write it: SHA-1 in base 32."""
    sha1 = hashlib.sha1(payload, usedforsecurity=False).digest()
    return f"sha1:{base64.b32encode(sha1).decode()}"


def _fate(record: Record, config: ExtractConfig) -> _Fate:
    if record.kind == "damage":
        return _Fate(record.damage, detail={"what": record.what})
    carries_http = record.headers.get("content-type", "application/http").lower()
    if record.kind != "response" or not carries_http.startswith("application/http"):
        kind = "other" if record.kind == "response" else record.kind  # text/dns, for example
        http = parse_http(record.block) if record.kind == "revisit" else None
        fate = _Fate(f"record.{kind}")
        return replace(fate, status=http.status, mime=http.mime) if http else fate
    http = parse_http(record.block)
    if http is None:
        return _Fate("damage.http", detail={"starts": ascii(record.block[:40])})
    fate = _refusal(http, record, config) or _page(http, record, http.mime, config)
    return replace(fate, status=http.status, mime=fate.mime or http.mime)


def _refusal(http: Http, record: Record, config: ExtractConfig) -> _Fate | None:
    """The reason why a response is no page, as far as its head tells."""
    if http.status in REDIRECTS:
        return _Fate("record.redirect", value=float(http.status))
    if http.status != 200:
        return _Fate("record.status", value=float(http.status), threshold=200.0)
    if http.mime and http.mime not in config.accept:
        return _Fate("record.mime")
    if not http.body.strip():
        return _Fate("record.empty")
    if record.truncated:
        return _Fate("damage.warc_truncated", detail={"truncated": record.truncated})
    return None


def _page(http: Http, record: Record, mime: str | None, config: ExtractConfig) -> _Fate:
    """The fate of what should be a page: body, charset, main text."""
    limit = config.max_bytes
    try:
        body = decode_body(http, limit)
    except BodyError as error:
        return _Fate("damage.decode", detail={"error": str(error)})
    except BodyTooLargeError as error:
        return _Fate("extract.too_large", value=float(error.size), threshold=float(limit))
    if not body.strip():
        return _Fate("record.empty")
    if mime is None and not HTML_START.match(body[:4096]):
        return _Fate("record.mime")
    html, charset = decode(body, http.charset)
    page, reproducible = page_worker().read(html, record.url, config)
    return _Fate(
        page.reason,
        page.value,
        page.threshold,
        mime=mime or "text/html",
        page=replace(page, charset=charset),
        reserved=reservations(http, page.marks.reservations),
        digest=None if record.payload_digest else digest(http.body),
        reproducible=reproducible,
    )


def _frame(rows: list[dict[str, Any]], schema: pa.Schema) -> pl.DataFrame:
    import polars as pl

    frame = pl.from_arrow(pa.Table.from_pylist(rows, schema=schema))
    assert isinstance(frame, pl.DataFrame)
    return frame
