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
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipeline.config.filter import C4Config
from pipeline.edits import compose
from pipeline.filters import c4_kernels as kernels
from pipeline.filters.rules import Rule, above, below
from pipeline.words import Texts, Tokenizer, Words

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


SPAN = pl.Struct({"out": pl.UInt32, "in": pl.UInt32, "length": pl.UInt32})


@dataclass(frozen=True)
class Edited:
    """A batch after the line rules."""

    texts: Texts
    words: Words  # of `texts`
    signals: pl.DataFrame
    segments: NDArray[np.int64]  # [n, 3] out, in, length within a document
    segment_offsets: NDArray[np.int64]  # [n_documents + 1]


@lru_cache(maxsize=1)
def _digits() -> NDArray[np.int64]:
    """The code points of the digit zero in all scripts; 1 to 9 follow each."""
    characters = range(sys.maxunicode + 1)
    return np.array([c for c in characters if unicodedata.digit(chr(c), -1) == 0
                     and unicodedata.category(chr(c)) == "Nd"])  # fmt: skip


def _joined(texts: tuple[bytes, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    bounds = np.cumsum([0, *map(len, texts)])
    return np.frombuffer(b"".join(texts), np.uint8), bounds


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
        texts.buffer, texts.offsets, words.spacing, *_joined(PHRASES), _starts(), LOREM,
        JAVASCRIPT * config.javascript, POLICY * config.policy, *_joined(CITATIONS), _digits(),
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
    segments = segments[: segment_offsets[-1]]
    edited, segments, segment_offsets = _strip(edited, segments, segment_offsets)
    return Edited(edited, new_words, signals, segments, segment_offsets)


def _line_ends(buffer: NDArray[np.uint8]) -> int:
    """An upper bound of the line boundaries of `str.splitlines`."""
    ascii_ends = (buffer >= 10) & (buffer <= 30)
    return int(np.count_nonzero(ascii_ends | (buffer == 0xC2) | (buffer == 0xE2)))


def _strip(texts: Texts, segments: Any, segment_offsets: Any) -> tuple[Texts, Any, Any]:
    """Remove the blanks that a citation mark left at the ends of a page."""
    bounds = np.empty((len(texts), 2), np.int64)
    if not kernels.outer_blanks(texts.buffer, texts.offsets, bounds):
        return texts, segments, segment_offsets
    out, offsets = np.empty_like(texts.buffer), np.zeros_like(texts.offsets)
    clipped, clipped_offsets = np.empty_like(segments), np.zeros_like(segment_offsets)
    kernels.clip(
        texts.buffer, texts.offsets, bounds, segments, segment_offsets, out, offsets, clipped,
        clipped_offsets,
    )  # fmt: skip
    return Texts(out[: offsets[-1]], offsets), clipped[: clipped_offsets[-1]], clipped_offsets


def edits_of(edited: Edited, before: Texts, earlier: pl.Series | None) -> pl.Series:
    """The span maps of a batch as a column `edits`; null where a text is as it was.

    `earlier`: the maps that came in, which the new ones are composed with.
    """
    starts, ends = edited.segment_offsets[:-1], edited.segment_offsets[1:]
    sizes, old_sizes = np.diff(edited.texts.offsets), np.diff(before.offsets)
    first_lengths = np.append(edited.segments[:, 2], 0)[starts]
    same = (sizes == old_sizes) & (first_lengths == sizes)
    same |= (sizes == 0) & (old_sizes == 0)
    flat = pl.DataFrame(edited.segments, schema=["out", "in", "length"], orient="row")
    owner = np.repeat(np.arange(len(before)), ends - starts)
    spans = flat.cast(pl.UInt32).select(pl.struct(pl.all()).alias("edits"))
    lists = spans.with_columns(pl.Series("row", owner)).group_by("row", maintain_order=True).all()
    rows = pl.DataFrame({"row": np.arange(len(before)), "same": same})
    joined = rows.join(lists, on="row", how="left", maintain_order="left")
    empty = pl.lit([], dtype=pl.List(SPAN))
    column = joined.select(
        pl.when(~pl.col("same")).then(pl.coalesce("edits", empty)).alias("edits")
    )["edits"]
    if earlier is None or earlier.null_count() == len(earlier):
        return column
    pairs = zip(column.to_list(), earlier.to_list(), strict=True)
    return pl.Series("edits", [compose(late, early) for late, early in pairs], pl.List(SPAN))


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
