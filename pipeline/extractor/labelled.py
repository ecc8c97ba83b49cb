"""Labelled pages for the extractor: WARC files, and JSONL that says what their main text is.

A gold row is `url, text, with, without` and what it should be scored by (`page_type, source,
language`); `url` is the record's WARC-Target-URI. A row may have no `text` but segments that must
(`with`) or must not (`without`) be in it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.bodies import BodyError, BodyTooLargeError, decode_body, parse_http
from pipeline.charset import decode
from pipeline.errors import GristmillError, UsageError
from pipeline.warc import Record, read_records

WARC_ENDINGS, GOLD_ENDINGS = (".warc", ".warc.gz"), (".jsonl", ".jsonl.gz")
LABELLED = "give WARC files and JSONL with `url, text[, with, without]`, or a folder of both"
COUNTED = ("pages_without_gold", "pages_repeated", "pages_unreadable", "damaged_stretches")
Row = dict[str, Any]


@dataclass
class Labelled:
    """Where labelled pages lie, what is said of them, and how both met."""

    warcs: list[Path]
    gold: dict[str, Row]
    """By URL; rows that say nothing are left out."""
    counts: dict[str, int] = field(default_factory=dict)
    """gold_rows, gold_without_label, gold_without_page, pages_without_gold, pages_repeated,
    pages_unreadable, damaged_stretches."""

    def pages(self, max_bytes: int) -> Iterator[tuple[Row, str]]:
        """The gold row and the HTML of each labelled page, in the order of the files.

        `counts` is complete after the last one. Of several responses for one URL the first is
        taken. GristmillError where no page has a gold row.
        """
        left = dict(self.gold)
        for path in self.warcs:
            for record in read_records(path, path.name):
                self.counts["damaged_stretches"] += record.damage is not None
                if record.kind != "response" or not record.url:
                    continue
                row = left.get(record.url)
                if row is None:
                    what = "pages_repeated" if record.url in self.gold else "pages_without_gold"
                    self.counts[what] += 1
                    continue
                html = _html(record, max_bytes)
                if html is None:
                    self.counts["pages_unreadable"] += 1
                    continue
                del left[record.url]
                yield row, html
        self.counts["gold_without_page"] = len(left)
        if len(left) == len(self.gold):
            message = f"none of the {len(left)} gold rows has a page in the WARC files"
            first = next(iter(left))
            hint = f"`url` must be the record's WARC-Target-URI; the first one is {first!r}"
            raise GristmillError(message, hint=hint)


def find_labelled(paths: Sequence[Path]) -> Labelled:
    """Read the gold of files and folders, and find their WARC files.

    UsageError where a path is absent or of another kind, or one of the two is missing;
    GristmillError where a gold line is none, or no row says anything.
    """
    files = sorted({file for path in paths for file in _files(path)}, key=lambda p: (p.name, p))
    warcs = [file for file in files if file.name.lower().endswith(WARC_ENDINGS)]
    golds = [file for file in files if file.name.lower().endswith(GOLD_ENDINGS)]
    names = ", ".join(map(str, paths))
    for found, what in ((warcs, "WARC file (.warc, .warc.gz)"), (golds, "gold (.jsonl)")):
        if not found:
            message = f"no {what} among {names}"
            raise UsageError(message, hint=LABELLED)
    gold: dict[str, Row] = {}
    unsaid = 0
    for path in golds:
        for number, row in _rows(path):
            if row["url"] in gold:
                message = f"{path} line {number}: {row['url']} is labelled twice"
                raise GristmillError(message, hint="give one gold row a page")
            if row.get("text") or row.get("with") or row.get("without"):
                gold[row["url"]] = row
            else:
                unsaid += 1
    if not gold:
        message = f"no gold row in {', '.join(map(str, golds))} has a text or segments"
        raise GristmillError(message, hint="each row needs `text`, or `with` and `without`")
    counts = dict.fromkeys(COUNTED, 0)
    return Labelled(warcs, gold, {"gold_rows": len(gold), "gold_without_label": unsaid, **counts})


def _files(path: Path) -> list[Path]:
    endings = (*WARC_ENDINGS, *GOLD_ENDINGS)
    if path.is_dir():
        return [file for file in path.iterdir() if file.name.lower().endswith(endings)]
    if not path.is_file():
        message = f"{path} is not there"
        raise UsageError(message, hint=LABELLED)
    if not path.name.lower().endswith(endings):
        message = f"{path} is neither a WARC nor a gold file by its name"
        raise UsageError(message, hint=f"one of {', '.join(endings)}")
    return [path]


def _rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The gold rows of a file with their line numbers. GristmillError for the first bad line."""
    opened = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, _row(line, f"{path} line {number}")
    except (UnicodeDecodeError, EOFError, OSError) as error:
        message = f"{path} cannot be read as JSONL ({error})"
        raise GristmillError(message, hint=LABELLED) from error


def _row(line: str, where: str) -> Row:
    """One gold row, its types checked."""
    try:
        row = json.loads(line)
    except ValueError as error:
        message = f"{where} is no JSON ({error})"
        raise GristmillError(message, hint=LABELLED) from error
    if not isinstance(row, dict) or not isinstance(row.get("url"), str) or not row["url"]:
        message = f"{where} has no `url`"
        raise GristmillError(message, hint=LABELLED)
    if not isinstance(row.get("text"), str | None):
        message = f"{where}: `text` is no string"
        raise GristmillError(message, hint=LABELLED)
    for name in ("with", "without"):
        segments = row.get(name) or []
        if not isinstance(segments, list) or not all(isinstance(s, str) for s in segments):
            message = f"{where}: `{name}` is no list of strings"
            raise GristmillError(message, hint=LABELLED)
    return row


def _html(record: Record, max_bytes: int) -> str | None:
    """The page of a response; null where its body cannot be read."""
    http = parse_http(record.block)
    if http is None:
        return None
    try:
        body = decode_body(http, max_bytes)
    except (BodyError, BodyTooLargeError):
        return None
    return decode(body, http.charset)[0]
