"""Deduplication of a snapshot: signatures part by part, then one decision over all parts.

`sign_part` is the parallel half, a function over one part. `decide` is the other: it takes the
signed documents of the new snapshot and those that earlier snapshots kept, and says what stays,
reading texts of candidates only. Earlier snapshots are never changed, and since removed documents
decide nothing, adding snapshots one by one gives what one run over all of them in order gives.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pipeline.config.dedup import DedupConfig
from pipeline.errors import ContractError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pipeline.dedup.greedy import Outcome
    from pipeline.dedup.measure import TextOf

CODE_VERSION = "2"
LIBRARIES = ("datasketch", "numba", "numpy", "polars", "xxhash")

HELD_OUT = "held_out"
GIB = 1024**3
BATCH_BYTES = 32 * 1024**2
"""Text signed at a time; its hashes take about eight times as much."""
CARRIED = {
    "doc_id": pl.String,
    "url": pl.String,
    "snapshot": pl.String,
    "sequence": pl.Int64,
    "language": pl.String,
    "quality_score": pl.Float32,
    "split": pl.String,
}
"""Columns that `sign_part` carries along, null where the documents lack them (sequence: 0)."""


@dataclass(frozen=True)
class DedupDecision:
    """What deduplication decided about one snapshot."""

    decisions: pl.DataFrame
    """One row a document, in the order of the input: `doc_id, url, kept, reason, value, threshold,
    detail`; `value` is the similarity to the page in `detail.kept`."""
    pairs: pl.DataFrame
    """Near-duplicates `doc_id`, every kept page `other` that each was found like, `similarity`."""
    clusters: pl.DataFrame
    """Kept `doc_id` and the number `n` of pages of this snapshot that it stands for beside itself.
    The size of a cluster is 1 + the sum over snapshots."""
    stats: dict[str, int]
    """measured, verified, cap_hits, rounds, texts_read."""


def sign_part(frame: pl.DataFrame, config: DedupConfig) -> pl.DataFrame:
    """Keys and signatures of the documents of one part, in their order.

    Columns: `CARRIED`, `text_hash` (16 bytes), `n_shingles` (repeats counted; 0 for a text under
    `ngram` words, which is no near-duplicate of anything), `signature` (fixed-size list of uint32,
    bands x rows long).
    """
    sizes = frame["text"].str.len_bytes().fill_null(0).cum_sum()
    batches = frame.with_columns((sizes // BATCH_BYTES).alias("batch")).partition_by(
        "batch", maintain_order=True, include_key=False
    )
    return pl.concat([_sign(batch, config) for batch in batches or [frame]])


def _sign(frame: pl.DataFrame, config: DedupConfig) -> pl.DataFrame:
    import numpy as np

    from pipeline.dedup.exact import text_keys
    from pipeline.dedup.shingles import shingle_hashes, word_hashes
    from pipeline.dedup.signatures import signatures

    shingles, offsets = shingle_hashes(*word_hashes(frame["text"]), config.ngram)
    values = signatures(shingles, offsets, config.permutations, config.seed)
    width = config.permutations
    return carried(frame).with_columns(
        text_keys(frame["text"]),
        pl.Series("n_shingles", np.diff(offsets), dtype=pl.Int64),
        pl.Series("signature", values, dtype=pl.Array(pl.UInt32, width)),
    )


def carried(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns `CARRIED` of a frame."""
    have = [
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in CARRIED.items()
    ]
    return frame.select(have).with_columns(pl.col("sequence").fill_null(0))


def decide(
    signed: pl.DataFrame,
    earlier: pl.DataFrame | None,
    text_of: TextOf,
    config: DedupConfig,
) -> DedupDecision:
    """Who of `signed` is kept, given what was kept `earlier`.

    Both have the columns of `sign_part`; `earlier` holds the documents kept by earlier snapshots.
    `text_of` is asked in batches for the texts of candidates, new and earlier ones. Input order is
    irrelevant. Raises ContractError for a doc_id that occurs twice, for signatures of another
    length than the configuration's, for a text that is not found.
    """
    from pipeline.dedup.bands import buckets
    from pipeline.dedup.greedy import decide_greedily
    from pipeline.dedup.measure import Measure

    if earlier is None or config.scope == "snapshot":
        earlier = signed.clear()
    ranked, signatures, row_of = in_order(earlier, signed, config)
    first_new = earlier.height
    scope = scope_keys(ranked, config)
    measure = Measure(
        ranked["doc_id"],
        ranked["n_shingles"].to_numpy(),
        text_of,
        ngram=config.ngram,
        memory_bytes=config.memory_gb * GIB,
    )
    outcome = decide_greedily(
        buckets(*keyed(ranked, signatures, row_of, scope, config), ranked.height, first_new),
        key_groups(ranked, scope, first_new, config),
        first_new,
        measure,
        threshold=config.threshold,
        cap=config.bucket_cap,
    )
    return report(ranked, first_new, outcome, signed["doc_id"], measure.texts_read, config)


