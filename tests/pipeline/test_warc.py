from __future__ import annotations

import base64
import gzip
import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pipeline import warc
from pipeline.errors import GristmillError
from pipeline.warc import Record, read_records
from tests.pipeline.warcs import record, response, write

THREE = [response(f"<p>page {n}</p>", url=f"http://a.example/{n}") for n in range(3)]


def read(path: Path) -> list[Record]:
    return list(read_records(path, path.name))


def urls(records: list[Record]) -> list[str | None]:
    return [r.url for r in records if r.kind == "response"]


def damage(records: list[Record]) -> list[tuple[str | None, int, int]]:
    return [(r.damage, r.warc_offset, r.warc_length) for r in records if r.kind == "damage"]


@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_each_record_has_its_place_in_the_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, *THREE)
    records = read(path)
    assert urls(records) == [f"http://a.example/{n}" for n in range(3)]
    assert {r.member_offset for r in records} == {None}
    for r, whole in zip(records, THREE, strict=True):
        stored = path.read_bytes()[r.warc_offset : r.warc_offset + r.warc_length]
        stored = gzip.decompress(stored) if name.endswith(".gz") else stored + b"\r\n\r\n"
        assert stored == whole
    assert records[0].fetched_at == datetime(2026, 10, 2, 17, 6, 51, tzinfo=UTC)
    assert records[0].block.endswith(b"<p>page 0</p>")


def test_one_member_with_all_records_gives_offsets_inside_it(tmp_path: Path) -> None:
    path = tmp_path / "one.warc.gz"
    path.write_bytes(gzip.compress(b"".join(THREE)))
    records = read(path)
    assert {(r.warc_offset, r.warc_length) for r in records} == {(0, path.stat().st_size)}
    assert [r.member_offset for r in records] == [0, len(THREE[0]), len(THREE[0] + THREE[1])]


def test_a_member_beyond_the_memory_bound_is_spooled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "one.warc.gz"
    path.write_bytes(gzip.compress(b"".join(THREE)))
    expected = read(path)
    monkeypatch.setattr(warc, "MEMBER_IN_MEMORY", 100)
    assert read(path) == expected


@pytest.mark.parametrize("off", [-3, -1, 1, 2, 4])
@pytest.mark.parametrize("name", ["a.warc", "a.warc.gz"])
def test_a_length_that_is_slightly_off_costs_nothing(tmp_path: Path, name: str, off: int) -> None:
    odd = response("<p>page 1</p>", url="http://a.example/1", off=off)
    records = read(write(tmp_path / name, THREE[0], odd, THREE[2]))
    assert urls(records) == [f"http://a.example/{n}" for n in range(3)]
    assert not damage(records)


@pytest.mark.parametrize("off", [5, 9, 100_000])
def test_a_length_that_reaches_into_the_next_record_costs_one_record(
    tmp_path: Path, off: int
) -> None:
    odd = response("<p>page 1</p>", url="http://a.example/1", off=off)
    records = read(write(tmp_path / "a.warc", THREE[0], odd, THREE[2]))
    assert urls(records) == ["http://a.example/0", "http://a.example/2"]
    assert damage(records)[0][:2] == ("damage.truncated", len(THREE[0]))


@pytest.mark.parametrize("field", ["", "Content-Length: abc\r\n", "Content-Length: -5\r\n"])
def test_a_record_without_a_length_is_damage_and_the_next_one_is_read(
    tmp_path: Path, field: str
) -> None:
    odd = f"WARC/1.0\r\nWARC-Type: response\r\n{field}\r\nabc\r\n\r\n".encode()
    records = read(write(tmp_path / "a.warc", THREE[0], odd, THREE[2]))
    assert urls(records) == ["http://a.example/0", "http://a.example/2"]
    assert len(damage(records)) == 1


