"""WARC files -> records: where each one starts and ends, and what could not be read.

The framing is done here, byte by byte, because a reader that is silent about damage loses pages:
FastWARC 2.0.1 ends without an error at an empty gzip member, hands out the payload of a cut record
as if it were whole, knows no positions inside one large member and takes lower-case field names for
absent ones; warcio ends silently at a damaged member (webrecorder/warcio#138). Members are inflated
whole before any record of them is believed, so the CRC of gzip speaks first. After damage, reading
starts again at the next gzip member that opens with a WARC record.

A plain file is mapped; a member beyond `MEMBER_IN_MEMORY` is spooled to disk: memory stays bounded.
"""

from __future__ import annotations

import base64
import hashlib
import mmap
import re
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from pipeline.errors import GristmillError

MAGIC = b"\x1f\x8b\x08"
MEMBER_IN_MEMORY = 64 << 20
STRIDE = 8 << 20
"""Bytes of a mapped file that are read before their pages are given back: a page that was read
counts as memory of the process for as long as the file is mapped."""
MAX_BLOCK = 64 << 20
"""Bytes of a record that are handed out; the limit of pages is far below (`extract.max_bytes`)."""
MAX_HEADER = 64 << 10
TOLERATED_JUNK = 8
"""Bytes after a record that a wrong Content-Length leaves over (iipc/jwarc#29), no damage."""
KINDS = {"warcinfo", "request", "response", "metadata", "revisit"}
RECORD_START = re.compile(rb"\nWARC/\d")
BLANK_LINE = re.compile(rb"\r?\n\r?\n")

Bytes = bytes | mmap.mmap


@dataclass(frozen=True)
class Record:
    """One record of a WARC file, or a stretch of it that is damaged (`damage` is not null)."""

    warc_file: str
    kind: str
    """response, revisit, request, metadata, warcinfo, other, or damage."""
    warc_offset: int
    """Of the gzip member, or of the record in a plain file."""
    warc_length: int
    member_offset: int | None
    """Within the inflated member where that holds several records, else null."""
    headers: dict[str, str]
    """WARC fields by lower-case name."""
    block: bytes
    """The record's content, at most `MAX_BLOCK` bytes: for a response, HTTP head and body."""
    damage: str | None = None
    """The reason, `damage.truncated` or `damage.gzip`."""
    what: str | None = None

    @property
    def url(self) -> str | None:
        """The target, without the angle brackets that WARC/1.0 writers put around it."""
        return (self.headers.get("warc-target-uri") or "").strip("<> ") or None

    @property
    def fetched_at(self) -> datetime | None:
        """WARC-Date in UTC; null where it is none."""
        return _date(self.headers.get("warc-date", ""))

    @property
    def truncated(self) -> str | None:
        """Why the crawler itself cut the content (WARC-Truncated), else null."""
        return self.headers.get("warc-truncated")

    @property
    def payload_digest(self) -> str | None:
        """WARC-Payload-Digest as it stands."""
        return self.headers.get("warc-payload-digest")


@dataclass(frozen=True)
class _Member:
    content: Bytes
    end: int
    damage: str | None = None
    what: str | None = None


@dataclass(frozen=True)
class _Frame:
    """A record's place in inflated bytes; `damage` where its end is not where it says."""

    start: int
    body: int
    end: int
    headers: dict[str, str]
    damage: str | None = None
    what: str | None = None


def read_records(path: Path, warc_file: str) -> Iterator[Record]:
    """Every record of a WARC file, gzip or plain, in file order; damaged stretches among them.

    An empty file has none. Raises GristmillError where a file with bytes holds nothing that looks
    like a WARC record.
    """
    if path.stat().st_size == 0:
        return
    strange: list[Record] | None = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        read = _gzip_records if _is_gzip(data) else _plain_records
        for record in read(data, warc_file):
            if strange is None:
                yield record
            elif record.kind == "damage" and not record.headers:
                strange.append(record)  # perhaps no WARC at all: wait for the first real record
            else:
                yield from strange
                strange = None
                yield record
    if strange is not None:
        message = f"{path} ({warc_file}): no WARC record in {path.stat().st_size:,} bytes"
        raise GristmillError(
            message, hint="give WARC files, plain or with one gzip member a record"
        )


def _is_gzip(data: mmap.mmap) -> bool:
    """By its first bytes, or where these are damaged by any member that holds a record."""
    start = data[:MAX_HEADER].lstrip()
    if start.startswith((MAGIC[:2], b"WARC/")):
        return start.startswith(MAGIC[:2])
    return _next_member(data, 0) < len(data)


