"""Parquet files given by a person, as documents.

The same rules as for JSON lines (`sources.py`): `text` is required and null counts as empty; line
ends are normalised and control characters removed; a row without a `doc_id` gets one from `source`
(else the file's base name) and `id` (else `source_id`, else the number of its row from 1); a row
whose id was seen above it is dropped as `input.duplicate_id`; unknown columns pass through. Columns
of the contract take its types, so that a column that is all null in one file of a set and text in
another (pola-rs/polars#12781) is text in both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import ContractError
from pipeline.layout import doc_id
from pipeline.schema import TEXT, conform, document_schema

if TYPE_CHECKING:
    import polars as pl


def read_table(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The documents of a Parquet file in row order, and decisions on the rows left out.

    Raises ContractError naming the file where it is not readable, and the column where `text` is
    absent or a column does not fit the contract.
    """
    import polars as pl

    from pipeline.sources import normalise_text

    table = _identified(_open(path), path)
    try:
        table = conform(table, document_schema(table.column_names), extra=True)
    except ContractError as error:
        message = f"{path}: {error.message}"
        raise ContractError(message, hint=error.hint) from error
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(normalise_text(pl.col("text").fill_null("")))
    first = frame["doc_id"].is_first_distinct()
    return frame.filter(first), duplicates(frame, ~first, path.name)


def duplicates(frame: pl.DataFrame, left_out: pl.Series, name: str) -> pl.DataFrame:
    """Decisions on the rows of a file called `name` whose `doc_id` another row has already."""
    import polars as pl

    numbered = frame.select("doc_id", "url", row=pl.int_range(1, pl.len() + 1)).filter(left_out)
    details = [
        json.dumps({"file": name, "row": row}, ensure_ascii=False) for row in numbered["row"]
    ]
    return numbered.select(
        "doc_id",
        "url",
        stage=pl.lit(None, pl.String),
        kept=pl.lit(False),
        reason=pl.lit("input.duplicate_id"),
        detail=pl.Series(details, dtype=pl.String),
    )


def _open(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        message = f"{path} is no readable Parquet file: {str(error).splitlines()[0]}"
        raise ContractError(message, hint="write it again; a cut file has no footer") from error
    names = table.column_names
    if "text" not in names:
        message = f"{path} has no column 'text'; it has {', '.join(names) or 'none'}"
        raise ContractError(message, hint="a documents table has `text`, and best `doc_id, url`")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"{path} has the column {twice[0]!r} twice"
        raise ContractError(message, hint="name every column once")
    kind = table.column("text").type
    if kind not in (pa.string(), TEXT, pa.string_view(), pa.null()):
        message = f"{path}: column 'text' holds {kind}, not text"
        raise ContractError(message, hint="write the text of each document as a string")
    return table


def _identified(table: pa.Table, path: Path) -> pa.Table:
    """`table` with `doc_id`, and `source, source_id` where ids had to be made of them."""
    from pipeline.sources import base_name

    names = table.column_names
    given = _labels(table, ("doc_id",))
    if given is not None and all(given):
        return table
    rows = table.num_rows
    empty: list[str | None] = [None] * rows
    sources = _labels(table, ("source",)) or empty
    ids = _labels(table, ("id", "source_id")) or empty
    label = base_name(path.name.removesuffix(".parquet"))
    sources = [source or label for source in sources]
    ids = [record or str(row) for row, record in enumerate(ids, start=1)]
    made = [doc_id(source, record) for source, record in zip(sources, ids, strict=True)]
    keys = [key or other for key, other in zip(given or empty, made, strict=True)]
    table = table.drop_columns([n for n in ("doc_id", "source", "source_id", "id") if n in names])
    for name, values in (("doc_id", keys), ("source", sources), ("source_id", ids)):
        table = table.append_column(name, pa.array(values, TEXT))
    return table


def _labels(table: pa.Table, columns: tuple[str, ...]) -> list[str | None] | None:
    """The values of the first of `columns` that is there, as text."""
    for name in columns:
        if name in table.column_names:
            values = table.column(name).to_pylist()
            return [None if value is None or value == "" else str(value) for value in values]
    return None
