"""Documents to token shards.

    tokenize_documents   documents of one part -> ids, lengths, a row a document, decisions
    write_shards         -> `<name>.bin .idx .docs.parquet .json`, and `<name>-held_out.*`
    shard_part           both, as the driver of stages wants a part

Each document ends in exactly one `<|endoftext|>`; text that spells it is text. Documents without a
token are left out as `tokens.empty`. What is held out stands in shards of its own, so that no
training run meets it by leaving out a filter. A shard has the documents in the order they came in.
The format is that of `training.shards`; `.docs.parquet` leads from a token to its document.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from numpy.typing import NDArray

from pipeline.config.tokenize import TokenizeConfig
from pipeline.encoding import encode_texts
from pipeline.errors import ContractError
from pipeline.part import OutputFile, PartResult, Scratch
from pipeline.schema import DECISIONS, TEXT, conform
from pipeline.tokenizer import END_OF_TEXT, WEB, documents_columns, load_tokenizer, tokenizer_hash
from training.shards import ShardError, shard_path, token_dtype, write_shard

CODE_VERSION = "1"
LIBRARIES = ("tokenizers", "polars", "pyarrow", "numpy")

TRAIN, HELD_OUT = SPLITS = ("train", "held_out")

SHARD_DOCUMENTS = pa.schema(
    [
        ("doc_id", TEXT),
        ("first_token", pa.int64()),  # inside the shard
        ("n_tokens", pa.int64()),  # the end token included
        ("n_bytes", pa.int64()),  # UTF-8 bytes of the text: bits per byte are counted on them
        ("source", TEXT),
        ("language", TEXT),
        ("licence", TEXT),
        ("quality_score", pa.float32()),
        ("split", TEXT),
    ]
)
"""`<name>.docs.parquet`: one row a document, in the order of the shard."""


@dataclass(frozen=True)
class TokenizedPart:
    """The tokens of one part. Every document's ids end in the end token; none is empty."""

    tokens: NDArray[Any]
    """[tokens] uint16 or int32, the documents one behind the other."""
    lengths: NDArray[np.int64]
    """[documents]"""
    documents: pl.DataFrame
    """Columns of `SHARD_DOCUMENTS`; `first_token` counts from the first token of the part."""
    decisions: pl.DataFrame
    """One row a document that came in."""
    vocab_size: int
    end_id: int
    tokenizer_hash: str


def tokenize_documents(
    frame: pl.DataFrame,
    tokenizer_json: str,
    config: TokenizeConfig,
    *,
    stage: str = "token_shards",
) -> TokenizedPart:
    """Ids of the documents in `frame` (`doc_id, text`, and what is there of `SHARD_DOCUMENTS`).

    `source` is `web` and `split` is `train` where null. Raises ContractError where a document does
    not decode to its text again, which `config.verify_documents` of a part are tried for, or where
    a split has another name.
    """
    tokenizer = load_tokenizer(tokenizer_json)
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    end, size = vocabulary[END_OF_TEXT], 1 + max(vocabulary.values())
    table = _columns(frame)
    ids, lengths = encode_texts(tokenizer_json, table["text"])
    _verify(tokenizer, table["text"], ids, lengths, config.verify_documents)
    kept = lengths > 0
    tokens, with_end = _append_end(ids, lengths[kept], end, token_dtype(size))
    documents = table.filter(pl.Series(kept)).with_columns(
        pl.Series("first_token", np.cumsum(with_end) - with_end),
        pl.Series("n_tokens", with_end),
    )
    return TokenizedPart(
        tokens,
        with_end,
        documents.select(SHARD_DOCUMENTS.names),
        _decisions(frame, kept, stage),
        size,
        end,
        tokenizer_hash(tokenizer_json),
    )


def _columns(frame: pl.DataFrame) -> pl.DataFrame:
    absent = [
        pl.lit(None, pl.Float32 if name == "quality_score" else pl.String).alias(name)
        for name in ("licence", "quality_score", "split")
        if name not in frame.columns
    ]
    table = documents_columns(frame).with_columns(absent)
    table = table.with_columns(
        pl.col("split").fill_null(TRAIN),
        pl.col("text").fill_null(""),
        n_bytes=pl.col("text").fill_null("").str.len_bytes().cast(pl.Int64),
    )
    unknown = set(table["split"].unique()) - set(SPLITS)
    if unknown:
        message = f"column 'split' holds {', '.join(sorted(unknown))}; known are train and held_out"
        raise ContractError(message, hint="`gristmill score` sets it; or leave the column out")
    return table