def _plain_records(data: mmap.mmap, warc_file: str) -> Iterator[Record]:
    behind = 0
    for frame in _frames(data, len(data)):
        behind = _let_go(data, behind, frame.start)
        yield _record(warc_file, data, frame, frame.start, frame.end - frame.start, None)


def _let_go(data: mmap.mmap, behind: int, start: int) -> int:
    """Give back the memory of what was read, some of it at a time; how far that went."""
    if start - behind < STRIDE:
        return behind
    length = (start - behind) // mmap.PAGESIZE * mmap.PAGESIZE
    data.madvise(mmap.MADV_DONTNEED, behind, length)
    return behind + length


def _gzip_records(data: mmap.mmap, warc_file: str) -> Iterator[Record]:
    start = behind = 0
    while start < len(data):
        behind = _let_go(data, behind, start)
        if data[start : start + 2] != MAGIC[:2]:
            end = _next_member(data, start)
            if data[start : min(end, start + MAX_HEADER)].strip(b"\x00"):  # zeros are padding
                yield _damage(warc_file, start, end - start, "gzip", "bytes outside gzip members")
            start = end
            continue
        member = _inflate(data, start)
        if member.damage:
            member = _inflate(data, start, careful=True)
            end = _next_member(data, start + 1)
            yield from _salvaged(member, warc_file, start, end - start)
        else:
            end = member.end
            yield from _member_records(member, warc_file, start, end - start)
        if isinstance(member.content, mmap.mmap):
            member.content.close()
        start = end


def _member_records(member: _Member, warc_file: str, start: int, length: int) -> Iterator[Record]:
    frames = _frames(member.content, len(member.content))
    first, second = next(frames, None), next(frames, None)
    if first is None:  # an empty member, legal and harmless
        return
    inside = None if second is None else first.start
    yield _record(warc_file, member.content, first, start, length, inside)
    if second is None:
        return
    for frame in chain((second,), frames):
        yield _record(warc_file, member.content, frame, start, length, frame.start)


def _salvaged(member: _Member, warc_file: str, start: int, length: int) -> Iterator[Record]:
    """What a damaged member still holds: its whole records, and the one the damage struck.

    A cut member is true up to its last record. Behind wrong bytes anything may follow until
    inflating fails, so there only records whose own digest agrees are believed. Wrong bytes may
    also hide the member's end, which then looks cut: a record without a digest is believed there
    only in front of a sound one.
    """
    rule, what = member.damage or "gzip", member.what or ""
    held: Record | None = None
    struck = False
    for record in _member_records(member, warc_file, start, length):
        if held and record.damage and not held.damage and not _digest_agrees(held):
            struck = True
            held = _damage(warc_file, start, length, rule, what, held.headers, held.member_offset)
            break
        if held:
            yield held
        held = record
        if record.damage or _doubtful(record, rule):
            struck = True
            headers, inside = record.headers, record.member_offset
            held = _damage(warc_file, start, length, rule, what, headers, inside)
    if held and rule == "truncated" and not struck:  # whole, perhaps, but nothing vouches for it
        struck = True
        held = _damage(warc_file, start, length, rule, what, held.headers, held.member_offset)
    if held:
        yield held
    if not struck:
        inside = len(member.content) if held else None
        yield _damage(warc_file, start, length, rule, what, None, inside)


def _doubtful(record: Record, rule: str) -> bool:
    """Whether a record of a damaged member is not to be believed by itself."""
    if "warc-block-digest" in record.headers:
        return not _digest_agrees(record)
    return rule == "gzip"


def _digest_agrees(record: Record) -> bool:
    algorithm, _, expected = record.headers.get("warc-block-digest", "").partition(":")
    if algorithm.lower() != "sha1":
        return False
    digest = hashlib.sha1(record.block, usedforsecurity=False)
    return expected in (base64.b32encode(digest.digest()).decode(), digest.hexdigest())


def _inflate(data: mmap.mmap, start: int, *, careful: bool = False) -> _Member:
    """The member at `start`, inflated whole; spooled to disk beyond `MEMBER_IN_MEMORY`.

    `careful` goes in small steps and so keeps what stands before the damage: at best the WARC
    header with the URL.
    """
    inflater = zlib.decompressobj(31)
    position, step = start, 16 if careful else 32 << 10
    damage = what = None
    with tempfile.SpooledTemporaryFile(max_size=MEMBER_IN_MEMORY) as spool:
        while not inflater.eof:
            piece = data[position : position + step]
            if not piece:
                damage, what = "truncated", "the file ends inside a gzip member"
                break
            position += len(piece)
            try:
                spool.write(inflater.decompress(piece))
            except zlib.error as error:
                damage, what = "gzip", f"gzip member cannot be inflated ({error})"
                break
            if position - start > 4096:
                step = 256 if careful else 1 << 20
        end = position - len(inflater.unused_data)
        return _Member(_content(spool), end, damage, what)


