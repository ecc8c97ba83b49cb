"""The C4 rules: lines go, citation marks go, pages with too little left are dropped.

Raffel et al., arXiv:1910.10683, section 2.2, with the names, order and additions of datatrove's
C4QualityFilter. Lines are judged and rejoined; which byte of the edited text is which byte of the
incoming one is kept as a span map (`pipeline.edits`). In documents of a script without blanks
between words, a character counts as a word of its line.

Not copied: "I" with a dot and the Kelvin sign are not folded to "i" and "k" when phrases are
looked for.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.config.filter import C4Config
from pipeline.filters import c4_kernels as kernels
from pipeline.filters.edited import Cut, Edited, strip
from pipeline.filters.rules import Rule, above, below
from pipeline.words import Texts, Tokenizer, Words, joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAMILY = "c4"
CITATIONS = (b"[edit]", b"[citation needed]")
END_PUNCTUATION = b".?!\"'"
PHRASES = (
    b"lorem ipsum", b"javascript", b"terms of use", b"privacy policy", b"cookie policy",
    b"uses cookies", b"use of cookies", b"use cookies",
)  # fmt: skip
"""Phrases that matter, in lower case."""
LOREM, JAVASCRIPT, POLICY = 0b1, 0b10, 0b11111100
"""Which of them mean what."""


def _starts() -> NDArray[np.int64]:
    """The phrases that a byte may begin or be second in, letters in either case; see `contents`."""
    starts = np.zeros((2, 256), np.int64)
    for k, phrase in enumerate(PHRASES):
        for place in (0, 1):
            byte = phrase[place]
            starts[place, [byte, ord(chr(byte).upper())]] |= 1 << k
    starts[0, kernels.BRACE] |= kernels.CURLY
    return starts


@lru_cache(maxsize=1)
def _digits() -> NDArray[np.int64]:
    """The code points of the digit zero in all scripts; 1 to 9 follow each."""
    characters = range(sys.maxunicode + 1)
    return np.array([c for c in characters if unicodedata.digit(chr(c), -1) == 0
                     and unicodedata.category(chr(c)) == "Nd"])  # fmt: skip


def edit(texts: Texts, words: Words, config: C4Config, tokenizer: Tokenizer) -> Edited:
    """Apply the line rules; measure what the page rules need.

    `words`: of the incoming texts. Signals: `c4_sentences, c4_lorem_ipsum, c4_curly_bracket` (lines
    with it), `c4_curly_first` (1 where a "{" comes before any "lorem ipsum"), `c4_removed_lines`.
    """
    n, size = len(texts), len(texts.buffer)
    # a line has at most one segment for itself, one for its line end, and one more a bracket
    most = 2 * (n + _line_ends(texts.buffer)) + int(np.count_nonzero(texts.buffer == kernels.OPEN))
    out, offsets = np.empty(size, np.uint8), np.zeros(n + 1, np.int64)
    segments, segment_offsets = np.empty((most, 3), np.int64), np.zeros(n + 1, np.int64)
    counts = np.empty((n, 5), np.int64)
    kernels.edit_lines(
        texts.buffer, texts.offsets, words.spacing, *joined(PHRASES), _starts(), LOREM,
        JAVASCRIPT * config.javascript, POLICY * config.policy, *joined(CITATIONS), _digits(),
        np.frombuffer(END_PUNCTUATION, np.uint8), config.remove_citations,
        config.terminal_punctuation, config.min_line_words, config.max_word_length, out, offsets,
        segments, segment_offsets, counts,
    )  # fmt: skip
    edited = Texts(out[: offsets[-1]], offsets)
    # sentences are counted before the page is stripped, as the peer does
    new_words = tokenizer.words(edited, words.spacing)
    signals = pl.DataFrame(
        {
            "c4_sentences": counts[:, kernels.KEPT] + new_words.breaks,
            "c4_lorem_ipsum": counts[:, kernels.LOREM_LINES],
            "c4_curly_bracket": counts[:, kernels.CURLY_LINES],
            "c4_curly_first": counts[:, kernels.CURLY_FIRST],
            "c4_removed_lines": counts[:, kernels.REMOVED],
        }
    ).cast(pl.Int32)
    return Edited(strip(Cut(edited, segments, segment_offsets)), new_words, signals)


def _line_ends(buffer: NDArray[np.uint8]) -> int:
    """An upper bound of the line boundaries of `str.splitlines`."""
    ascii_ends = (buffer >= 10) & (buffer <= 30)
    return int(np.count_nonzero(ascii_ends | (buffer == 0xC2) | (buffer == 0xE2)))


def rules(config: C4Config) -> list[Rule]:
    """Pages with a curly bracket or "lorem ipsum", whichever comes first, or too few sentences."""
    if not config.enabled:
        return []
    curly = f"{FAMILY}.curly_bracket"
    found: list[Rule] = []
    if config.curly_bracket:
        fails = pl.when(pl.col("c4_curly_first") > 0).then(pl.lit(value=True))
        found.append(Rule(curly, "c4_curly_bracket", fails, pl.lit(0.0)))
    if config.lorem_ipsum:
        found += above(f"{FAMILY}.lorem_ipsum", "c4_lorem_ipsum", 0)
    if config.curly_bracket:
        found += above(curly, "c4_curly_bracket", 0)
    return [*found, *below(f"{FAMILY}.too_few_sentences", "c4_sentences", config.min_sentences)]
