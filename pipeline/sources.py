"""Documents from JSON lines: the texts of sources, and the input of every stage given as JSONL.

`text` is required (null counts as empty). `source` (else the file's base name without endings) and
`id` (else `source_id`, else the physical line number from 1) give `doc_id`, whatever the folder,
and stay as `source, source_id`. `doc_id`, `url`, `licence` and all other columns pass through:
columns of the contract take its types, others stay what they are where all their values agree
(text, integer, number, truth value) and become JSON text where they are nested or mixed, so that
no type depends on what a reader guesses.

One line after the other through `json.loads`: about 60 MB of text a second on one core, which is
above every stage that follows, and a line that is damaged costs itself only.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from pipeline.layout import doc_id
from pipeline.part import Damage, PartResult
from pipeline.schema import DECISIONS, DOCUMENTS, LATER_COLUMNS, TEXT, conform, document_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

CODE_VERSION = "1"
LIBRARIES = ("polars", "pyarrow")

KNOWN: dict[str, pa.DataType] = {f.name: f.type for f in [*DOCUMENTS, *LATER_COLUMNS]}
TYPED = {name for name, kind in KNOWN.items() if kind != TEXT}
ENDING = re.compile(r"(\.jsonl?|\.ndjson)?(\.gz)?$", re.IGNORECASE)
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
INT64 = range(-(2**63), 2**63)

Record = dict[str, Any]


def base_name(name: str) -> str:
    """The source a file stands for: its base name without `.jsonl`, `.json`, `.ndjson`, `.gz`."""
    base = PurePosixPath(name).name
    return ENDING.sub("", base) or base


def normalise_text(text: pl.Expr) -> pl.Expr:
    r"""Line ends become `\n`; C0 control characters but tab and newline are removed."""
    ends = text.str.replace_all("\r\n?", "\n")
    return ends.str.replace_all(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "")


def read_source(path: Path, *, stage: str = "source_texts") -> PartResult:
    """The documents of one JSONL(.gz) file; see `parse_jsonl`."""
    return parse_jsonl(path.read_bytes(), path.name, stage=stage)


def parse_jsonl(
    data: bytes, name: str, *, first_line: int = 1, stage: str = "source_texts"
) -> PartResult:
    """Documents and decisions from the bytes of a JSONL file, gzip or not, called `name`.

    `parts`: the documents, in line order, with `source, source_id` and the other columns.
    `decisions`: one row a line that is not blank; dropped are `input.bad_line` (no JSON object, no
    text, a contract column of the wrong type) and `input.duplicate_id` (a `doc_id` seen above it),
    whose `detail` names file and line. `first_line` numbers lines where `data` is a later stretch
    of the file. A gzip stream that breaks off is reported as damage; lines before it count.
    """
    content, damaged = _decompress(data, name)
    reader = _Reader(name, stage)
    for number, line in _lines(content, first_line):
        reader.take(number, line)
    return PartResult(
        {"parts": _documents(reader.records), "decisions": reader.decisions()}, damaged=damaged
    )


def _lines(data: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    data = data.removeprefix(b"\xef\xbb\xbf") if first == 1 else data
    for number, line in enumerate(data.split(b"\n"), first):
        if line and not line.isspace():
            yield number, line


@dataclass
class _Reader:
    """Takes lines one by one; keeps records and the fate of every line."""

    name: str
    stage: str
    records: list[Record] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    fates: list[tuple[str, str | None, str | None, str | None]] = field(default_factory=list)

    def take(self, number: int, line: bytes) -> None:
        record, problem = parse_line(line)
        source = _label(record.get("source")) or base_name(self.name)
        given = _label(record.pop("id", None)) or _label(record.get("source_id"))
        # an unreadable line must not take the id of a record that is called by its number
        record_id = given or (str(number) if not problem else f"line {number}")
        key = _label(record.get("doc_id")) or doc_id(source, record_id)
        reason, where = None, {"file": PurePosixPath(self.name).name, "line": number}
        if problem:
            reason, detail = "input.bad_line", where | {"problem": problem}
        elif key in self.lines:
            reason, detail = "input.duplicate_id", where | {"first_line": self.lines[key]}
        else:
            self.lines[key] = number
            self.records.append(record | {"doc_id": key, "source": source, "source_id": record_id})
        text = json.dumps(detail, ensure_ascii=False) if reason else None
        self.fates.append((key, _label(record.get("url")), reason, text))

    def decisions(self) -> pl.DataFrame:
        keys, urls, reasons, details = zip(*self.fates, strict=True) if self.fates else ((),) * 4
        columns = {
            "doc_id": pa.array(keys, TEXT),
            "url": pa.array(urls, TEXT),
            "stage": pa.array([self.stage] * len(keys), TEXT),
            "kept": pa.array([reason is None for reason in reasons], pa.bool_()),
            "reason": pa.array(reasons, TEXT),
            "detail": pa.array(details, TEXT),
        }
        return _frame(conform(pa.table(columns), DECISIONS))


def parse_line(line: bytes) -> tuple[Record, str | None]:
    """The JSON object of a line, with what is wrong with it as a document, or null."""
    try:
        # NaN and Infinity are no JSON; Python writes them, and no number is what they mean
        record = json.loads(line.decode(), parse_constant=lambda _: None)
    except UnicodeDecodeError as error:
        return {}, f"no UTF-8 at byte {error.start}"
    except (ValueError, RecursionError) as error:
        return {}, f"no JSON: {str(error)[:100]}"
    if not isinstance(record, dict):
        return {}, "no JSON object"
    if SURROGATE.search(line):
        record = _without_lone_surrogates(record)
    if "text" not in record:
        return record, "no column 'text'"
    if not isinstance(record["text"], str | None):
        return record, f"column 'text' is no text but {type(record['text']).__name__}"
    for column in TYPED & record.keys():
        try:
            record[column] = _typed(record[column], KNOWN[column])
        except (pa.ArrowException, ValueError, TypeError):
            return record, f"column {column!r} is not {KNOWN[column]}"
    return record, None


def _typed(value: Any, kind: pa.DataType) -> Any:
    """`value` as a Python value that fits `kind`; timestamps are written as ISO 8601."""
    array = pa.array([value]) if isinstance(value, str) else pa.array([value], kind)
    return array.cast(kind)[0].as_py()


def _without_lone_surrogates(record: Record) -> Record:
    # half a pair is no character and fits into no UTF-8; it becomes U+FFFD
    text = json.dumps(record, ensure_ascii=False)
    return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))


def _label(value: Any) -> str | None:
    """A name or number as text; null where it is absent or empty."""
    if value is None or value == "":
        return None
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _documents(records: list[Record]) -> pl.DataFrame:
    names = {name: None for record in records for name in record} | {"source": 0, "source_id": 0}
    columns = {}
    for name in names:
        values = [record.get(name) for record in records]
        columns[name] = _column(values, KNOWN.get(name))
    schema = document_schema(names)
    frame = _frame(conform(pa.table(columns), schema, extra=True))
    return frame.with_columns(normalise_text(pl.col("text").fill_null("")))


def _column(values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    if kind == TEXT:
        return pa.array([_label(v) if v != "" else v for v in values], TEXT)
    if kind is not None:
        return pa.array(values, kind)
    types = {type(value) for value in values if value is not None}
    if types <= {str}:
        return pa.array(values, TEXT)
    if types == {bool}:
        return pa.array(values, pa.bool_())
    if types == {int} and all(v is None or v in INT64 for v in values):
        return pa.array(values, pa.int64())
    if types == {float} or (types == {int, float} and _exact(values)):
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    return pa.array([None if v is None else _json(v) for v in values], TEXT)


def _exact(values: Sequence[Any]) -> bool:
    return all(not isinstance(v, int) or abs(v) <= 2**53 for v in values)


def _frame(table: pa.Table) -> pl.DataFrame:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)  # a table never becomes a Series
    return frame


def _decompress(data: bytes, name: str) -> tuple[bytes, list[Damage]]:
    """All gzip members one after the other; up to the damage where there is one."""
    out: list[bytes] = []
    rest = data
    while rest[:2] == b"\x1f\x8b":
        member = zlib.decompressobj(wbits=31)
        try:
            out.append(member.decompress(rest))
            out.append(member.flush())
        except zlib.error as error:
            # what came before the damage in this member is lost with it: read it in small steps
            out.append(_until_damage(rest))
            return b"".join(out), [Damage(name, len(data) - len(rest), f"gzip: {error}")]
        if not member.eof:
            return b"".join(out), [Damage(name, len(data) - len(rest), "gzip: ends too early")]
        rest = member.unused_data
    return b"".join(out) if out else data, []


def _until_damage(data: bytes) -> bytes:
    member = zlib.decompressobj(wbits=31)
    out: list[bytes] = []
    try:
        for start in range(0, len(data), 4096):
            out.append(member.decompress(data[start : start + 4096]))
    except zlib.error:
        pass
    return b"".join(out)
