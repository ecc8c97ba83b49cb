"""The sample crawl: what is in it, that it is the same each time, and that the bars are met."""

from __future__ import annotations

import gzip
import ipaddress
import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from assets.demo.pages import bad_pages, contact_pages, own_pages
from assets.demo.poison import RECORD_ID, SOURCE, URL, WORDS
from assets.demo.sample import FILES, SNAPSHOTS, build_sample, later_release, reworded
from assets.demo.templates import wrap
from assets.demo.texts import plain_to_html, to_html
from pipeline.config import load_config
from pipeline.quality.split import held_out
from tests.pipeline import warcs


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("sample")
    return folder, build_sample(folder)


def test_two_snapshots_of_four_files_with_path_lists(
    sample: tuple[Path, dict[str, Any]],
) -> None:
    folder, summary = sample
    assert tuple(summary["snapshots"]) == SNAPSHOTS
    for name in SNAPSHOTS:
        listing = gzip.decompress((folder / "snapshots" / name / "warc.paths.gz").read_bytes())
        paths = listing.decode().split()
        assert len(paths) == FILES
        for path in paths:
            assert (folder / "snapshots" / path).stat().st_size > 10_000


def test_at_least_400_pages_and_every_kind_is_planted(
    sample: tuple[Path, dict[str, Any]],
) -> None:
    kinds: Counter[str] = Counter()
    for snapshot in sample[1]["snapshots"].values():
        kinds.update(snapshot["kinds"])
    assert sum(kinds.values()) >= 400
    wanted = {
        "package", "topic", "module", "own", "session", "mirror", "variant", "contact", "spam",
        "thin", "links", "lorem", "brackets",
    }  # fmt: skip
    assert wanted <= set(kinds)


def test_code_source_is_large_enough_and_licensed(sample: tuple[Path, dict[str, Any]]) -> None:
    data = gzip.decompress((sample[0] / "sources" / "code.jsonl.gz").read_bytes())
    rows = [json.loads(line) for line in data.splitlines()]
    assert sum(len(row["text"].encode()) for row in rows) >= 1_400_000
    assert {row["licence"] for row in rows} == {"PSF-2.0", "CC0-1.0"}
    (planted,) = [row for row in rows if row.get("url")]
    assert (planted["id"], planted["url"]) == (RECORD_ID, URL)
    assert set(planted["text"].split()) == set(WORDS)
    assert len({row["id"] for row in rows}) == len(rows)
    assert not [row["id"] for row in rows if row["id"].startswith("/")]
    others = [row["text"] for row in rows if row is not planted]
    assert not [word for word in WORDS if any(word in text for text in others)]


def test_the_planted_document_is_trained_on() -> None:
    record = pl.DataFrame({"source": [SOURCE], "source_id": [RECORD_ID]})
    share = load_config(preset="demo").score.held_out
    assert held_out(record, share).to_list() == ["train"]


def test_labels_suffice_to_train_and_to_measure(sample: tuple[Path, dict[str, Any]]) -> None:
    rows = [json.loads(line) for line in (sample[0] / "labels.jsonl").read_text().splitlines()]
    counts = Counter((row["label"], row["split"]) for row in rows)
    assert len(rows) >= 300
    assert set(counts) == {(0, "dev"), (0, "train"), (1, "dev"), (1, "train")}
    assert sum(row["label"] for row in rows) * 2 == len(rows)
    assert len({row["text"] for row in rows}) == len(rows)