def test_a_cut_last_member_is_damage_with_its_url(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", *THREE, response("x" * 50_000, url="http://a.example/cut"))
    whole = path.read_bytes()
    start = sum(len(gzip.compress(r, mtime=0)) for r in THREE)
    path.write_bytes(whole[:-20])
    records = read(path)
    assert len(urls(records)) == 3
    assert damage(records) == [("damage.truncated", start, len(whole) - 20 - start)]
    assert records[-1].url == "http://a.example/cut"
    assert records[-1].block == b""


def test_a_cut_plain_file_does_not_hand_out_the_stump(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc", *THREE)
    path.write_bytes(path.read_bytes()[:-10])
    assert urls(read(path)) == ["http://a.example/0", "http://a.example/1"]
    assert len(damage(read(path))) == 1


def test_reading_restarts_at_the_next_member_after_damage(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", *THREE)
    data = bytearray(path.read_bytes())
    start = len(gzip.compress(THREE[0], mtime=0))
    length = len(gzip.compress(THREE[1], mtime=0))
    data[start + length - 6] ^= 0xFF  # in the CRC: only the end of the member tells
    path.write_bytes(data)
    records = read(path)
    assert urls(records) == ["http://a.example/0", "http://a.example/2"]
    assert damage(records) == [("damage.gzip", start, length)]
    assert "cannot be inflated" in (records[1].what or "")


def test_damage_in_one_large_member_keeps_what_its_digests_prove(tmp_path: Path) -> None:
    def proven(n: int) -> bytes:
        body = hashlib.sha512(str(n).encode()).hexdigest() * 200
        block = f"HTTP/1.1 200 OK\r\n\r\n{body}".encode()
        digest = base64.b32encode(hashlib.sha1(block).digest()).decode()
        field = f"WARC-Block-Digest: sha1:{digest}\r\n"
        return record(block, url=f"http://a.example/{n}", fields=field)

    path = tmp_path / "one.warc.gz"
    data = bytearray(gzip.compress(b"".join(proven(n) for n in range(6)), 1))
    data[-6] ^= 0xFF
    path.write_bytes(data)
    records = read(path)
    assert urls(records) == [f"http://a.example/{n}" for n in range(6)]
    assert [d[0] for d in damage(records)] == ["damage.gzip"]


def test_records_without_a_digest_are_not_believed_before_damage(tmp_path: Path) -> None:
    path = tmp_path / "one.warc.gz"
    data = bytearray(gzip.compress(b"".join(THREE)))
    data[-6] ^= 0xFF
    path.write_bytes(data)
    records = read(path)
    assert urls(records) == []
    assert {r.damage for r in records} == {"damage.gzip"}


@pytest.mark.parametrize(
    ("between", "n_damaged"),
    [
        (gzip.compress(b"", mtime=0), 0),
        (b"\x00" * 700, 0),
        (b"some garbage", 1),
        (b"\x1f\x8b\x08junk", 1),
    ],
)
def test_bytes_between_members(tmp_path: Path, between: bytes, n_damaged: int) -> None:
    path = tmp_path / "a.warc.gz"
    members = [gzip.compress(one) for one in THREE]
    path.write_bytes(members[0] + between + members[1] + members[2])
    records = read(path)
    assert len(urls(records)) == 3
    assert len(damage(records)) == n_damaged


def test_field_names_in_any_case_and_bare_newlines(tmp_path: Path) -> None:
    lower = (
        THREE[1].replace(b"Content-Length", b"content-length").replace(b"WARC-Type", b"warc-type")
    )
    bare = (
        b"WARC/1.1\nWARC-Type: metadata\nWARC-Target-URI: <http://b.example/>\n"
        b"Content-Length: 2\n\nhi\n\n"
    )
    records = read(write(tmp_path / "a.warc", lower, bare, THREE[2]))
    assert [r.kind for r in records] == ["response", "metadata", "response"]
    assert records[1].url == "http://b.example/"
    assert records[0].block.endswith(b"<p>page 1</p>")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("revisit", "revisit"),
        ("resource", "other"),
        ("conversion", "other"),
        ("WARCINFO", "warcinfo"),
    ],
)
def test_kinds(tmp_path: Path, kind: str, expected: str) -> None:
    assert read(write(tmp_path / "a.warc", response(kind=kind)))[0].kind == expected


def test_an_empty_file_has_no_record(tmp_path: Path) -> None:
    assert read(write(tmp_path / "empty.warc.gz")) == []


@pytest.mark.parametrize(
    "data",
    [
        b"<html>a page</html>",
        gzip.compress(b"a,b\n1,2\n", mtime=0),
        b"\x1f\x8b\x08" + b"\xff" * 99,
    ],
    ids=["html", "gzip", "gzip head"],
)
def test_a_file_that_is_no_warc_is_an_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(data)
    with pytest.raises(GristmillError, match="no WARC record") as caught:
        read(path)
    assert caught.value.exit_code == 1


def test_a_file_cut_within_its_first_record_is_damaged_not_foreign(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", response("x" * 9000 + "y" * 9000))
    path.write_bytes(path.read_bytes()[:-30])
    assert [r.damage for r in read(path)] == ["damage.truncated"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(position=646, flip=1, cut=False)  # hides the end of the last member, which looks cut
@given(position=st.integers(0, 10_000), flip=st.integers(1, 255), cut=st.booleans())
def test_no_damage_loses_a_sound_record_or_hands_out_a_damaged_one(
    tmp_path: Path, position: int, flip: int, cut: bool
) -> None:
    path = write(tmp_path / "a.warc.gz", *THREE)
    data = bytearray(path.read_bytes())
    position %= len(data)
    struck = next(r for r in read(path) if position < r.warc_offset + r.warc_length)
    sound = {r.url: r.block for r in read(path) if r.warc_offset != struck.warc_offset}
    if cut:
        data = data[:position]
        sound = {u: b for u, b in sound.items() if u is not None and u < (struck.url or "")}
    else:
        data[position] ^= flip
    path.write_bytes(data)
    try:
        found = {r.url: r.block for r in read(path) if r.kind == "response"}
    except GristmillError:
        found = {}
    truth = {r.url: r.block for r in read(write(tmp_path / "b.warc.gz", *THREE))}
    assert sound.items() <= found.items()
    assert found.items() <= truth.items()
