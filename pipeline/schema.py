"""The contracts between stages: the columns of every table and the vocabulary of reasons.

`conform` makes any frame a table of exactly such a schema, so that no partition is ever written
with a null-typed column or a drifting type (pola-rs/polars#12781).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa

from pipeline.errors import ContractError

if TYPE_CHECKING:
    import polars as pl

TEXT = pa.large_string()
SPAN = pa.struct([("out", pa.uint32()), ("in", pa.uint32()), ("length", pa.uint32())])
EDITS = pa.large_list(SPAN)

RECORD_ADDRESS = pa.schema(
    [
        ("warc_file", TEXT),  # base name
        ("warc_offset", pa.int64()),  # of the gzip member (or of the record in a plain file)
        ("warc_length", pa.int64()),
        ("member_offset", pa.int64()),  # within the member, where the file is one member; else null
    ]
)

DOCUMENTS = pa.schema(
    [
        ("doc_id", TEXT),
        ("snapshot", TEXT),
        ("url", TEXT),
        *RECORD_ADDRESS,
        ("fetched_at", pa.timestamp("us", tz="UTC")),
        ("payload_digest", TEXT),
        ("mime", TEXT),
        ("charset", TEXT),
        ("title", TEXT),
        ("text", TEXT),
        ("licence", TEXT),
        ("licence_source", TEXT),
        ("reservations", pa.large_list(TEXT)),
        ("extractor", TEXT),
    ]
)
"""One row a document, from extraction on. Later stages append the columns below."""

SOURCE_COLUMNS = pa.schema([("source", TEXT), ("source_id", TEXT)])
FILTER_COLUMNS = pa.schema([("language", TEXT), ("language_score", pa.float32())])
SCORE_COLUMNS = pa.schema(
    [("quality_score", pa.float32()), ("safety_score", pa.float32()), ("split", TEXT)]
)
EDIT_COLUMNS = pa.schema([("edits", EDITS)])

LATER_COLUMNS = pa.unify_schemas([SOURCE_COLUMNS, FILTER_COLUMNS, SCORE_COLUMNS, EDIT_COLUMNS])

DECISIONS = pa.schema(
    [
        ("doc_id", TEXT),
        ("url", TEXT),
        ("stage", TEXT),
        ("kept", pa.bool_()),
        ("reason", TEXT),  # null where kept
        ("value", pa.float64()),
        ("threshold", pa.float64()),
        ("detail", TEXT),  # JSON
    ]
)
"""One row a record or document that came in, kept or not."""

RECORD_DECISIONS = pa.unify_schemas(
    [DECISIONS, RECORD_ADDRESS, pa.schema([("status", pa.int32()), ("mime", TEXT)])]
)
"""Extraction's decisions: one row for EVERY record of the WARC file."""

PAIRS = pa.schema([("doc_id", TEXT), ("other", TEXT), ("similarity", pa.float32())])
CLUSTERS = pa.schema([("doc_id", TEXT), ("n", pa.int64())])

WARC_FILES = pa.schema(
    [
        ("warc_file", TEXT),
        ("size_bytes", pa.int64()),
        ("checksum", TEXT),  # "sha256:<hex>", or "etag:<value>" where reading first costs too much
        ("group", pa.int32()),  # part group: shards never cross one
    ]
)

REASONS: dict[str, tuple[str, ...]] = {
    "record": (
        "redirect", "status", "mime", "empty", "revisit", "request", "metadata", "warcinfo",
        "other", "duplicate_id",
    ),
    "damage": ("truncated", "gzip", "http", "decode", "warc_truncated"),
    "extract": ("empty", "too_large", "too_deep", "hang", "crash"),
    "url": ("listed", "banned_word", "soft_words"),
    "language": ("not_kept", "low_score", "too_short"),
    "gopher_repetition": (
        "empty", "dup_para_frac", "dup_para_char_frac", "dup_line_frac", "dup_line_char_frac",
        "top_2_gram", "top_3_gram", "top_4_gram",
        *(f"duplicated_{n}_n_grams" for n in range(5, 11)),
    ),
    "gopher_quality": (
        "gopher_short_doc", "gopher_long_doc", "gopher_below_avg_threshold",
        "gopher_above_avg_threshold", "gopher_too_many_hashes", "gopher_too_many_ellipsis",
        "gopher_too_many_bullets", "gopher_too_many_end_ellipsis", "gopher_below_alpha_threshold",
        "gopher_enough_stop_words",
    ),
    "c4": ("curly_bracket", "lorem_ipsum", "too_few_sentences"),
    "dclm": (
        "short", "long", "word_length_below", "word_length_above", "symbols", "bullets", "ellipses",
        "non_alphabetic", "stop_words", "removed_words",
    ),
    "fineweb": ("empty", "line_punct_ratio", "short_line_ratio", "char_dup_ratio", "list_ratio"),
    "quality": ("below",),
    "safety": ("above",),
    "exact": ("text", "url"),
    "near": ("minhash",),
    "near_held_out": ("minhash",),
    "semantic": ("cosine",),
    "contamination": ("ngram",),
    "tokens": ("empty",),
    "take_out": ("url", "host", "licence", "doc_id"),
    "input": ("bad_line", "duplicate_id"),
    "labeller": ("unparsable", "refused", "no_answer", "over_limit"),
}  # fmt: skip
"""Families and rules of drop reasons, `<family>.<rule>`; a plug-in's family is its own name."""


def conform(frame: pl.DataFrame | pa.Table, schema: pa.Schema, *, extra: bool = False) -> pa.Table:
    """`frame` as a table with exactly the columns and types of `schema`, in that order.

    Columns of `schema` that the frame lacks become nulls of the declared type. Columns beyond the
    schema are an error, or kept behind it with `extra` (one that is all null becomes text, lists of
    nothing become lists of text).
    Raises ContractError naming the column that does not fit.
    """
    table = frame if isinstance(frame, pa.Table) else frame.to_arrow()
    beyond = [name for name in table.column_names if name not in schema.names]
    if beyond and not extra:
        message = f"table has columns the contract does not know: {', '.join(beyond)}"
        raise ContractError(message)
    columns = [_column(table, field) for field in schema]
    fields = list(schema)
    for name in beyond:
        column = table.column(name)
        column = column.cast(_without_nulls(column.type))
        fields.append(pa.field(name, column.type))
        columns.append(column)
    return pa.table(columns, schema=pa.schema(fields)).combine_chunks()


def _without_nulls(kind: pa.DataType) -> pa.DataType:
    """`kind` with text in the place of a type that only nulls have, also inside lists."""
    if pa.types.is_null(kind):
        return TEXT
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.large_list(_without_nulls(kind.value_type))
    return kind


def _column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    try:
        return column if column.type == field.type else column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {field.name!r} holds {column.type}, the contract says {field.type}"
        raise ContractError(message, hint=str(error).splitlines()[0]) from error


def document_schema(names: Iterable[str]) -> pa.Schema:
    """The declared schema for a documents table that has the columns `names`.

    The base columns always, the columns of later stages in contract order where they are named.
    """
    present = set(names)
    return pa.schema([*DOCUMENTS, *(f for f in LATER_COLUMNS if f.name in present)])