@pytest.mark.slow
def test_same_installation_same_bytes(sample: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    first, summary = sample
    assert build_sample(tmp_path) == summary
    names = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert names
    assert all((first / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


@pytest.mark.slow
def test_bars_of_the_demo(sample: tuple[Path, dict[str, Any]]) -> None:
    import polars as pl

    from pipeline.config import load_config
    from pipeline.filters.run import filter_documents

    config = load_config(preset="demo")
    reasons: Counter[str] = Counter()
    came = kept = kept_bytes = 0
    for path in sorted((sample[0] / "snapshots").rglob("*.warc.gz")):
        extracted = warcs.extracted(path, config.extract, path.parent.name)
        filtered = filter_documents(extracted.tables["parts"], config.filter)
        for table in (extracted.tables["decisions"], filtered.tables["decisions"]):
            reasons.update(table["reason"].drop_nulls().to_list())
        came += extracted.tables["parts"].height
        kept += filtered.tables["parts"].height
        kept_bytes += int(filtered.tables["parts"]["text"].str.len_bytes().sum())
        assert filtered.tables["parts"].select(pl.col("language").is_null().any()).item() is False
    assert 0.3 <= kept / came <= 0.7
    assert len([name for name in reasons if not name.startswith("record.")]) >= 12
    assert {"damage.gzip", "record.redirect", "record.status", "record.revisit"} <= set(reasons)
    assert kept_bytes >= 1_200_000  # about two thirds of it are left after deduplication


def test_own_pages_are_prose_in_many_languages_and_charsets() -> None:
    pages = own_pages()
    assert len({page.language for page in pages}) >= 8
    assert len({page.charset for page in pages}) >= 5
    for page in pages:
        assert page.body.count("<p>") >= 3
        html = wrap(page)
        # no letter of the language is lost in the old encoding
        assert html.encode(page.charset).decode(page.charset) == html
    assert {page.reservation for page in pages} == {None, "noai", "tdm"}


def test_personal_data_is_from_reserved_ranges_only() -> None:
    text = "".join(page.body for page in contact_pages(random.Random(1)))
    mails = re.findall(r"[\w.]+@([\w.]+\w)", text)
    assert mails
    assert set(mails) == {"example.com"}
    addresses = re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", text)
    assert addresses
    assert all(ipaddress.ip_address(a) in ipaddress.ip_network("203.0.113.0/24") for a in addresses)
    phones = re.findall(r"\+1 [\d-]+", text)
    assert phones
    assert all(re.fullmatch(r"\+1 202-555-01\d\d", phone) for phone in phones)


def test_bad_pages_depend_on_the_seed_alone() -> None:
    assert bad_pages(random.Random(7)) == bad_pages(random.Random(7))
    assert bad_pages(random.Random(7)) != bad_pages(random.Random(8))


def test_licence_and_reservation_stand_in_the_page() -> None:
    page = next(page for page in own_pages() if page.licence)
    assert f'<link rel="license" href="{page.licence}">' in wrap(page)
    page = next(page for page in own_pages() if page.reservation == "noai")
    assert '<meta name="robots" content="noai, noimageai">' in wrap(page)


def test_rewording_leaves_markup_alone_and_changes_few_words() -> None:
    body = '<p class="the and">' + "the grain is in the mill and waits for the water " * 60 + "</p>"
    changed = reworded(body, 150, random.Random(1))
    assert changed.startswith('<p class="the and">')
    pairs = list(zip(body.split(), changed.split(), strict=True))
    different = sum(a != b for a, b in pairs)
    assert 2 <= different <= 0.02 * len(pairs)


def test_a_later_release_counts_up_and_says_so() -> None:
    page = own_pages()[0]
    release = later_release(page, random.Random(1))
    assert release.url == page.url
    assert "revised for the new release" in release.body


def test_plain_text_becomes_blocks() -> None:
    html = plain_to_html("Title\n*****\n\nA <line>.\n\n* one\n\n* two\n\n    >>> x")
    assert html.splitlines() == [
        "<h2>Title</h2>",
        "<p>A &lt;line&gt;.</p>",
        "<ul><li>one</li></ul>",
        "<ul><li>two</li></ul>",
        "<pre>&gt;&gt;&gt; x</pre>",
    ]


def test_descriptions_never_raise_and_include_no_file() -> None:
    assert "<h1>Big</h1>" in to_html("# Big\n\ntext", "text/markdown; charset=UTF-8")
    assert '<p align="center">' in to_html('<p align="center">x</p>', "text/markdown")
    broken = ".. include:: /etc/hostname\n\nfine :unknown:`role`\n\n.. raw:: html\n\n   <script>"
    html = to_html(broken, "text/x-rst")
    assert "fine" in html
    assert "<script>" not in html
