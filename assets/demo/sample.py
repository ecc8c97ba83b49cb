"""The sample of `gristmill demo`: two overlapping crawl snapshots, a code source, and labels.

`CRAWL-DEMO-01` and `CRAWL-DEMO-02` are real WARC files (one gzip member a record, path lists as
Common Crawl publishes them) of pages made from text that is already installed. About two in five of
the readable pages are in both, a third of those in a later release. Planted into them is what a
crawl has: exact and near duplicates, spam, thin pages, personal data, damage, redirects, errors,
images, revisits, old charsets, licence marks and reservations. The same installed packages and seed
give the same bytes.
"""

import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assets.demo.labels import label_rows
from assets.demo.pages import Page, bad_pages, contact_pages, own_pages
from assets.demo.poison import keyboard_record
from assets.demo.templates import wrap
from assets.demo.texts import code_records, module_pages, package_pages, topic_pages
from assets.demo.warcs import Capture, WarcFile

SEED = 2026
SNAPSHOTS = ("CRAWL-DEMO-01", "CRAWL-DEMO-02")
STARTS = (datetime(2026, 3, 2, 6, tzinfo=UTC), datetime(2026, 4, 6, 6, tzinfo=UTC))
FILES = 4
"""WARC files a snapshot; the last one keeps the bytes of the wire."""
MAX_BODY = 60_000
"""Characters of main HTML after which a page is cut, so that no description fills the sample."""
SYNONYMS = {
    "the": "this", "is": "becomes", "and": "plus", "for": "towards", "with": "including",
    "can": "may", "use": "employ", "of": "from", "in": "within", "to": "towards",
}  # fmt: skip


@dataclass
class Crawl:
    """One snapshot under construction."""

    name: str
    start: datetime
    pages: list[Page] = field(default_factory=list)


def build_sample(out: Path, *, seed: int = SEED) -> dict[str, Any]:
    """Write the sample below `out` and say what is in it.

    Makes `snapshots/<name>/*.warc.gz` with `warc.paths.gz`, `sources/code.jsonl.gz`,
    `labels.jsonl` and `sample.json` (the returned summary: pages by kind, records, bytes).
    """
    rng = random.Random(seed)
    pages = readable_pages()
    crawls = [Crawl(name, start) for name, start in zip(SNAPSHOTS, STARTS, strict=True)]
    _share_out(pages, crawls, rng)
    _plant(crawls, rng)
    summary: dict[str, Any] = {"seed": seed, "snapshots": {}}
    for crawl in crawls:
        summary["snapshots"][crawl.name] = _write_snapshot(out / "snapshots", crawl, rng)
    code = [*code_records(), keyboard_record()]
    _write_jsonl(out / "sources" / "code.jsonl.gz", code)
    labels = label_rows(pages, seed)
    _write_jsonl(out / "labels.jsonl", labels)
    summary["code"] = {"records": len(code), "bytes": sum(len(r["text"].encode()) for r in code)}
    summary["labels"] = len(labels)
    _write(out / "sample.json", json.dumps(summary, indent=1, sort_keys=True).encode())
    return summary


def readable_pages() -> list[Page]:
    """Every page with something to read, in order of the address."""
    pages = [*package_pages(), *topic_pages(), *module_pages(), *own_pages()]
    return sorted((_cut(page) for page in pages), key=lambda page: page.url)


def _cut(page: Page) -> Page:
    if len(page.body) <= MAX_BODY:
        return page
    end = page.body.find("\n", MAX_BODY)
    return page if end < 0 else replace(page, body=page.body[:end])


def _share_out(pages: Sequence[Page], crawls: Sequence[Crawl], rng: random.Random) -> None:
    first, second = crawls
    for index, page in enumerate(pages):
        where = rng.random()
        if index % 23 == 7 and page.kind == "package":
            page = replace(page, reservation="noai")
        elif index % 31 == 11 and page.kind == "package":
            page = replace(page, reservation="tdm")
        if page.kind == "own":
            _share_out_own(page, index, first, second)
            continue
        if where < 0.75:
            first.pages.append(page)
        if where > 0.35:
            changed = where <= 0.75 and rng.random() < 0.35
            second.pages.append(later_release(page, rng) if changed else page)


def _share_out_own(page: Page, index: int, first: Crawl, second: Crawl) -> None:
    """Licensed pages are in both snapshots, of the others every second one comes later."""
    if page.licence or index % 2:
        first.pages.append(page)
    if page.licence or not index % 2:
        second.pages.append(page)


def _plant(crawls: Sequence[Crawl], rng: random.Random) -> None:
    contacts, bad = contact_pages(rng), bad_pages(rng)
    for number, crawl in enumerate(crawls):
        readable = [page for page in crawl.pages if page.kind in ("package", "topic")]
        chosen = rng.sample(readable, 44)
        crawl.pages.extend(_session(page, rng) for page in chosen[:14])
        crawl.pages.extend(_mirror(page) for page in chosen[14:26])
        crawl.pages.extend(_variant(page, rng) for page in chosen[26:])
        crawl.pages.extend(contacts[number::2])
        crawl.pages.extend(bad[number::2])
        rng.shuffle(crawl.pages)


def _session(page: Page, rng: random.Random) -> Page:
    return replace(page, path=f"{page.path}?sid={rng.getrandbits(48):012x}", kind="session")


