"""One page -> its main text: a pure function of its HTML, its URL and the section `extract`.

Mode `best` is this project's own extractor (`pipeline.extractor`); the libraries are in
`pipeline.cascade`. Whichever reads the text, one lexbor tree gives title and licence marks, and the
same bounds say beforehand what is too much: bytes, tags and depth, never time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.charset import clean, decode
from pipeline.config.extract import ExtractConfig
from pipeline.licences import NO_MARKS, Marks, page_marks

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

MAX_ATTRIBUTES, MAX_OPTIONS = 10_000, 20_000
"""Of one tag, and of a page: lexbor takes 0.2 s and 1 s for so many, and 95 s for 200,000."""
REOPENED = 10
"""Elements that HTML5 may open again, by this factor of `max_nodes`: see `extractor.bounds`."""
MAX_TITLE = 500
SHELL_CHARS = 300
"""A document with more text is no shell for a script to fill."""
SCRIPT_SHARE = 4
"""The text in a page's scripts is taken where it is so many times as long as its document's."""
WORD = re.compile(r"\w")
EMPTY_LINES = re.compile(r"\n[ \t\n]*\n[ \t]*\n")


@dataclass(frozen=True)
class Extracted:
    """What became of one page. `reason` is null where there is a text."""

    text: str = ""
    title: str | None = None
    extractor: str | None = None
    """Who found the text: gristmill, json_ld, trafilatura or resiliparse."""
    marks: Marks = NO_MARKS
    charset: str | None = None
    reason: str | None = None
    value: float | None = None
    threshold: float | None = None


def extract_page(html: bytes | str, url: str | None, config: ExtractConfig) -> Extracted:
    """Title, main text and licence marks of one page; bytes are decoded first.

    Too large, too deep or without text is a reason, never an exception.
    """
    from pipeline.extractor.bounds import page_cost

    charset = None
    if len(html) > config.max_bytes:
        return _refused("extract.too_large", len(html), config.max_bytes)
    if isinstance(html, bytes):
        html, charset = decode(html)
    data = html.encode("utf-8", "replace")
    cost = page_cost(data)
    for reason, value, limit in (
        ("extract.too_large", cost.tags, config.max_nodes),
        ("extract.too_deep", cost.depth, config.max_depth),
        ("extract.too_large", cost.reopened, REOPENED * config.max_nodes),
        ("extract.too_large", cost.attributes, MAX_ATTRIBUTES),
        ("extract.too_large", cost.options, MAX_OPTIONS),
    ):
        if value > limit:
            return _refused(reason, value, limit)
    return _read(html, data, url, charset, cost.depth, config)


def _refused(reason: str, value: int, threshold: int) -> Extracted:
    return Extracted(reason=reason, value=float(value), threshold=float(threshold))


def _read(
    html: str, data: bytes, url: str | None, charset: str | None, depth: int, config: ExtractConfig
) -> Extracted:
    from selectolax.lexbor import LexborHTMLParser

    from pipeline.extractor.bounds import names_rights

    tree = LexborHTMLParser(data)
    marks = page_marks(tree, url) if names_rights(data) else NO_MARKS
    title = tree.css_first("title")
    name = " ".join(clean(title.text()).split())[:MAX_TITLE] if title else ""
    if config.mode == "best":
        text, extractor = _own_text(tree, config)
    else:
        from pipeline.cascade import library_text

        text, extractor = library_text(html, depth, config)
    text = tidy(text)
    if not WORD.search(text):
        return Extracted("", name or None, None, marks, charset, "extract.empty")
    return Extracted(text, name or None, extractor, marks, charset)


def _own_text(tree: LexborHTMLParser, config: ExtractConfig) -> tuple[str, str]:
    from pipeline.extractor.assemble import page_text
    from pipeline.extractor.page import scan_tree
    from pipeline.extractor.select import kept_blocks, load_model

    page = scan_tree(tree)
    model = load_model(Path(config.model) if config.model else None)
    text = page_text(page, kept_blocks(page, config.comments, model))
    if len(text) < SHELL_CHARS:
        from pipeline.extractor.script_text import script_text

        scripts = script_text(tree)
        if is_shell(text, scripts):
            return scripts, "json_ld"
    return text, "gristmill"


def is_shell(text: str, scripts: str) -> bool:
    """Whether a document with this text is filled by scripts that carry the other one."""
    return len(text) < SHELL_CHARS and len(scripts) > SCRIPT_SHARE * len(text)


def tidy(text: str) -> str:
    """The text without controls, blanks at line ends and runs of empty lines."""
    text = "\n".join(line.rstrip() for line in clean(text).split("\n"))
    return EMPTY_LINES.sub("\n\n", text).strip()
