"""Labelled examples that teach the demo's quality classifier, made from what is installed.

Good: paragraphs of descriptions, language topics and module documentation that read as prose. Bad:
what comes with the same packages and is no reading matter (file lists, dependency lists, keyword
lists, licence texts, change logs) and spam. Labels follow the kind of material; they are not
judgements of each text.
"""

import random
import re
from collections.abc import Iterable, Iterator
from html import unescape
from importlib.metadata import Distribution

from assets.demo.pages import Page, bad_pages
from assets.demo.texts import description, installed, metadata_of

CHUNK = 900
"""Characters of an example; long texts give up to four."""
EACH = 260
DEV_EVERY = 5


def label_rows(pages: Iterable[Page], seed: int) -> list[dict[str, str | int]]:
    """Rows `text, label (1 good, 0 bad), split (train, dev)`, half of each, shuffled."""
    rng = random.Random(seed)
    good = _sample(sorted(set(_good(pages))), rng)
    bad = _sample(sorted(set(_bad(rng))), rng)
    size = min(len(good), len(bad))
    rows = [(text, 1) for text in good[:size]] + [(text, 0) for text in bad[:size]]
    rng.shuffle(rows)
    return [
        {"text": text, "label": label, "split": "train" if index % DEV_EVERY else "dev"}
        for index, (text, label) in enumerate(rows)
    ]


def _sample(texts: list[str], rng: random.Random) -> list[str]:
    return rng.sample(texts, min(EACH, len(texts)))


def _good(pages: Iterable[Page]) -> Iterator[str]:
    for page in pages:
        if page.kind not in ("package", "topic", "module") or page.language != "en":
            continue
        paragraphs = re.findall(r"<p>(.*?)</p>", page.body, flags=re.DOTALL)
        texts = [unescape(re.sub(r"<[^>]+>", "", paragraph)) for paragraph in paragraphs]
        prose = [" ".join(text.split()) for text in texts if is_prose(text)]
        yield from _chunks("\n".join(prose), limit=3)


def is_prose(text: str) -> bool:
    """Sentences rather than lists: 20 words or more, mostly letters, ending as a sentence does."""
    letters = sum(character.isalpha() or character == " " for character in text)
    ends = text.rstrip().endswith((".", "!", "?", ":"))
    return ends and len(text.split()) >= 20 and letters > 0.9 * len(text)


def _bad(rng: random.Random) -> Iterator[str]:
    for page in bad_pages(rng):
        if page.kind in ("spam", "links", "shouting", "bullets"):
            yield " ".join(unescape(re.sub(r"<[^>]+>", " ", page.body)).split())[:CHUNK]
    for distribution in installed():
        for text in (_file_list(distribution), _facts(distribution), _changes(distribution)):
            yield from _chunks(text, limit=1)
        yield from _chunks(_licence(distribution), limit=1)


def _file_list(distribution: Distribution) -> str:
    names = sorted(str(path) for path in distribution.files or [] if ".." not in str(path))
    return "\n".join(name for name in names if not name.endswith(".pyc"))[: 4 * CHUNK]


def _facts(distribution: Distribution) -> str:
    metadata = metadata_of(distribution)
    lines = [metadata.get("Keywords") or ""]
    for key in ("Classifier", "Requires-Dist", "Project-URL"):
        lines.extend(metadata.get_all(key) or [])
    return "\n".join(lines)


def _changes(distribution: Distribution) -> str:
    text = description(distribution)
    found = re.search(r"^.*\b(changelog|release notes|changes|history)\b.*$", text, re.I | re.M)
    return text[found.start() :] if found else ""


def _licence(distribution: Distribution) -> str:
    for path in sorted(distribution.files or [], key=str):
        if ".dist-info" in str(path) and re.search(r"LICEN[CS]E|COPYING|NOTICE", path.name, re.I):
            try:
                return path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                return ""  # listed but not installed, or in another encoding: nothing to learn
    return ""


def _chunks(text: str, *, limit: int) -> Iterator[str]:
    for start in range(0, min(len(text), limit * CHUNK), CHUNK):
        piece = text[start : start + CHUNK].strip()
        if len(piece) >= CHUNK // 4:
            yield piece