def _content(spool: tempfile.SpooledTemporaryFile[bytes]) -> Bytes:
    if spool.tell() <= MEMBER_IN_MEMORY:
        spool.seek(0)
        return spool.read()
    spool.flush()
    return mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ)


def _next_member(data: mmap.mmap, start: int) -> int:
    """Where the next gzip member opens that holds a WARC record; the file's end if none does."""
    while (found := data.find(MAGIC, start)) >= 0:
        start = found + 1
        try:
            opening = zlib.decompressobj(31).decompress(data[found : found + 4096], 5)
        except zlib.error:
            continue
        if opening == b"WARC/":
            return found
    return len(data)


def _frames(content: Bytes, size: int) -> Iterator[_Frame]:
    """Where records start and end. One that lies about its end costs itself, not the next one."""
    start = _skip_blank(content, 0, size)
    while start < size:
        if content[start : start + 5] != b"WARC/":
            after = _next_record(content, start, size)
            yield _Frame(start, start, after, {}, "truncated", "bytes outside WARC records")
            start = after
            continue
        frame, after = _frame(content, start, size)
        yield frame
        start = _skip_blank(content, after, size)
        if start < size and content[start : start + 5] != b"WARC/":
            following = _next_record(content, start, size)
            if following - start <= TOLERATED_JUNK:
                start = following


def _frame(content: Bytes, start: int, size: int) -> tuple[_Frame, int]:
    """The record at `start`, and where the search for the next one begins."""
    blank = BLANK_LINE.search(content, start, min(size, start + MAX_HEADER))
    headers = parse_fields(content[start : blank.start()] if blank else content[start:size][:2048])
    body = blank.end() if blank else min(size, start + MAX_HEADER)
    length = headers.get("content-length", "")
    if blank is None or not length.isascii() or not length.isdigit():
        after = _next_record(content, body if blank else start + 5, size)
        what = "WARC header without an end" if blank is None else f"Content-Length {length!r}"
        return _Frame(start, body, after, headers, "truncated", what), after
    end = body + int(length)
    follows = _skip_blank(content, min(end, size), size)
    if end <= size and (follows == size or content[follows : follows + 5] == b"WARC/"):
        return _Frame(start, body, end, headers), end
    after = _next_record(content, body, size)
    if end <= size and after >= end:  # too short a length: the rest is junk, the record stands
        return _Frame(start, body, end, headers), end
    what = f"record says {int(length):,} bytes, {after - body:,} are there"
    return _Frame(start, body, after, headers, "truncated", what), after


def _next_record(content: Bytes, start: int, size: int) -> int:
    found = RECORD_START.search(content, max(start - 1, 0))
    return found.start() + 1 if found else size


def _skip_blank(content: Bytes, start: int, size: int) -> int:
    while start < size and content[start] in b"\r\n":
        start += 1
    return start


def parse_fields(head: bytes) -> dict[str, str]:
    """The fields of a WARC head by lower-case name, folded lines joined; of equals the first."""
    fields: dict[str, str] = {}
    name = ""
    for line in decode_head(head).splitlines()[1:]:
        if line[:1] in (" ", "\t") and name:
            fields[name] += " " + line.strip()
            continue
        name, colon, value = line.partition(":")
        name = name.strip().lower()
        if colon and name not in fields:
            fields[name] = value.strip()
        else:
            name = ""
    return fields


def decode_head(head: bytes) -> str:
    """Header bytes as text: UTF-8, or byte for byte where they are not."""
    try:
        return head.decode()
    except UnicodeDecodeError:
        return head.decode("latin-1")


def _record(
    warc_file: str, content: Bytes, frame: _Frame, offset: int, length: int, inside: int | None
) -> Record:
    if frame.damage:
        what = frame.what or ""
        return _damage(warc_file, offset, length, frame.damage, what, frame.headers, inside)
    kind = frame.headers.get("warc-type", "").lower()
    block = content[frame.body : min(frame.end, frame.body + MAX_BLOCK)]
    kind = kind if kind in KINDS else "other"
    return Record(warc_file, kind, offset, length, inside, frame.headers, block)


def _damage(
    warc_file: str,
    offset: int,
    length: int,
    rule: str,
    what: str,
    headers: dict[str, str] | None = None,
    inside: int | None = None,
) -> Record:
    reason = f"damage.{rule}"
    return Record(warc_file, "damage", offset, length, inside, headers or {}, b"", reason, what)


def _date(value: str) -> datetime | None:
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?", value)
    if not match:
        return None
    try:
        moment = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    return moment.replace(microsecond=int(float(match[2] or 0) * 1_000_000))
