"""HTTP messages -> the bytes of the page: head, transfer coding, content coding.

Crawlers store bodies in two ways: as they came over the wire, or decoded with the old header left
standing or renamed `X-Crawl-*` (Common Crawl). So a coding is undone where the bytes show it, and
bytes that plainly are a page already are taken as they are. Every step has a size bound: a small
body may inflate to gigabytes (`extract.max_bytes`).
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import brotli
import zstandard

from pipeline.warc import decode_head

STATUS_LINE = re.compile(rb"\s*HTTP/\d+(?:\.\d+)?[ \t]+(\d{3})(?!\d)[^\n]*\n?")
HEAD_END = re.compile(rb"\r?\n\r?\n")
CHUNK_SIZE = re.compile(rb"[ \t]*([0-9a-fA-F]{1,12})[ \t]*(?:;[^\n]*)?\r?\n")
LINE_END = re.compile(rb"\r?\n")
GZIP_MAGIC = b"\x1f\x8b\x08"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BINARY = bytes([*range(9), *range(14, 27), *range(28, 32)])
MAX_LAYERS = 4


class BodyError(ValueError):
    """A body that cannot be brought back to the page: `damage.decode`."""


class BodyTooLargeError(ValueError):
    """A body beyond the limit: `extract.too_large`. `size` is a lower bound in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"body of {size:,} bytes or more")
        self.size = size