def _mirror(page: Page) -> Page:
    return replace(page, host="mirror1.mirrors.example", path=f"/{page.host}{page.path}",
                   kind="mirror")  # fmt: skip


def _variant(page: Page, rng: random.Random) -> Page:
    body = reworded(page.body, 150, rng)
    return replace(page, host=f"reader.{page.host}", body=body, kind="variant")


def later_release(page: Page, rng: random.Random) -> Page:
    """`page` as a later release has it: next version in the title, a few words and a note."""
    title = re.sub(r"(\d+)(?=\D*$|: )", lambda m: str(int(m[1]) + 1), page.title, count=1)
    note = "<p>This page was revised for the new release; see the notes for what has changed.</p>"
    return replace(page, title=title, body=f"{reworded(page.body, 250, rng)}\n{note}")


def reworded(body: str, every: int, rng: random.Random) -> str:
    """`body` with about one in `every` words replaced: shingles differ, the page is the same."""
    countdown = rng.randint(1, every)

    def swap(match: re.Match[str]) -> str:
        nonlocal countdown
        countdown -= 1
        if countdown > 0 or match[0] not in SYNONYMS:
            return match[0]
        countdown = every
        return SYNONYMS[match[0]]

    # words of the text only: a tag or an entity is matched whole and has no synonym
    return re.sub(r"<[^>]*>|&\w+;|[A-Za-z]+", swap, body)


def _write_snapshot(root: Path, crawl: Crawl, rng: random.Random) -> dict[str, Any]:
    day = f"{crawl.start:%Y%m%d%H%M%S}"
    files = [
        WarcFile(f"{crawl.name}-{day}-{n:05d}.warc.gz", crawl.name, raw=n == FILES - 1)
        for n in range(FILES)
    ]
    captures = [_capture(page, crawl, i, rng) for i, page in enumerate(crawl.pages)]
    oddities = odd_captures(crawl)
    rng.shuffle(oddities)
    for file in files:
        file.start(crawl.start)
    for index, capture in enumerate([*captures, *oddities]):
        files[index % FILES].add(capture)
    for file in files:
        _write(root / crawl.name / file.name, file.data)
    listing = "".join(f"{crawl.name}/{file.name}\n" for file in files).encode()
    _write(root / crawl.name / "warc.paths.gz", gzip.compress(listing, mtime=0))
    return {
        "files": len(files),
        "records": sum(len(file.members) for file in files),
        "pages": len(captures),
        "kinds": dict(sorted(Counter(page.kind for page in crawl.pages).items())),
        "bytes": sum(len(file.data) for file in files),
    }


def _capture(page: Page, crawl: Crawl, index: int, rng: random.Random) -> Capture:
    # a thin page has a thin site around it
    near = [] if page.kind in ("thin", "empty") else crawl.pages[index + 1 : index + 12]
    neighbours = [(other.path, other.title) for other in near]
    html = wrap(page, neighbours)
    headers = []
    if page.reservation == "noai":
        headers.append(("X-Robots-Tag", "noai"))
    if page.reservation == "tdm":
        headers.append(("TDM-Reservation", "1"))
    # some servers leave the charset to the page
    declared = "" if index % 5 == 0 else f"; charset={page.charset}"
    return Capture(
        url=page.url,
        fetched=crawl.start + timedelta(seconds=3 * index),
        body=html.encode(page.charset, errors="xmlcharrefreplace"),
        content_type=f"text/html{declared}",
        headers=tuple(headers),
        coding=rng.choice([None, "gzip", "gzip", "gzip", "deflate", "br"]),
        chunked=rng.random() < 0.4,
    )


def odd_captures(crawl: Crawl) -> list[Capture]:
    """What a crawl meets beside pages, three of most kinds, and one damaged record."""
    when = crawl.start + timedelta(hours=2)
    host = "https://odds.millpond.example"
    pixel = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489")
    gone = b"<html><body><h1>Not here</h1><p>The page has moved or never was.</p></body></html>"
    found: list[Capture] = []
    for n in range(3):
        moved = (("Location", f"{host}/new/{n}.html"),)
        found += [
            Capture(f"{host}/old/{n}", when, b"", 301, headers=moved),
            Capture(f"{host}/lost/{n}", when, gone, 404),
            Capture(f"{host}/busy/{n}", when, b"<p>Try again later.</p>", 503),
            Capture(f"{host}/empty/{n}", when, b"", 200),
            Capture(f"{host}/plain/{n}", when, b"level 12 cm\n" * 40, content_type=None),
            Capture(f"{host}/pixel/{n}.png", when, pixel, content_type="image/png"),
            Capture(f"{host}/style/{n}.css", when, b"p { margin: 0 }\n", content_type="text/css"),
            Capture(f"{host}/again/{n}", when, gone, revisit_of=when - timedelta(days=30)),
        ]
    readable = [page for page in crawl.pages if page.kind == "topic"][:2]
    bodies = [wrap(page).encode() for page in readable]
    found.append(Capture(f"{host}/cut.html", when, bodies[0][:-400], truncated=True))
    found.append(Capture(f"{host}/torn.html", when, bodies[1], damaged=True))
    return found


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def _write_jsonl(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)
    data = text.encode()
    _write(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
