"""Ten thousand random mutations of real pages and of real crawl records.

Nothing may crash or hang, every record has exactly one fate, and what stands before the damage in a
file is read as if nothing had happened.
"""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.config.extract import ExtractConfig
from pipeline.page_worker import page_worker
from pipeline.schema import REASONS
from pipeline.warc import read_records
from tests.pipeline import warcs

pytestmark = [pytest.mark.e2e, pytest.mark.shared]

PAGES = RECORDS = 5_000
LARGEST_PAGE = 60_000
CONFIG = ExtractConfig()
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f]")
REFUSALS = {None, "extract.empty", "extract.too_large", "extract.too_deep"}
KNOWN = {None, *(f"{family}.{rule}" for family, rules in REASONS.items() for rule in rules)}
FUZZ: dict[str, Any] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

TAGS = (
    b"<div>", b"</div>", b"<table>", b"<td>", b"<p", b"<!--", b"-->", b"<script>", b"</script>",
    b"<svg>", b"<math>", b"<template>", b"<plaintext>", b"<select>", b"<pre>", b"<a href='",
    b"<![CDATA[", b"]]>", b"&#0;", b"&#x110000;", b"&amp", b'"', b"\x00", b"\xff\xfe",
    b"\xed\xa0\x80", b"<br>" * 50, b"<b>" * 400, b"<td><table>" * 60, b"</",
)  # fmt: skip

Mutation = Callable[[bytes], bytes]


def cut(at: float) -> Mutation:
    """The rest is missing."""
    return lambda data: data[: int(at * len(data))]


def put(at: float, piece: bytes) -> Mutation:
    """`piece` in between."""
    return lambda data: data[: int(at * len(data))] + piece + data[int(at * len(data)) :]


def set_byte(at: float, value: int) -> Mutation:
    """One byte is another."""
    return lambda data: put_over(data, int(at * len(data)), bytes([value]))


def put_over(data: bytes, at: int, piece: bytes) -> bytes:
    """`data` with `piece` over what stood there."""
    return data[:at] + piece + data[at + len(piece) :]


def drop(at: float, share: float) -> Mutation:
    """A stretch is missing."""

    def apply(data: bytes) -> bytes:
        start = int(at * len(data))
        return data[:start] + data[start + int(share * len(data)) :]

    return apply


def twice(at: float, share: float) -> Mutation:
    """A stretch stands there twice."""

    def apply(data: bytes) -> bytes:
        start = int(at * len(data))
        end = start + int(share * len(data))
        return data[:end] + data[start:end] + data[end:]

    return apply


AT = st.floats(0, 1)
ONE = st.one_of(
    st.builds(cut, AT),
    st.builds(put, AT, st.sampled_from(TAGS)),
    st.builds(put, AT, st.binary(max_size=12)),
    st.builds(set_byte, AT, st.integers(0, 255)),
    st.builds(drop, AT, st.floats(0, 0.3)),
    st.builds(twice, AT, st.floats(0, 0.3)),
)
MUTATIONS = st.lists(ONE, min_size=1, max_size=6)


def mutated(data: bytes, mutations: list[Mutation]) -> bytes:
    """All mutations, one after the other."""
    for apply in mutations:
        data = apply(data)
    return data


@lru_cache(maxsize=1)
def real_records(folder: Path) -> tuple[bytes, ...]:
    """HTTP responses of real crawls, those of a moderate size."""
    blocks = []
    for path in sorted(folder.glob("CRAWL-*/*-0000[04].warc.gz")):
        for record in read_records(path, path.name):
            if record.kind == "response" and 500 < len(record.block) < LARGEST_PAGE:
                blocks.append(record.block)
    return tuple(blocks[:: len(blocks) // 200])


@settings(max_examples=PAGES, **FUZZ)
@given(st.integers(0, 2**16), MUTATIONS)
def pages_survive(folder: Path, which: int, mutations: list[Mutation]) -> None:
    blocks = real_records(folder)
    page = blocks[which % len(blocks)].partition(b"\r\n\r\n")[2]
    html = mutated(page, mutations).decode("utf-8", "replace")
    found, reproducible = page_worker().read(html, "http://a.example/", CONFIG)
    assert reproducible
    assert found.reason in REFUSALS
    assert bool(found.text) == (found.reason is None)
    assert not CONTROLS.search(found.text)


def test_no_mutation_of_a_page_ends_its_reader(shared: Path) -> None:
    pages_survive(shared / "data/snapshots")


@settings(max_examples=RECORDS, **FUZZ)
@given(st.integers(0, 2**16), MUTATIONS, st.sampled_from(("inside", "around", "plain")))
def records_survive(folder: Path, which: int, mutations: list[Mutation], where: str) -> None:
    blocks = real_records(folder)
    good = warcs.response(url="http://first.example/")
    bad = warcs.record(blocks[which % len(blocks)], url="http://second.example/")
    last = warcs.response(url="http://third.example/")
    if where == "inside":  # sound members, damaged content
        members = [gzip.compress(one) for one in (good, mutated(bad, mutations), last)]
    elif where == "around":  # damaged members
        members = [gzip.compress(good), mutated(gzip.compress(bad), mutations), gzip.compress(last)]
    else:
        members = [good, mutated(bad, mutations), last]
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "x.warc" if where == "plain" else "x.warc.gz")
        path.write_bytes(b"".join(members))
        part = warcs.extracted(path, CONFIG)
    decisions, documents = part.tables["decisions"], part.tables["parts"]
    assert decisions["doc_id"].is_unique().all()
    assert set(decisions["reason"]) <= KNOWN
    assert (decisions["kept"] == decisions["reason"].is_null()).all()
    assert decisions.filter("kept")["doc_id"].to_list() == documents["doc_id"].to_list()
    assert decisions["url"][0] == "http://first.example/"
    assert decisions["kept"][0]
    if where == "inside":
        assert decisions["url"][-1] == "http://third.example/"
        assert decisions["kept"][-1]


def test_every_record_of_a_mutated_file_has_one_fate(shared: Path) -> None:
    records_survive(shared / "data/snapshots")
