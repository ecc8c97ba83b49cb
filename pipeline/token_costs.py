"""What a tokenizer costs: bytes per token by language and source, share of entries in use."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from pipeline.config.tokenizer import TokenizerConfig
from pipeline.encoding import encode_texts
from pipeline.tokenizer import SPECIALS, documents_columns, load_tokenizer, plan_sample

MEASURED_BYTES = 32_000_000  # bytes per token of a language settle long before


def measure(tokenizer_json: str, documents: pl.DataFrame) -> dict[str, Any]:
    """Bytes per token of `documents` (`doc_id, text, source, language`), and vocabulary in use.

    Keys `documents, bytes, tokens, bytes_per_token, by_language, by_source, vocabulary_used`. At
    most 32 MB are looked at, chosen as the sample is, every language by size.
    """
    table = documents_columns(documents).with_columns(n_bytes=pl.col("text").str.len_bytes())
    config = TokenizerConfig(sample_bytes=MEASURED_BYTES, language_alpha=1.0)
    table = table.filter(plan_sample(table, config))
    ids, lengths = encode_texts(tokenizer_json, table["text"])
    table = table.with_columns(pl.Series("n_tokens", lengths))
    size = load_tokenizer(tokenizer_json).get_vocab_size()
    used = int(np.count_nonzero(np.bincount(ids, minlength=size)))
    return {
        "documents": table.height,
        "bytes": int(table["n_bytes"].sum()),
        "tokens": len(ids),
        "bytes_per_token": round(int(table["n_bytes"].sum()) / max(len(ids), 1), 4),
        "by_language": _bytes_per_token(table, "language"),
        "by_source": _bytes_per_token(table, "source"),
        "vocabulary_used": round(used / (size - len(SPECIALS)), 4),
    }


def _bytes_per_token(table: pl.DataFrame, key: str) -> dict[str, dict[str, float]]:
    sums = table.group_by(key).agg(pl.len(), pl.col("n_bytes", "n_tokens").sum()).sort(key)
    return {
        name: {
            "documents": n,
            "bytes": size,
            "tokens": tokens,
            "bytes_per_token": round(size / max(tokens, 1), 4),
        }
        for name, n, size, tokens in sums.iter_rows()
    }
