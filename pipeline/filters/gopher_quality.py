"""Gopher's quality rules: numbers of words, their length, symbols, bullets, letters, stop words.

Rae et al., arXiv:2112.11446, appendix A, with the names and choices of datatrove's
GopherQualityFilter: a word is a token that is not only punctuation; shares are of all tokens.

Two rules depend on the language. The lowest mean word length is another one where the script puts
no blanks between words. Stop words count only for languages that have a list; by default English.
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

FAMILY = "gopher_quality"
OTHERS = "*"
"""Stands for every language without a list of stop words of its own."""


def signals(
    texts: Texts, words: Words, language: pl.Series, stop_words: dict[str, list[str]]
) -> pl.DataFrame:
    """Columns `n_words, mean_word_length, hash_ratio, ellipsis_ratio, bullet_lines,
    ellipsis_lines, alpha_words, stop_words, unspaced`; null where there is nothing to divide by,
    or no list of stop words for the `language` of the document."""
    shape = np.empty((len(texts), 4))
    line_kernels.symbols(texts.buffer, texts.offsets, shape)
    counts = _counts(words, [])
    tokens = pl.col("tokens")
    frame = pl.DataFrame(
        {
            "n_words": counts[:, ngram_kernels.WORDS],
            "characters": counts[:, ngram_kernels.WORD_CHARACTERS],
            "tokens": counts[:, ngram_kernels.TOKENS],
            "letters": counts[:, ngram_kernels.WITH_LETTER],
            "hashes": shape[:, line_kernels.HASHES],
            "ellipses": shape[:, line_kernels.ELLIPSES],
            "bullet_lines": shape[:, line_kernels.BULLET_LINES],
            "ellipsis_lines": shape[:, line_kernels.ELLIPSIS_LINES],
            "unspaced": words.spacing,
        }
    )
    frame = frame.select(
        pl.col("n_words").cast(pl.Int32),
        (pl.col("characters") / pl.col("n_words")).alias("mean_word_length"),
        (pl.col("hashes") / tokens).alias("hash_ratio"),
        (pl.col("ellipses") / tokens).alias("ellipsis_ratio"),
        pl.col("bullet_lines", "ellipsis_lines"),
        (pl.col("letters") / tokens).alias("alpha_words"),
        _stop_words(words, language, stop_words),
        (pl.col("unspaced") > 0).cast(pl.Int32),
    )
    return frame.fill_nan(None)


def _counts(words: Words, stop_words: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    counts = np.empty((len(words.offsets) - 1, 5), np.int64)
    known = words.vocabulary
    ngram_kernels.count_words(
        words.tokens, words.offsets, known.lengths, known.flags, words.numbers(stop_words), counts
    )
    return counts


def _stop_words(words: Words, language: pl.Series, lists: dict[str, list[str]]) -> pl.Series:
    found = pl.Series("stop_words", [None] * len(language), pl.Int32)
    codes = sorted(set(lists) & set(language.unique()))
    for code in [OTHERS, *codes] if OTHERS in lists else codes:
        distinct = list(dict.fromkeys(lists[code]))
        count = pl.Series(_counts(words, distinct)[:, ngram_kernels.STOP_WORDS]).cast(pl.Int32)
        here = (language == code).fill_null(value=False)
        found = count if code == OTHERS else count.zip_with(here, found)
    return found.alias("stop_words")


def rules(config: GopherConfig, languages: Mapping[str, Section] | None = None) -> list[Rule]:
    """In the order of the peer; `languages`: thresholds that some languages have otherwise."""
    if not config.quality:
        return []
    limits = Limits(config, languages or {})
    unspaced, spaced = pl.col("unspaced") == 1, pl.col("unspaced") == 0
    short, symbols = f"{FAMILY}.gopher_below_avg_threshold", limits("max_symbol_ratio")
    return [
        *below(f"{FAMILY}.gopher_short_doc", "n_words", limits("min_words")),
        *above(f"{FAMILY}.gopher_long_doc", "n_words", limits("max_words")),
        *below(short, "mean_word_length", limits("min_word_length"), where=spaced),
        *below(short, "mean_word_length", limits("min_word_length_unspaced"), where=unspaced),
        *above(
            f"{FAMILY}.gopher_above_avg_threshold", "mean_word_length", limits("max_word_length")
        ),
        *above(f"{FAMILY}.gopher_too_many_hashes", "hash_ratio", symbols),
        *above(f"{FAMILY}.gopher_too_many_ellipsis", "ellipsis_ratio", symbols),
        *above(f"{FAMILY}.gopher_too_many_bullets", "bullet_lines", limits("max_bullet_lines")),
        *above(
            f"{FAMILY}.gopher_too_many_end_ellipsis",
            "ellipsis_lines",
            limits("max_ellipsis_lines"),
        ),
        *below(f"{FAMILY}.gopher_below_alpha_threshold", "alpha_words", limits("min_alpha_words")),
        *below(f"{FAMILY}.gopher_enough_stop_words", "stop_words", limits("min_stop_words")),
    ]
