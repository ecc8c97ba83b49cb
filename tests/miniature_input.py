"""The input of the miniature: two overlapping snapshots, a source and labels, made by a function.

Some fifty pages of generated English in five WARC files, with what a crawl has: pages that come
again, near copies, thin pages, redirects, images, revisits, a damaged record, chunked and gzip
bodies, personal data (reserved example values), licence marks. Same bytes on every machine.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assets.demo.warcs import Capture, WarcFile

FIRST, SECOND = "MINI-2026-40", "MINI-2026-45"
SOURCE = "books"
START = datetime(2026, 10, 2, 8, tzinfo=UTC)
NOISE_BYTES = 90_000
"""Of an image, so that its WARC file fills a part group and the others form a second one."""

WORDS = {
    "noun": "miller wheel river bridge harbour garden library teacher engine letter market forest "
    "farmer village window winter morning captain lantern kitchen orchard carpenter mountain "
    "station doctor ferry museum painter shepherd tower valley weaver baker clock island meadow",
    "verb": "repaired measured carried remembered painted followed opened described collected "
    "explained noticed finished borrowed crossed watched counted cleaned guarded restored visited",
    "quality": "quiet narrow careful wooden early distant patient bright heavy ancient gentle "
    "curious broken steady hidden cold friendly crowded empty famous simple golden northern rainy",
    "spam": "buy cheap pills now best price click here free win bonus casino offer deal",
}
POOLS = {kind: words.split() for kind, words in WORDS.items()}
ENDINGS = (
    "because the {q} {n} was late that year",
    "while the {n} waited near the {q} {n}",
    "before anybody in the {n} had heard of it",
    "and the {n} was pleased with the {q} result",
    "although it had been {q} for more than {k} years",
    "so that the people of the {q} {n} could sleep well",
    "when {k} visitors arrived with a {q} {n}",
    "which is why the {n} still stands beside the {n}",
)
CONTACT = "Write to anna.miller@mail-host.org or call +44 20 7946 0958; the server is 8.8.4.4."


def build(folder: Path) -> Path:
    """Write the whole input below `folder` and return it: `snapshots/`, `sources/`, labels."""
    for snapshot, files in ((FIRST, _first()), (SECOND, _second())):
        place = folder / "snapshots" / snapshot
        place.mkdir(parents=True)
        for file in files:
            (place / file.name).write_bytes(file.data)
    (folder / "sources").mkdir()
    (folder / "sources" / f"{SOURCE}.jsonl").write_text(_source(), encoding="utf-8")
    (folder / "labels.jsonl").write_text(_labels(), encoding="utf-8")
    return folder


def sentences(name: str, n: int) -> list[str]:
    """`n` English sentences, a function of `name`."""
    rng = random.Random(name)
    return [_sentence(rng) for _ in range(n)]


def _sentence(rng: random.Random) -> str:
    ending = rng.choice(ENDINGS)
    while "{" in ending:
        for slot, kind in (("{q}", "quality"), ("{n}", "noun")):
            ending = ending.replace(slot, rng.choice(POOLS[kind]), 1)
        ending = ending.replace("{k}", str(rng.randrange(3, 90)), 1)
    quality, other = rng.sample(POOLS["quality"], 2)
    subject, thing = rng.sample(POOLS["noun"], 2)
    verb = rng.choice(POOLS["verb"])
    return f"The {quality} {subject} {verb} the {other} {thing} {ending}."


def html(name: str, lines: list[str], extra: str = "") -> bytes:
    """A page of paragraphs of three sentences with a menu and a footer."""
    groups = [lines[i : i + 3] for i in range(0, len(lines), 3)]
    body = "".join(f"<p>{' '.join(group)}</p>" for group in groups)
    page = (
        f"<!DOCTYPE html><html lang='en'><head><title>{name}</title></head><body>"
        "<nav><a href='/'>Home</a> <a href='/news'>News</a></nav>"
        f"<main><article><h1>About {name}</h1>{body}{extra}</article></main>"
        "<footer>All about mills</footer></body></html>"
    )
    return page.encode()


def _page(name: str, n: int = 24) -> bytes:
    return html(name, sentences(name, n))


def _near(name: str) -> bytes:
    """The page `name` with its last sentence replaced."""
    return html(name, [*sentences(name, 24)[:-1], "This copy was edited by somebody else later."])


def _contact(name: str) -> bytes:
    """A page with personal data."""
    return html("contact", sentences(f"contact {name}", 18), f"<p>{CONTACT}</p>")


def _file(snapshot: str, number: int, captures: list[Capture], *, raw: bool = False) -> WarcFile:
    file = WarcFile(f"{snapshot}-{number:05}.warc.gz", snapshot, raw=raw)
    file.start(START)
    for capture in captures:
        file.add(capture)
    return file


def _captures(day: int) -> Iterator[datetime]:
    moment = START + timedelta(days=day)
    while True:
        moment += timedelta(seconds=7)
        yield moment


def _pages(host: str, names: range, times: Iterator[datetime]) -> list[Capture]:
    return [
        Capture(f"https://{host}/page-{i}", next(times), _page(f"{host} page {i}")) for i in names
    ]


def _image(times: Iterator[datetime], seed: str) -> Capture:
    noise = random.Random(seed).randbytes(NOISE_BYTES)
    return Capture("https://pictures.example/a.png", next(times), noise, content_type="image/png")


def _first() -> list[WarcFile]:
    """Three files; the second snapshot has near copies of pages of the first one only."""
    times = _captures(0)
    alpha = _pages("alpha.example", range(9), times)
    oddities = [
        Capture("https://alpha.example/old", next(times), status=301, headers=(("Location", "/"),)),
        Capture("https://alpha.example/thin", next(times), html("thin", sentences("thin", 2))),
        Capture("https://alpha.example/copy", next(times), _page("alpha.example page 1")),
        _image(times, "first"),
    ]
    beta = _pages("beta.example", range(6), times)
    licence = "<p><a rel='license' href='https://creativecommons.org/licenses/by/4.0/'>CC</a></p>"
    marked = html("licensed", sentences("licensed", 18), licence)
    encoded = [
        Capture("https://beta.example/mail", next(times), _contact("beta"), coding="gzip"),
        Capture("https://beta.example/free", next(times), marked, chunked=True),
        Capture("https://beta.example/edited", next(times), _near("beta.example page 2")),
        Capture("https://beta.example/broken", next(times), _page("broken"), damaged=True),
    ]
    gamma = _pages("gamma.example", range(8), times)
    return [
        _file(FIRST, 0, alpha + oddities),
        _file(FIRST, 1, beta + encoded, raw=True),
        _file(FIRST, 2, gamma),
    ]


def _second() -> list[WarcFile]:
    times = _captures(35)
    again = [
        Capture(f"https://alpha.example/page-{i}", next(times), _page(f"alpha.example page {i}"))
        for i in range(4)
    ]
    edited = [
        Capture(f"https://alpha.example/page-{i}", next(times), _near(f"alpha.example page {i}"))
        for i in range(4, 7)
    ]
    seen = Capture("https://gamma.example/page-0", next(times), revisit_of=START)
    delta = _pages("delta.example", range(8), times)
    mirror = [Capture("https://delta.example/mirror", next(times), _page("delta.example page 3"))]
    mirror.append(Capture("https://delta.example/mail", next(times), _contact("delta")))
    return [
        _file(SECOND, 0, [*again, *edited, seen, _image(times, "second")]),
        _file(SECOND, 1, delta + mirror, raw=True),
    ]


def _source() -> str:
    """Twelve books, one of them twice, and a line that is no record."""
    rows = [
        json.dumps({"id": f"book-{i}", "text": "\n".join(sentences(f"book {i % 11}", 16))})
        for i in range(12)
    ]
    return "\n".join([*rows[:5], '{"id": "book-x", "text": ', *rows[5:]]) + "\n"


def _labels() -> str:
    """Thirty texts worth reading, thirty that sell something."""
    rng = random.Random("spam")
    rows = []
    for i in range(30):
        spam = " ".join(rng.choices(POOLS["spam"], k=40))
        split = "dev" if i % 5 == 0 else "train"
        rows.append({"text": " ".join(sentences(f"label {i}", 3)), "label": 1, "split": split})
        rows.append({"text": spam, "label": 0, "split": split})
    return "".join(json.dumps(row) + "\n" for row in rows)