def in_order(
    earlier: pl.DataFrame, signed: pl.DataFrame, config: DedupConfig
) -> tuple[pl.DataFrame, tuple[NDArray[np.uint32], NDArray[np.uint32]], NDArray[np.int64]]:
    """Documents by rank, the two signature matrices as they came, and the row in them by rank."""
    import numpy as np

    frames, rows, begin = [], [], 0
    for frame in (earlier, signed):
        plain = frame.drop("signature").with_row_index("row", offset=begin)
        quality = pl.col("quality_score").fill_nan(None)
        frames.append(
            plain.sort(
                pl.col("sequence"), quality, pl.col("doc_id"),
                descending=[False, True, False], nulls_last=True,
            )
        )  # fmt: skip
        rows.append(frames[-1]["row"].to_numpy().astype(np.int64))
        begin += frame.height
    ranked = pl.concat(frames, how="diagonal_relaxed")
    twice = ranked.filter(pl.col("doc_id").is_duplicated())["doc_id"]
    if len(twice):
        message = f"document {twice[0]} occurs {(twice == twice[0]).sum()} times"
        raise ContractError(message, hint="deduplicate each snapshot against earlier ones only")
    matrices = (matrix(earlier, config), matrix(signed, config))
    return ranked, matrices, np.concatenate(rows)


def matrix(frame: pl.DataFrame, config: DedupConfig) -> NDArray[np.uint32]:
    """The signatures of a frame, `[documents, permutations]`, without a copy."""
    dtype = frame.schema["signature"]
    width = dtype.size if isinstance(dtype, pl.Array) else 0
    if width != config.permutations:
        message = (
            f"signatures have {width} values, dedup.bands x dedup.rows are {config.permutations}"
        )
        raise ContractError(
            message, hint="deduplicate the earlier snapshots again, or set both back"
        )
    return frame["signature"].rechunk().to_numpy().reshape(frame.height, width)


def scope_keys(ranked: pl.DataFrame, config: DedupConfig) -> NDArray[np.uint64]:
    """By rank, a number that is equal where documents may be duplicates of each other."""
    import numpy as np

    if config.scope == "all":
        return np.zeros(ranked.height, np.uint64)
    column = ranked["language" if config.scope == "language" else "sequence"]
    return column.rank("dense").fill_null(0).to_numpy().astype(np.uint64)


def keyed(
    ranked: pl.DataFrame,
    signatures: tuple[NDArray[np.uint32], NDArray[np.uint32]],
    row_of: NDArray[np.int64],
    scope: NDArray[np.uint64],
    config: DedupConfig,
) -> tuple[Iterator[NDArray[np.uint64]], NDArray[np.int32]]:
    """Band by band the keys of documents that have shingles, and their ranks."""
    import numpy as np

    from pipeline.dedup.bands import band_keys

    has_shingles = ranked["n_shingles"].to_numpy() > 0
    scope_of_row = np.empty_like(scope)
    scope_of_row[row_of] = scope
    scopes = np.split(scope_of_row, [len(signatures[0])])

    def keys() -> Iterator[NDArray[np.uint64]]:
        for band in range(config.bands):
            parts = [
                band_keys(values, band, config.rows, scope)
                for values, scope in zip(signatures, scopes, strict=True)
            ]
            yield np.concatenate(parts)[row_of][has_shingles]

    return keys(), np.flatnonzero(has_shingles).astype(np.int32)


def key_groups(
    ranked: pl.DataFrame, scope: NDArray[np.uint64], first_new: int, config: DedupConfig
) -> NDArray[np.int32]:
    """Numbers of groups of equal text keys and, if it is on, URLs: `[kinds, documents]`, or -1."""
    import numpy as np

    names = ["text_hash", *(["url"] if config.exact_url else [])]
    out = np.full((len(names), ranked.height), -1, np.int32)
    begin = 0
    for k, name in enumerate(names):
        keys = pl.DataFrame({"key": ranked[name], "scope": scope}).with_row_index("rank")
        shared = (
            keys.drop_nulls("key")
            .filter(pl.struct("key", "scope").is_duplicated())
            .with_columns(last=pl.col("rank").max().over("key", "scope"))
            .filter(pl.col("last") >= first_new)
        )
        # a group is named by its last member, which is its own alone
        number = shared["last"].rank("dense").to_numpy().astype(np.int32) - 1 + begin
        out[k, shared["rank"].to_numpy()] = number
        begin = int(number.max(initial=begin - 1)) + 1
    return out


