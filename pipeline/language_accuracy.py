"""How often the language told is the right one: tables over labelled texts.

Accuracy is counted as published comparisons count it: Norwegian is one language (no, nb, nn), and
Malay and Indonesian are one. `merged` also takes Serbian, Croatian and Bosnian for one, which are
told apart by their speakers rather than by their words.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config.languages import UNDETERMINED, code_of
from pipeline.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from pipeline.language import Backend

SAME = {"nb": "no", "nn": "no", "ms": "id"}
MERGED = {**SAME, "sr": "hbs", "hr": "hbs", "bs": "hbs"}
SHORT = 80
"""Characters below which a text counts as short where the labels do not say (`size`)."""
BINS = (0, 20, 50, 120, 300)
"""Lengths in characters from which the rows of the table by length begin."""


@dataclass(frozen=True)
class Row:
    """One line of a table: a language, a size or a length."""

    name: str
    n: int
    accuracy: float
    merged: float | None
    """Accuracy with Serbian, Croatian and Bosnian as one; None in the table by language."""
    confused_with: str | None = None
    """The wrong language told most often."""
    confused: int = 0
    """How often that was told."""
    long: float | None = None
    short: float | None = None


@dataclass(frozen=True)
class Accuracy:
    """The tables of one backend over one set of labels."""

    backend: str
    sizes: tuple[Row, ...]
    """all, long, short (those that occur)."""
    lengths: tuple[Row, ...]
    languages: tuple[Row, ...]
    """Worst first."""

    def as_json(self) -> dict[str, Any]:
        """Plain data, as `--json` prints it."""
        return asdict(self)

    def size(self, name: str) -> Row | None:
        """The row of `all`, `long` or `short`."""
        return next((row for row in self.sizes if row.name == name), None)


def read_labels(path: Path) -> pl.DataFrame:
    """Labelled texts: JSONL(.gz) with `text`, `lang` (or `language`) and optionally `size`.

    Returns the columns `text`, `language` (a code that can be told) and `size` (long, short).
    UsageError for a file that is not there, and for a line without a text or a known language.
    """
    import polars as pl

    rows = [_labelled(path, n, record) for n, record in _records(path)]
    schema = {"text": pl.String, "language": pl.String, "size": pl.String}
    if not rows:
        message = f"{path} has no labelled text"
        raise UsageError(message, hint="give one JSON object a line, with `text` and `lang`")
    return pl.DataFrame(rows, schema=schema, orient="row")


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            for n, line in enumerate(lines, start=1):
                if line.strip():
                    yield n, json.loads(line)
    except (OSError, ValueError) as error:
        message = f"language labels {path} cannot be read: {error}"
        raise UsageError(message, hint="give JSONL, plain or .gz, in UTF-8") from error


def _labelled(path: Path, line: int, record: Any) -> tuple[str, str, str]:
    given = record if isinstance(record, Mapping) else {}
    text, name = given.get("text"), given.get("lang") or given.get("language")
    code = code_of(name) if isinstance(name, str) else None
    if not isinstance(text, str) or code is None:
        message = f"{path} line {line} has no `text`, or {name!r} is no language that can be told"
        raise UsageError(message, hint="mend the line or take it out")
    size = given.get("size") or ("short" if len(text) < SHORT else "long")
    return text, code, str(size)


def accuracy(labels: pl.DataFrame, backend: Backend = "lid176") -> Accuracy:
    """The tables of a backend over labelled texts (columns of `read_labels`); no floors apply."""
    import polars as pl

    from pipeline.language import identify

    told = identify(labels["text"], backend=backend)["language"].alias("told")
    right = told.replace(SAME) == labels["language"].replace(SAME)
    merged = told.replace(MERGED) == labels["language"].replace(MERGED)
    frame = labels.with_columns(
        told, right=right, merged=merged, length=pl.col("text").str.len_chars()
    )
    return Accuracy(
        backend=backend,
        sizes=tuple(_sizes(frame)),
        lengths=tuple(_lengths(frame)),
        languages=tuple(_languages(frame)),
    )


def _row(name: str, frame: pl.DataFrame) -> Row:
    return Row(name, frame.height, _mean(frame["right"]) or 0.0, _mean(frame["merged"]))


def _mean(right: pl.Series) -> float | None:
    return round(float(right.sum()) / len(right), 4) if len(right) else None


def _sizes(frame: pl.DataFrame) -> Iterator[Row]:
    yield _row("all", frame)
    for name in sorted(frame["size"].unique().to_list()):
        yield _row(name, frame.filter(frame["size"] == name))


def _lengths(frame: pl.DataFrame) -> Iterator[Row]:
    for low, high in zip(BINS, [*BINS[1:], None], strict=True):
        inside = frame.filter(frame["length"] >= low)
        if high is not None:
            inside = inside.filter(inside["length"] < high)
        if inside.height:
            yield _row(f"{low} to {high - 1}" if high else f"{low} and more", inside)


def _languages(frame: pl.DataFrame) -> list[Row]:
    rows = [_language(str(code), part) for (code,), part in frame.group_by("language")]
    return sorted(rows, key=lambda row: (row.accuracy, -row.n, row.name))


def _language(code: str, frame: pl.DataFrame) -> Row:
    wrong = frame.filter(~frame["right"])["told"].value_counts()
    worst = max(wrong.iter_rows(), key=lambda pair: (pair[1], pair[0]), default=(None, 0))
    by_size = {
        size: _mean(frame.filter(frame["size"] == size)["right"]) for size in ("long", "short")
    }
    return Row(
        name=code,
        n=frame.height,
        accuracy=_mean(frame["right"]) or 0.0,
        merged=None,
        confused_with=worst[0] if worst[0] != UNDETERMINED else "undetermined",
        confused=worst[1],
        **by_size,
    )
