"""`Page`: what the compiled pass sees of a page. One lexbor parse, one pass over what it writes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from selectolax.lexbor import LexborHTMLParser

from pipeline.extractor import places as at
from pipeline.extractor.scan import scan
from pipeline.extractor.vocabulary import LEXICON

ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&nbsp;", " "), ("&amp;", "&"))


@dataclass(frozen=True)
class Page:
    """Text, blocks and elements of a page, in document order.

    Block columns are named `B_*` in `vocabulary`. Element 0 is the document; an element's parent
    has a smaller index. Void, skipped and raw-text elements are none.
    """

    text: NDArray[np.uint8]
    """UTF-8 [n_bytes]; a block is a range of it."""
    blocks: NDArray[np.int64]
    """[n_blocks, N_COLUMNS]"""
    parent: NDArray[np.int32]
    """[n_elements]"""
    tag: NDArray[np.int16]
    """[n_elements], codes of `vocabulary.TAGS`."""
    bits: NDArray[np.int64]
    """[n_elements], groups of its class, id and role words, and the flags above them."""
    sig: NDArray[np.uint64]
    """[n_elements], hash of name and class without digits: equal for elements of one kind."""
    number: NDArray[np.int32]
    """[n_elements], `start` of an ordered list or `value` of an item, else NO_NUMBER."""
    hints: int
    """What the page says it is, bits of `vocabulary.HINT_BITS`."""
    title: str | None
    """Text of the first `<title>` outside SVG, as it stands."""

    def block_texts(self) -> list[str]:
        """The text of each block."""
        data = self.text.tobytes()
        bounds = self.blocks[:, :2].tolist()
        return [data[start:end].decode("utf-8", "replace") for start, end in bounds]


def parse_page(html: str) -> Page:
    """Parse and scan one page. Any text is a page; the caller bounds its size and depth."""
    return scan_tree(LexborHTMLParser(html.encode("utf-8", "replace")))


def scan_tree(tree: LexborHTMLParser) -> Page:
    """Scan a page that is parsed already."""
    data = (tree.html or "").encode("utf-8", "replace")
    buffer = np.frombuffer(data, np.uint8)
    text, blocks, rows, hints, start, end = scan(buffer, LEXICON)
    title = data[start:end].decode("utf-8", "replace") if start >= 0 else None
    if title and "&" in title:
        for entity, character in ENTITIES:
            title = title.replace(entity, character)
    return Page(
        text=text,
        blocks=blocks,
        parent=rows[:, at.E_PARENT].astype(np.int32),
        tag=rows[:, at.E_TAG].astype(np.int16),
        bits=rows[:, at.E_BITS].copy(),
        sig=rows[:, at.E_SIG].astype(np.uint64),
        number=rows[:, at.E_NUMBER].astype(np.int32),
        hints=int(hints),
        title=title,
    )
