"""Accuracy over labelled texts: the tables, what is refused, both backends on shared labels."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from pipeline.errors import UsageError
from pipeline.language import Backend
from pipeline.language_accuracy import Accuracy, accuracy, read_labels

TEXTS = [
    {"lang": "en", "text": "The engineer opened the old chart near the vineyard. " * 3},
    {"lang": "deu", "text": "Der Ingenieur öffnete die alte Karte am Weinberg. " * 3},
    {
        "lang": "nb",
        "text": "Ingeniøren åpnet det gamle kartet ved vingården da det ble mørkt. " * 3,
    },
    {
        "lang": "fr",
        "text": "Das ist kein Französisch, sondern ein deutscher Satz.",
        "size": "short",
    },
]


def write(path: Path, *rows: object) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_the_tables(tmp_path: Path) -> None:
    labels = read_labels(write(tmp_path / "labels.jsonl.gz", *TEXTS))
    assert labels["language"].to_list() == ["en", "de", "no", "fr"]
    found = accuracy(labels)
    assert [(row.name, row.n, row.accuracy) for row in found.sizes] == [
        ("all", 4, 0.75), ("long", 3, 1.0), ("short", 1, 0.0),
    ]  # fmt: skip
    worst = found.languages[0]
    assert (worst.name, worst.confused_with, worst.confused, worst.short) == ("fr", "de", 1, 0.0)
    assert [row.name for row in found.lengths] == ["50 to 119", "120 to 299"]
    assert found.as_json()["languages"][0]["name"] == "fr"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"lang": "xx", "text": "a"}, "'xx' is no language"),
        ({"lang": "en"}, "line 1"),
        ([], "line 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: object, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_labels(write(tmp_path / "labels.jsonl.gz", row))


def test_a_file_without_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no labelled text"):
        read_labels(write(tmp_path / "labels.jsonl.gz"))
    with pytest.raises(UsageError, match="cannot be read"):
        read_labels(tmp_path / "absent.jsonl")


def shared_accuracy(shared: Path, backend: Backend) -> Accuracy:
    return accuracy(read_labels(shared / "data/labels/language.jsonl.gz"), backend)


@pytest.mark.shared
def test_lid176_on_labelled_paragraphs(shared: Path) -> None:
    _, long, short = shared_accuracy(shared, "lid176").sizes
    assert long.accuracy >= 0.98
    assert short.accuracy >= 0.87
    assert (long.merged or 0) >= 0.99
    assert (short.merged or 0) >= 0.89


@pytest.mark.shared
def test_the_floors_cost_few_right_labels(shared: Path) -> None:
    from pipeline.config.language import LanguageConfig
    from pipeline.language import signals

    labels = read_labels(shared / "data/labels/language.jsonl.gz")
    told = signals(labels["text"], LanguageConfig())["language"]
    right = pl.select(
        told.replace({"nn": "no", "ms": "id"}) == labels["language"].replace("ms", "id")
    )
    frame = labels.with_columns(right.to_series().alias("right"))
    shares = dict(frame.group_by("size").agg(pl.col("right").mean()).iter_rows())
    assert shares["long"] >= 0.98
    assert shares["short"] >= 0.87


@pytest.mark.shared
def test_the_second_backend_is_better_at_every_length(shared: Path) -> None:
    pytest.importorskip("eldc", reason="the extra eldc is not installed")
    first, second = (shared_accuracy(shared, backend) for backend in ("lid176", "eldc"))
    for one, other in zip(first.sizes + first.lengths, second.sizes + second.lengths, strict=True):
        assert other.accuracy >= one.accuracy, one.name
        assert (other.merged or 0) >= (one.merged or 0), one.name
    assert second.sizes[2].accuracy >= 0.93
