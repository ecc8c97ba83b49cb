from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipeline.bodies import BodyError, BodyTooLargeError, Http, decode_body, parse_http, unchunk
from tests.pipeline.warcs import PAGE

PAGE_BYTES = PAGE.encode()
LIMIT = 1 << 20


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def chunked(data: bytes, size: int = 700) -> bytes:
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


def http(body: bytes, **fields: str) -> Http:
    return Http(200, tuple((k.replace("_", "-"), v) for k, v in fields.items()), body)


def test_untidy_heads_are_read() -> None:
    block = (
        b'HTTP/1.1 200\nP3P : CP="x"\nContent-Type: TEXT/HTML;Charset=utf-8;charset=UTF-8\n\n<p>'
    )
    message = parse_http(block)
    assert message is not None
    assert (message.status, message.mime, message.charset) == (200, "text/html", "utf-8")
    assert message.body == b"<p>"


@pytest.mark.parametrize(
    ("sent", "mime", "charset"),
    [
        ("text/html charset=latin1", "text/html", "latin1"),
        ('text/html; charset="koi8-r"', "text/html", "koi8-r"),
        ("", None, None),
        (" ; charset=utf-8", None, "utf-8"),
    ],
)
def test_content_types(sent: str, mime: str | None, charset: str | None) -> None:
    message = parse_http(f"HTTP/1.1 200 OK\r\nContent-Type: {sent}\r\n\r\n".encode())
    assert message is not None
    assert (message.mime, message.charset) == (mime, charset)


@pytest.mark.parametrize(
    "block", [b"", b"<html>", b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 OK\r\n\r\n"]
)
def test_what_is_no_response_is_none(block: bytes) -> None:
    assert parse_http(block) is None


def test_a_head_without_a_blank_line_has_no_body() -> None:
    message = parse_http(b"HTTP/1.1 304 Not Modified\r\nX: 1")
    assert message is not None
    assert (message.status, message.body) == (304, b"")


@pytest.mark.parametrize("coding", [*PACKERS, "x-gzip"])
@pytest.mark.parametrize("framed", [False, True])
def test_every_coding_comes_back(coding: str, framed: bool) -> None:
    body = PACKERS.get(coding, gzip.compress)(PAGE_BYTES)
    fields = {"content_encoding": coding}
    if framed:
        body, fields["transfer_encoding"] = chunked(body), "chunked"
    assert decode_body(http(body, **fields), LIMIT) == PAGE_BYTES


def test_raw_deflate_and_stacked_codings() -> None:
    assert (
        decode_body(http(raw_deflate(PAGE_BYTES), content_encoding="deflate"), LIMIT) == PAGE_BYTES
    )
    stacked = gzip.compress(brotli.compress(PAGE_BYTES))
    assert decode_body(http(stacked, content_encoding="br, gzip"), LIMIT) == PAGE_BYTES
    twice = gzip.compress(gzip.compress(PAGE_BYTES))
    assert decode_body(http(twice, content_encoding="gzip"), LIMIT) == PAGE_BYTES
    members = gzip.compress(PAGE_BYTES[:500]) + gzip.compress(PAGE_BYTES[500:])
    assert decode_body(http(members, content_encoding="gzip"), LIMIT) == PAGE_BYTES


@pytest.mark.parametrize("coding", [*PACKERS, "utf-8", "something"])
def test_a_body_decoded_by_the_crawler_is_taken_as_it_is(coding: str) -> None:
    fields = {"content_encoding": coding, "transfer_encoding": "chunked"}
    assert decode_body(http(PAGE_BYTES, **fields), LIMIT) == PAGE_BYTES


def test_renamed_headers_of_common_crawl_are_no_coding() -> None:
    fields = {"x_crawl_content_encoding": "gzip", "x_crawl_transfer_encoding": "chunked"}
    assert decode_body(http(PAGE_BYTES, **fields), LIMIT) == PAGE_BYTES


@pytest.mark.parametrize("coding", PACKERS)
def test_a_cut_body_is_an_error(coding: str) -> None:
    body = PACKERS[coding](PAGE_BYTES)
    with pytest.raises(BodyError):
        decode_body(http(body[: len(body) * 2 // 3], content_encoding=coding), LIMIT)


def test_an_unknown_coding_over_binary_is_an_error() -> None:
    with pytest.raises(BodyError, match="unknown content coding"):
        decode_body(http(bytes(range(256)) * 4, content_encoding="sdch"), LIMIT)


@pytest.mark.parametrize("coding", PACKERS)
def test_the_limit_holds_against_bombs(coding: str) -> None:
    bomb = PACKERS[coding](b"<p>" + b"a" * 5_000_000)
    assert len(bomb) < 50_000
    with pytest.raises(BodyTooLargeError) as caught:
        decode_body(http(bomb, content_encoding=coding), LIMIT)
    assert LIMIT < caught.value.size <= 5_000_003
    exact = b"<p>" + b"a" * (LIMIT - 3)
    assert decode_body(http(PACKERS[coding](exact), content_encoding=coding), LIMIT) == exact


def test_chunks_with_extensions_and_bare_newlines() -> None:
    assert unchunk(b"3;a=b\r\n<p>\r\n2\nhi\n0\n\n") == b"<p>hi"
    assert unchunk(b"3\r\n<p>\r\n0") == b"<p>"


@pytest.mark.parametrize("cut", [9, 300, 710, -6])
def test_a_cut_chunked_body_is_an_error(cut: int) -> None:
    with pytest.raises(BodyError):
        unchunk(chunked(PAGE_BYTES)[:cut])


@given(data=st.binary(max_size=3000), size=st.integers(1, 900))
def test_chunking_comes_back(data: bytes, size: int) -> None:
    assert unchunk(chunked(data, size)) == data
