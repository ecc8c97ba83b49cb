"""DCLM's rules: pages by their words, lines by their characters, pages that lose too many words.

Li et al., arXiv:2406.11794, section 4.1 (the heuristics of RefinedWeb), with the definitions of
github.com/mlfoundations/dclm, `baselines/baselines_configs/dclm_baseline_refinedweb.yaml`. Its
repetition filters are Gopher's with the same thresholds: `gopher_repetition` stands for them.

Not copied: URLs, counters ("3 likes") and three phrases of shops are not removed from texts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipeline.config.filter import DclmConfig
from pipeline.filters import dclm_kernels as kernels
from pipeline.filters.edited import Cut, Edited, strip
from pipeline.filters.line_kernels import NEWLINE
from pipeline.filters.rules import Rule, above, below
from pipeline.words import Texts, Tokenizer, Words, joined

if TYPE_CHECKING:
    from numpy.typing import NDArray

FAMILY = "dclm"
ENGLISH = "en"
ANY = 2.0
"""Above every share."""


@lru_cache(maxsize=1)
def _kinds() -> NDArray[np.uint8]:
    kinds: NDArray[np.uint8] = kernels.kinds_of_characters()
    return kinds


def signals(texts: Texts, config: DclmConfig) -> pl.DataFrame:
    """Columns `dclm_words, dclm_word_length, dclm_symbols, dclm_bullet_lines, dclm_ellipsis_lines,
    dclm_without_letter, dclm_stop_words`; null where there is nothing to divide by."""
    shape = np.empty((len(texts), 9), np.int64)
    stop = joined([word.encode() for word in config.stop_words])
    kernels.page_shape(texts.buffer, texts.offsets, _kinds(), *stop, shape)
    count = pl.DataFrame(shape.astype(np.float64), schema=[str(k) for k in range(9)])

    def column(k: int) -> pl.Expr:
        return pl.col(str(k))

    words, lines = column(kernels.WORDS), column(kernels.LINES)
    return count.select(
        column(kernels.PLAIN_WORDS).cast(pl.Int32).alias("dclm_words"),
        (column(kernels.CHARACTERS) / words).alias("dclm_word_length"),
        (column(kernels.SYMBOLS) / words).alias("dclm_symbols"),
        (column(kernels.BULLETS) / lines).alias("dclm_bullet_lines"),
        (column(kernels.ELLIPSES) / lines).alias("dclm_ellipsis_lines"),
        (column(kernels.WITHOUT_LETTER) / words).alias("dclm_without_letter"),
        column(kernels.STOP_WORDS).cast(pl.Int32).alias("dclm_stop_words"),
    ).fill_nan(None)


def edit(texts: Texts, words: Words, config: DclmConfig, tokenizer: Tokenizer) -> Edited:
    """Remove the lines; signals `dclm_removed_lines` and `dclm_removed_words`, the share of words
    that went with them (null where there was none)."""
    n, size = len(texts), len(texts.buffer)
    most = 2 * (n + int(np.count_nonzero(texts.buffer == NEWLINE)))
    out, offsets = np.empty(size, np.uint8), np.zeros(n + 1, np.int64)
    segments, segment_offsets = np.empty((most, 3), np.int64), np.zeros(n + 1, np.int64)
    counts, before = np.empty((n, 2), np.int64), np.empty(n, np.int64)
    capitals = ANY if config.max_uppercase is None else config.max_uppercase
    figures = ANY if config.max_numeric is None else config.max_numeric
    kernels.edit_lines(
        texts.buffer, texts.offsets, _kinds(), capitals, figures, config.min_line_words, out,
        offsets, segments, segment_offsets, counts,
    )  # fmt: skip
    kernels.count_plain_words(texts.buffer, texts.offsets, _kinds(), before)
    removed = pl.DataFrame(
        {
            "dclm_removed_lines": counts[:, kernels.REMOVED_LINES].astype(np.int32),
            "before": before.astype(np.float64),
            "left": counts[:, kernels.WORDS_LEFT].astype(np.float64),
        }
    ).select(
        "dclm_removed_lines",
        ((pl.col("before") - pl.col("left")) / pl.col("before"))
        .fill_nan(None)
        .alias("dclm_removed_words"),
    )
    cut = strip(Cut(Texts(out[: offsets[-1]], offsets), segments, segment_offsets))
    return Edited(cut, tokenizer.words(cut.texts, words.spacing), removed)


def rules(config: DclmConfig) -> list[Rule]:
    """Pages in the order of the published configuration, then what the line rules took."""
    if not config.enabled:
        return []
    english, symbols = pl.col("language") == ENGLISH, config.max_symbol_ratio
    bullets, ellipses = config.max_bullet_lines, config.max_ellipsis_lines
    return [
        *below(f"{FAMILY}.short", "dclm_words", config.min_words),
        *above(f"{FAMILY}.long", "dclm_words", config.max_words),
        *below(f"{FAMILY}.word_length_below", "dclm_word_length", config.min_word_length),
        *above(f"{FAMILY}.word_length_above", "dclm_word_length", config.max_word_length),
        *above(f"{FAMILY}.symbols", "dclm_symbols", symbols),
        *above(f"{FAMILY}.bullets", "dclm_bullet_lines", bullets),
        *above(f"{FAMILY}.ellipses", "dclm_ellipsis_lines", ellipses),
        *above(f"{FAMILY}.non_alphabetic", "dclm_without_letter", config.max_non_alphabetic_words),
        *below(f"{FAMILY}.stop_words", "dclm_stop_words", config.min_stop_words, where=english),
        *above(f"{FAMILY}.removed_words", "dclm_removed_words", config.max_removed_words),
    ]