def report(
    ranked: pl.DataFrame,
    first_new: int,
    outcome: Outcome,
    order: pl.Series,
    texts_read: int,
    config: DedupConfig,
) -> DedupDecision:
    """The outcome as tables; documents of `order` in that order."""
    from pipeline.dedup.greedy import KEPT

    pairs = (
        pl.DataFrame(outcome.candidates, schema=["rank", "other", "band"], orient="row")
        .with_columns(similarity=outcome.similarity)
        .filter(pl.col("similarity") >= config.threshold)
        .sort("rank", "other")
    )
    names = ranked.select(
        pl.int_range(pl.len(), dtype=pl.Int32).alias("rank"), "doc_id", "url", "split"
    )
    state = names.with_columns(state=outcome.state, other=outcome.leader).slice(first_new)
    removed = reasons(state, pairs, names, config)
    decisions = (
        state.select("rank", "doc_id", "url", kept=pl.col("state") == KEPT)
        .join(removed, on="rank", how="left")
        .select("doc_id", "url", "kept", "reason", "value", "threshold", "detail")
    )
    decisions = order.to_frame("doc_id").join(
        decisions, on="doc_id", how="left", maintain_order="left"
    )
    id_of = names["doc_id"]
    stats = {
        "measured": outcome.measured,
        "verified": pairs.height,
        "cap_hits": outcome.cap_hits,
        "rounds": outcome.rounds,
        "texts_read": texts_read,
    }
    return DedupDecision(
        decisions,
        pl.DataFrame(
            {
                "doc_id": id_of.gather(pairs["rank"]),
                "other": id_of.gather(pairs["other"]),
                "similarity": pairs["similarity"].cast(pl.Float32),
            }
        ),
        pl.DataFrame({"doc_id": id_of.gather(removed["other"])})
        .group_by("doc_id")
        .agg(n=pl.len().cast(pl.Int64))
        .sort("doc_id"),
        stats,
    )


def reasons(
    state: pl.DataFrame, pairs: pl.DataFrame, names: pl.DataFrame, config: DedupConfig
) -> pl.DataFrame:
    """Of each removed document: `rank, other, reason, value, threshold, detail`.

    A near-duplicate names the kept page that it is most like, the earliest of equals; one of the
    training split names a held-out page where it is like one, for that is why it has to go.
    """
    from pipeline.dedup.greedy import SAME_TEXT, SAME_URL

    split = names.select(pl.col("rank"), held_out=pl.col("split").eq_missing(HELD_OUT))
    near = (
        pairs.join(split, on="rank")
        .join(split.rename({"rank": "other", "held_out": "like_held_out"}), on="other")
        .with_columns(leak=pl.col("like_held_out") & ~pl.col("held_out"))
        .sort("rank", "leak", "similarity", "other", descending=[False, True, True, False])
        .unique("rank", keep="first", maintain_order=True)
        .select(
            "rank", "other", "band",
            reason=pl.when("leak").then(pl.lit("near_held_out.minhash")).otherwise(pl.lit("near.minhash")),
            value="similarity",
            threshold=pl.lit(config.threshold),
        )
    )  # fmt: skip
    labels = {SAME_TEXT: "exact.text", SAME_URL: "exact.url"}
    exact = state.filter(pl.col("state").is_in(list(labels))).select(
        "rank", "other",
        band=pl.lit(None, pl.Int32),
        reason=pl.col("state").replace_strict(labels, return_dtype=pl.String),
        value=pl.when(pl.col("state") == SAME_TEXT).then(1.0),
        threshold=pl.when(pl.col("state") == SAME_TEXT).then(1.0),
    )  # fmt: skip
    both = pl.concat([near.cast(exact.schema), exact]).join(
        names.select(other="rank", kept_id="doc_id", kept_url="url"), on="other"
    )
    details = [
        json.dumps({"kept": kept, "kept_url": url, "band": band}, ensure_ascii=False)
        for kept, url, band in both.select("kept_id", "kept_url", "band").iter_rows()
    ]
    return both.select(
        "rank", "other", "reason", "value", "threshold", detail=pl.Series(details, dtype=pl.String)
    )
