"""FineWeb's quality rules: punctuated lines, short lines, repeated lines, line ends per word.

Penedo et al., arXiv:2406.17557, section 3.6, as datatrove's FineWebQualityFilter has them. They
judge the text that the C4 rules left.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from pipeline.config.base import Section
from pipeline.config.filter import FineWebConfig
from pipeline.filters import line_kernels
from pipeline.filters.rules import Limits, Rule, above, below
from pipeline.words import TERMINAL_PUNCTUATION, Texts, Words

FAMILY = "fineweb"


def signals(texts: Texts, words: Words, config: FineWebConfig) -> pl.DataFrame:
    """Columns `has_lines` (0 or 1), `line_punct_ratio, short_line_ratio, char_dup_ratio,
    list_ratio`; null where every line is blank."""
    shape = np.empty((len(texts), 4))
    terminal = np.array(sorted(map(ord, TERMINAL_PUNCTUATION)))
    line_kernels.line_shape(texts.buffer, texts.offsets, terminal, config.short_line_length, shape)
    frame = pl.DataFrame(
        {
            "line_punct_ratio": shape[:, line_kernels.PUNCTUATED],
            "short_line_ratio": shape[:, line_kernels.SHORT],
            "char_dup_ratio": shape[:, line_kernels.DUPLICATED],
            "newlines": shape[:, line_kernels.NEWLINES],
            "tokens": words.counts(),
        }
    ).fill_nan(None)
    return frame.select(
        pl.col("line_punct_ratio").is_not_null().cast(pl.Int32).alias("has_lines"),
        pl.col("line_punct_ratio", "short_line_ratio", "char_dup_ratio"),
        pl.when(pl.col("tokens") > 0)
        .then(pl.col("newlines") / pl.col("tokens"))
        .alias("list_ratio"),
    )


def rules(config: FineWebConfig, languages: Mapping[str, Section] | None = None) -> list[Rule]:
    """In the order of the peer; `languages`: thresholds that some languages have otherwise."""
    if not config.enabled:
        return []
    limits = Limits(config, languages or {})
    return [
        *below(f"{FAMILY}.empty", "has_lines", 1),
        *below(f"{FAMILY}.line_punct_ratio", "line_punct_ratio", limits("line_punct_ratio")),
        *above(f"{FAMILY}.short_line_ratio", "short_line_ratio", limits("short_line_ratio")),
        *above(f"{FAMILY}.char_dup_ratio", "char_dup_ratio", limits("char_dup_ratio")),
        *above(f"{FAMILY}.list_ratio", "list_ratio", limits("list_ratio")),
    ]