def _append_end(
    ids: NDArray[np.uint32], lengths: NDArray[np.int64], end: int, dtype: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    with_end = lengths + 1
    tokens = np.full(len(ids) + len(lengths), end, dtype)
    is_text = np.ones(len(tokens), np.bool_)
    is_text[np.cumsum(with_end) - 1] = False
    tokens[is_text] = ids
    return tokens, with_end


def _verify(
    tokenizer: Any, texts: pl.Series, ids: NDArray[Any], lengths: NDArray[np.int64], n: int
) -> None:
    ends = np.cumsum(lengths)
    for row in np.unique(np.linspace(0, len(texts) - 1, min(n, len(texts))).astype(int)).tolist():
        own = ids[ends[row] - lengths[row] : ends[row]].tolist()
        if tokenizer.decode(own, skip_special_tokens=False) != texts[row]:
            message = f"document {row} of the part does not decode to its text again"
            hint = "the tokenizer loses text (normalizer, unknown token); use a byte-level one"
            raise ContractError(message, hint=hint)


def _decisions(frame: pl.DataFrame, kept: NDArray[np.bool_], stage: str) -> pl.DataFrame:
    url = pl.col("url") if "url" in frame.columns else pl.lit(None, pl.String)
    reason = pl.when(pl.Series("kept", kept)).then(None).otherwise(pl.lit("tokens.empty"))
    table = frame.select(
        "doc_id",
        url.alias("url"),
        pl.lit(stage).alias("stage"),
        pl.Series("kept", kept),
        reason.alias("reason"),
    )
    out = pl.from_arrow(conform(table, DECISIONS))
    assert isinstance(out, pl.DataFrame)  # a table never becomes a Series
    return out


def write_shards(part: TokenizedPart, folder: Path, name: str, *, source: str = WEB) -> list[Path]:
    """Write `<name>` and, if something is held out, `<name>-held_out`; return all files.

    A split without documents has no shard. `source` is what the mixture weighs the shard as. The
    sidecar says, beside what `training.shards` writes: `name, split, source, tokenizer` (SHA-256),
    `end_id, bytes`, and of `sources, languages` each one's documents, tokens and bytes. Raises
    ContractError where an id does not fit into the vocabulary, with nothing written.
    """
    files: list[Path] = []
    for split in SPLITS:
        mask = (part.documents["split"] == split).to_numpy()
        if mask.any():
            prefix = folder / (name if split == TRAIN else f"{name}-{split}")
            files += _write_split(part, mask, prefix, split, source)
    return files


def _write_split(
    part: TokenizedPart, mask: NDArray[np.bool_], prefix: Path, split: str, source: str
) -> list[Path]:
    whole = bool(mask.all())
    tokens = part.tokens if whole else part.tokens[np.repeat(mask, part.lengths)]
    lengths = part.lengths[mask]
    documents = part.documents.filter(pl.Series(mask)).with_columns(
        pl.Series("first_token", np.cumsum(lengths) - lengths)
    )
    sidecar = {
        "name": prefix.name,
        "split": split,
        "tokenizer": part.tokenizer_hash,
        "source": source,
        "end_id": part.end_id,
        "bytes": int(documents["n_bytes"].sum()),
        "sources": _sums(documents, "source"),
        "languages": _sums(documents, "language"),
    }
    prefix.parent.mkdir(parents=True, exist_ok=True)
    table = shard_path(prefix, "docs.parquet")
    pq.write_table(conform(documents, SHARD_DOCUMENTS), table, compression="zstd")
    try:
        files = write_shard(prefix, tokens, lengths, vocab_size=part.vocab_size, sidecar=sidecar)
    except ShardError as error:
        table.unlink()
        message = f"shard {prefix.name}: {error}"
        raise ContractError(message) from error
    return [*files[:2], table, files[2]]


def _sums(documents: pl.DataFrame, key: str) -> dict[str, dict[str, int]]:
    grouped = documents.group_by(key).agg(
        documents=pl.len(), tokens=pl.col("n_tokens").sum(), bytes=pl.col("n_bytes").sum()
    )
    return {row.pop(key): row for row in grouped.sort(key).to_dicts()}


def shard_part(
    frame: pl.DataFrame, *, tokenizer_json: str, config: TokenizeConfig, corpus: str, group: int
) -> PartResult:
    """One part group as shards `<corpus>-<group>-<key>`, in a temporary folder that `keep` holds.

    The key hashes ids and documents, so that names are unique in a store and equal content has the
    equal name. Tables: `decisions` only; files of kind `parts`, with the documents as `rows` of
    `.docs.parquet`, which has one row each, and none for the files beside it.
    """
    part = tokenize_documents(frame, tokenizer_json, config)
    digest = xxhash.xxh3_128(part.tokens.tobytes())
    digest.update("\0".join([part.tokenizer_hash, *part.documents["doc_id"]]).encode())
    scratch = Scratch()
    name = f"{corpus}-{group:05d}-{digest.hexdigest()[:8]}"
    from_web = (part.documents["source"] == WEB).all()
    files = write_shards(part, scratch.folder, name, source=WEB if from_web else corpus)
    return PartResult(
        {"decisions": part.decisions},
        files={"parts": [_output(path) for path in files]},
        keep=scratch,
    )


def _output(path: Path) -> OutputFile:
    rows = pq.read_metadata(path).num_rows if path.suffix == ".parquet" else 0
    return OutputFile(path, path.name, rows)


def read_documents(prefix: Path, columns: list[str] | None = None) -> pl.DataFrame:
    """`<prefix>.docs.parquet`."""
    return pl.read_parquet(shard_path(prefix, "docs.parquet"), columns=columns)
