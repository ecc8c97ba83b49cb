"""The side of a document: trained on, or kept for evaluation."""

from __future__ import annotations

import polars as pl
import xxhash

_KEYS = ("url", "source", "source_id", "doc_id")


def held_out(frame: pl.DataFrame, share: float) -> pl.Series:
    """`split` of each document, `train` or `held_out`, a pure function of what it is split by.

    Web pages by host (without `www.`), records of sources by source and id, anything else by its
    document id: all pages of a host are on one side.
    """
    null = pl.lit(None, pl.String)
    column = {name: pl.col(name) if name in frame.columns else null for name in _KEYS}
    host = column["url"].str.extract(r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#:]+)", 1)
    host = host.str.to_lowercase().str.strip_chars_end(".").str.strip_prefix("www.")
    record = pl.format("{}\0{}", column["source"].fill_null(""), column["source_id"])
    keys = frame.select(pl.coalesce(record, host, column["doc_id"]).fill_null("").alias("key"))
    limit = int(share * 2**64)
    distinct = keys["key"].unique().to_list()
    out = [
        key for key in distinct if xxhash.xxh3_64_intdigest(b"held_out\0" + key.encode()) < limit
    ]
    chosen = pl.when(pl.col("key").is_in(out)).then(pl.lit("held_out")).otherwise(pl.lit("train"))
    return keys.select(chosen.alias("split"))["split"]
