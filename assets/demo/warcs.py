"""A small WARC writer: records as gzip members, HTTP blocks stored decoded or as they came.

Two habits of real crawlers: WARC/1.1 with decoded bodies (the original encoding kept in
`X-Crawl-Content-Encoding`, as Common Crawl does it) with request and metadata records, and WARC/1.0
with the bytes of the wire (content codings and chunks). Ids, dates and addresses are functions of
the content, so the same sample is the same bytes.
"""

import base64
import gzip
import hashlib
import uuid
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime

NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 4122's for addresses
REASON = {200: "OK", 301: "Moved Permanently", 404: "Not Found", 503: "Service Unavailable"}


@dataclass(frozen=True)
class Capture:
    """One fetch: what was asked, what came back, and how it is stored."""

    url: str
    fetched: datetime
    body: bytes = b""
    status: int = 200
    content_type: str | None = "text/html; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()
    coding: str | None = None
    """`gzip`, `deflate` or `br`: how the body travelled."""
    chunked: bool = False
    revisit_of: datetime | None = None
    """When the same payload was seen first: stored as a revisit record without body."""
    truncated: bool = False
    damaged: bool = False
    """A byte of the compressed response record is flipped."""


@dataclass
class WarcFile:
    """The bytes of one WARC file, grown record by record."""

    name: str
    snapshot: str
    raw: bool = False
    """WARC/1.0, bodies as on the wire, no request and metadata records."""
    members: list[bytes] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        """The file, one gzip member a record."""
        return b"".join(self.members)

    def start(self, when: datetime) -> None:
        """Write the warcinfo record that every file opens with."""
        fields = {
            "isPartOf": self.snapshot,
            "software": "gristmill demo",
            "description": "Sample crawl built from installed text under reserved host names",
            "format": f"WARC File Format {'1.0' if self.raw else '1.1'}",
        }
        block = "".join(f"{key}: {value}\r\n" for key, value in fields.items()).encode()
        headers = {"WARC-Filename": self.name, "Content-Type": "application/warc-fields"}
        self._record("warcinfo", when, block, headers, f"{self.snapshot}/{self.name}")

    def add(self, capture: Capture) -> None:
        """Write the record of `capture`, with its request and metadata where the style has them."""
        if not self.raw:
            self._request(capture)
        self._response(capture)
        if not self.raw:
            self._metadata(capture)

    def _request(self, capture: Capture) -> None:
        scheme, _, rest = capture.url.partition("://")
        host, _, path = rest.partition("/")
        block = (
            f"GET /{path} HTTP/1.1\r\nUser-Agent: gristmill-demo/1.0 ({scheme}://crawler.example)\r\n"
            f"Accept: text/html\r\nAccept-Encoding: gzip, deflate, br\r\nHost: {host}\r\n\r\n"
        ).encode()
        headers = {
            "WARC-Target-URI": capture.url, "Content-Type": "application/http; msgtype=request"
        }  # fmt: skip
        self._record("request", capture.fetched, block, headers, capture.url)

    def _response(self, capture: Capture) -> None:
        headers = {
            "WARC-Target-URI": capture.url,
            "WARC-IP-Address": "192.0.2.10",
            "WARC-Payload-Digest": digest(capture.body),
            "Content-Type": "application/http; msgtype=response",
        }
        kind = "response"
        if capture.revisit_of:
            kind = "revisit"
            headers["WARC-Profile"] = (
                "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
            )
            headers["WARC-Refers-To-Target-URI"] = capture.url
            headers["WARC-Refers-To-Date"] = stamp(capture.revisit_of)
        if capture.truncated:
            headers["WARC-Truncated"] = "length"
        block = http_block(capture, raw=self.raw)
        self._record(kind, capture.fetched, block, headers, capture.url, capture.damaged)

    def _metadata(self, capture: Capture) -> None:
        block = (
            f"fetchTimeMs: {40 + len(capture.body) % 400}\r\ncharset-detected: UTF-8\r\n".encode()
        )
        headers = {
            "WARC-Target-URI": capture.url, "Content-Type": "application/warc-fields"
        }  # fmt: skip
        self._record("metadata", capture.fetched, block, headers, capture.url)

    def _record(
        self,
        kind: str,
        when: datetime,
        block: bytes,
        headers: dict[str, str],
        subject: str,
        damaged: bool = False,
    ) -> None:
        identity = f"{self.snapshot}/{self.name}/{len(self.members)}/{kind}/{subject}"
        lines = [
            "WARC/1.0" if self.raw else "WARC/1.1",
            f"WARC-Type: {kind}",
            f"WARC-Record-ID: <urn:uuid:{uuid.uuid5(NAMESPACE, identity)}>",
            f"WARC-Date: {stamp(when)}",
            *(f"{key}: {value}" for key, value in headers.items()),
            f"WARC-Block-Digest: {digest(block)}",
            f"Content-Length: {len(block)}",
        ]
        record = "\r\n".join(lines).encode() + b"\r\n\r\n" + block + b"\r\n\r\n"
        member = gzip.compress(record, mtime=0)
        self.members.append(flipped(member) if damaged else member)


def http_block(capture: Capture, *, raw: bool) -> bytes:
    """Status line, headers and body of a response, as on the wire (`raw`) or decoded."""
    body = b"" if capture.revisit_of else capture.body
    headers = [("Server", "nginx"), ("Date", f"{capture.fetched:%a, %d %b %Y %H:%M:%S} GMT")]
    if capture.content_type is not None:
        headers.append(("Content-Type", capture.content_type))
    headers.extend(capture.headers)
    prefix = "" if raw else "X-Crawl-"
    if capture.coding:
        headers.append((f"{prefix}Content-Encoding", capture.coding))
        body = encode(body, capture.coding) if raw else body
    if capture.chunked:
        headers.append((f"{prefix}Transfer-Encoding", "chunked"))
        body = chunks(body) if raw else body
    if not (raw and capture.chunked):
        headers.append(("Content-Length", str(len(body))))
    lines = [f"HTTP/1.1 {capture.status} {REASON.get(capture.status, 'Unknown')}"]
    lines.extend(f"{name}: {value}" for name, value in headers)
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def encode(body: bytes, coding: str) -> bytes:
    """`body` in a content coding of HTTP: gzip, deflate (zlib, RFC 1950) or br."""
    if coding == "gzip":
        return gzip.compress(body, mtime=0)
    if coding == "deflate":
        return zlib.compress(body)
    import brotli

    return bytes(brotli.compress(body))


def chunks(body: bytes, size: int = 4096) -> bytes:
    """`body` in the chunks of HTTP/1.1."""
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def digest(data: bytes) -> str:
    """The digest label of WARC: SHA-1, base 32."""
    return f"sha1:{base64.b32encode(hashlib.sha1(data, usedforsecurity=False).digest()).decode()}"


def stamp(when: datetime) -> str:
    """A WARC date: UTC, whole seconds."""
    return f"{when.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def flipped(member: bytes) -> bytes:
    """`member` with some bytes in its middle inverted, as a failing disk leaves it."""
    middle = len(member) // 2
    return (
        member[:middle]
        + bytes(b ^ 0xFF for b in member[middle : middle + 8])
        + member[middle + 8 :]
    )