@dataclass(frozen=True)
class Http:
    """A stored HTTP response: status, fields in order by lower-case name, body as stored."""

    status: int
    fields: tuple[tuple[str, str], ...]
    body: bytes

    def values(self, name: str) -> list[str]:
        """All values of a field."""
        return [value for key, value in self.fields if key == name]

    def tokens(self, name: str) -> list[str]:
        """The comma-separated tokens of a field, lower case, equal neighbours once."""
        every = [t.strip().lower() for value in self.values(name) for t in value.split(",")]
        return [t for t in every if t]

    @property
    def mime(self) -> str | None:
        """The media type without parameters, lower case; null where none was sent."""
        kinds = (re.split(r"[;,\s]", v.strip())[0].lower() for v in self.values("content-type"))
        return next((kind for kind in kinds if kind), None)

    @property
    def charset(self) -> str | None:
        """The charset of the Content-Type, as sent."""
        for value in self.values("content-type"):
            if match := re.search(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", value, re.IGNORECASE):
                return match[1]
        return None


def parse_http(block: bytes) -> Http | None:
    """The HTTP response in a record's block; null where it does not start as one (`damage.http`).

    Untidy heads pass: no reason phrase, blanks before the colon, bare newlines, no blank line.
    """
    line = STATUS_LINE.match(block)
    if line is None:
        return None
    end = HEAD_END.search(block, max(line.end() - 2, 0))
    head, body = (block[: end.start()], block[end.end() :]) if end else (block, b"")
    return Http(int(line[1]), _fields(head[line.end() :]), body)


def _fields(head: bytes) -> tuple[tuple[str, str], ...]:
    fields: list[tuple[str, str]] = []
    for line in re.split(r"\r?\n", decode_head(head)):
        if line[:1] in (" ", "\t") and fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {line.strip()}".strip())
            continue
        name, colon, value = line.partition(":")
        if colon:
            fields.append((name.strip().lower(), value.strip()))
    return tuple(fields)


def decode_body(http: Http, limit: int) -> bytes:
    """The page's bytes, at most `limit`.

    Raises BodyError (`damage.decode`) and BodyTooLargeError (`extract.too_large`).
    """
    body = http.body
    transfer = http.tokens("transfer-encoding")
    if "chunked" in transfer:
        body = unchunk(body)
    codings = [*http.tokens("content-encoding"), *(t for t in transfer if t != "chunked")]
    for coding in reversed(codings[:MAX_LAYERS]):
        body = _decode(coding, body, limit)
    for _ in range(MAX_LAYERS):  # compressed once more than the header says, or no header at all
        if body[:3] != GZIP_MAGIC:
            break
        body = _gunzip(body, limit)
    if len(body) > limit:
        raise BodyTooLargeError(len(body))
    return body


def unchunk(body: bytes) -> bytes:
    """The body without chunked framing; unchanged where there is no such framing.

    The final empty chunk's trailers may be missing, a cut chunk is a BodyError.
    """
    if not CHUNK_SIZE.match(body):
        return body
    parts: list[bytes] = []
    position = 0
    while line := CHUNK_SIZE.match(body, position):
        size = int(line[1], 16)
        if size == 0:
            return b"".join(parts)
        part = body[line.end() : line.end() + size]
        if len(part) < size:
            message = f"chunk of {size:,} bytes, {len(part):,} are there"
            raise BodyError(message)
        parts.append(part)
        position = line.end() + size
        line_end = LINE_END.match(body, position)
        position = line_end.end() if line_end else position
    if body[position : position + 3].strip() == b"0":  # the last line end was cut off
        return b"".join(parts)
    message = f"chunked body breaks off at byte {position:,}"
    raise BodyError(message)


def _decode(coding: str, body: bytes, limit: int) -> bytes:
    decoder = DECODERS.get(coding)
    if coding in ("identity", "none", "utf-8", "8bit", "binary") or not body:
        return body
    if decoder is None:
        if looks_like_page(body):
            return body
        message = f"unknown content coding {coding[:40]!r}"
        raise BodyError(message)
    try:
        return decoder(body, limit)
    except (BodyError, zlib.error, brotli.error, zstandard.ZstdError) as error:
        if looks_like_page(body):
            return body  # decoded by the crawler, the header left standing
        message = f"{coding} body: {error}"
        raise BodyError(message) from error


def looks_like_page(body: bytes) -> bool:
    """Whether bytes read as markup without decoding: a tag near the start, hardly any controls."""
    start = body[:2048]
    controls = len(start) - len(start.translate(None, BINARY))
    return b"<" in start and controls * 50 < len(start)


def _gunzip(body: bytes, limit: int) -> bytes:
    return _inflate(body, limit, 31)


def _deflate(body: bytes, limit: int) -> bytes:
    """RFC 9110 says zlib, some servers send raw deflate."""
    zlib_head = len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflate(body, limit, 15 if zlib_head else -15)


def _inflate(body: bytes, limit: int, window: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while body:
        inflater = zlib.decompressobj(window)
        part = inflater.decompress(body, limit - size + 1)
        parts.append(part)
        size += len(part)
        if size > limit:
            raise BodyTooLargeError(size)
        if not inflater.eof:
            message = f"stream ends early, after {size:,} bytes"
            raise BodyError(message)
        body = inflater.unused_data
        if window != 31 or body[:3] != GZIP_MAGIC:  # only gzip has members that follow each other
            break
    return b"".join(parts)


def _unbrotli(body: bytes, limit: int) -> bytes:
    inflater = brotli.Decompressor()
    parts = [inflater.process(body, output_buffer_limit=limit + 1)]
    size = len(parts[0])
    while not inflater.is_finished() and size <= limit:
        part = inflater.process(b"", output_buffer_limit=limit + 1)
        if not part:
            message = f"stream ends early, after {size:,} bytes"
            raise BodyError(message)
        parts.append(part)
        size += len(part)
    if size > limit:
        raise BodyTooLargeError(size)
    return b"".join(parts)


def _unzstd(body: bytes, limit: int) -> bytes:
    inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    with inflater.stream_reader(io.BytesIO(body), read_across_frames=True) as reader:
        page = reader.read(limit + 1)
    if len(page) > limit:
        raise BodyTooLargeError(len(page))
    if not _zstd_complete(body, len(page)):
        message = f"stream ends early, after {len(page):,} bytes"
        raise BodyError(message)
    return page


def _zstd_complete(body: bytes, produced: int) -> bool:
    """Whether a zstd stream reached its end: the reader stops at a cut without a word."""
    inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    size = 0
    while body[:4] == ZSTD_MAGIC:
        size += len(inflater.decompress(body))
        if not inflater.eof:
            return False
        body = inflater.unused_data
        inflater = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    return size >= produced


DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _deflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
