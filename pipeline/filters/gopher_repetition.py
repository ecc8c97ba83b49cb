"""Gopher's repetition rules: repeated lines, paragraphs and n-grams.

Rae et al., arXiv:2112.11446, table A1, with the choices of datatrove's GopherRepetitionFilter:
denominators are the characters of the whole text; the top n-gram is the most common one, the first
seen of equals, and counts with the blanks between its words; duplicated n-grams count without.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from pipeline.config.base import Section
from pipeline.config.filter import GopherConfig
from pipeline.filters import line_kernels, ngram_kernels
from pipeline.filters.rules import Limits, Rule, above, below
from pipeline.words import Texts, Words

FAMILY = "gopher_repetition"
LINE_SIGNALS = ("dup_para_frac", "dup_para_char_frac", "dup_line_frac", "dup_line_char_frac")
TOP_SIZES = (2, 3, 4)
DUPLICATE_SIZES = (5, 6, 7, 8, 9, 10)
NGRAM_SIGNALS = (
    *(f"top_{n}_gram" for n in TOP_SIZES),
    *(f"duplicated_{n}_n_grams" for n in DUPLICATE_SIZES),
)


def signals(texts: Texts, words: Words) -> pl.DataFrame:
    """One column a rule, null where a text is too short for it; and the text's `n_characters`."""
    lines = np.empty((len(texts), len(LINE_SIGNALS) + 1))
    line_kernels.repeated_lines(texts.buffer, texts.offsets, lines)
    characters = lines[:, line_kernels.CHARACTERS].astype(np.int64)
    grams = np.empty((len(texts), len(NGRAM_SIGNALS)))
    known = words.vocabulary
    ngram_kernels.repeated_ngrams(
        words.tokens, words.offsets, known.lengths, known.sums, known.powers, known.inverses,
        characters, np.array(TOP_SIZES), np.array(DUPLICATE_SIZES), grams,
    )  # fmt: skip
    both = np.hstack([lines[:, : line_kernels.CHARACTERS], grams])
    columns = dict(zip((*LINE_SIGNALS, *NGRAM_SIGNALS), both.T, strict=True))
    frame = pl.DataFrame(columns).fill_nan(None)
    return frame.with_columns(pl.Series("n_characters", characters, pl.Int32))


def rules(config: GopherConfig, languages: Mapping[str, Section] | None = None) -> list[Rule]:
    """In the order of the peer: empty, paragraphs, lines, top n-grams, duplicated n-grams.

    `languages`: thresholds that some languages have otherwise.
    """
    if not config.repetition:
        return []
    limits = Limits(config, languages or {})
    found = below(f"{FAMILY}.empty", "n_characters", 1)
    for name in (*LINE_SIGNALS, *NGRAM_SIGNALS):
        found += above(f"{FAMILY}.{name}", name, limits(name))
    return found
