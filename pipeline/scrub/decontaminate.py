"""Benchmark contamination: documents that share word n-grams with evaluation items.

As GPT-3 did (arXiv:2005.14165, appendix C), a document is contaminated when it holds 13 words in a
row of an item. Items are taken field by field, for a page rarely quotes a whole record: every
string of a record gives its n-grams. Where the question itself is shorter than an n-gram it counts
as a whole from 8 words on, by itself and followed by each answer; shorter ones are everyday
phrases. So are n-grams that many items share, and rows of figures as tests of programs hold them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipeline.compiled import kernel
from pipeline.config.scrub import ScrubConfig
from pipeline.dedup.shingles import shingle_hashes, word_hashes
from pipeline.errors import ConfigError, ContractError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    U8 = NDArray[np.uint8]
    U64 = NDArray[np.uint64]
    I32 = NDArray[np.int32]
    I64 = NDArray[np.int64]

QUESTIONS = ("query", "question", "prompt", "context", "goal", "problem", "instruction", "input")
"""Fields that hold what an item asks; without one of them it is the record's longest string."""
ENDINGS = (".jsonl", ".jsonl.gz")
FILTER_BITS = 24


@dataclass(frozen=True)
class BenchmarkIndex:
    """N-grams of evaluation items, by their length in words."""

    grams: dict[int, tuple[U64, I32]]
    """Length -> hashes, ascending, and the item of each."""
    items: list[tuple[str, str]]
    """File name and item id."""
    passes: U8 = field(repr=False)
    """A bit for each hash (its upper bits): most n-grams of a text are turned away here."""

    def match(self, texts: pl.Series) -> tuple[I64, I32]:
        """Of each text the number of n-grams it shares, and the first item met (-1: none)."""
        words, offsets = word_hashes(texts)
        hits = np.zeros(len(texts), np.int64)
        items = np.full(len(texts), -1, np.int32)
        for length in sorted(self.grams, reverse=True):
            hashes, starts = shingle_hashes(words, offsets, length)
            _match(hashes, starts, self.passes, *self.grams[length], hits, items)
        return hits, items

    def origin(self, item: int) -> dict[str, str]:
        """The item's id and file, as they stand in decisions."""
        file, name = self.items[item]
        return {"item": name, "file": file}


@kernel
def _match(
    hashes: U64, starts: I64, passes: U8, known: U64, owners: I32, hits: I64, items: I32
) -> None:
    for d in range(len(starts) - 1):
        for i in range(starts[d], starts[d + 1]):
            h = hashes[i]
            bit = h >> np.uint64(64 - FILTER_BITS)
            if not (passes[bit >> np.uint64(3)] >> (bit & np.uint64(7))) & 1:
                continue
            at = np.searchsorted(known, h)
            if at < len(known) and known[at] == h:
                hits[d] += 1
                if items[d] < 0:
                    items[d] = owners[at]


def index_of(config: ScrubConfig) -> BenchmarkIndex:
    """The index for the files of `config.benchmarks`; built once a process as long as they stay."""
    files = tuple(benchmark_files(config.benchmarks or []))
    stamps = tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in files)
    lengths = (config.contamination_ngram, config.contamination_short, config.contamination_common)
    return _cached(files, stamps, lengths)


@cache
def _cached(
    files: tuple[Path, ...], stamps: tuple[tuple[int, int], ...], lengths: tuple[int, int, int]
) -> BenchmarkIndex:
    return build(read_items(files), ngram=lengths[0], short=lengths[1], common=lengths[2])


def benchmark_files(places: Iterable[str]) -> list[Path]:
    """The JSONL files of files and folders, each once, sorted by name.

    Raises ConfigError for a place that is absent or holds none.
    """
    files: set[Path] = set()
    for place in places:
        path = Path(place)
        inside = [p for p in path.rglob("*") if p.name.endswith(ENDINGS)] if path.is_dir() else []
        if not (path.is_file() or inside):
            message = f"scrub.benchmarks: {place} is no JSONL file and no folder with any"
            raise ConfigError(message, hint="name files or folders with .jsonl or .jsonl.gz")
        files.update([path] if path.is_file() else inside)
    return sorted(files, key=lambda path: (path.name, str(path)))


def read_items(files: Iterable[Path]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """File name, item id (its `id`, else the line number) and record, for each line."""
    for path in files:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except ValueError as error:
                    message = f"{path.name} line {number} is not JSON"
                    raise ContractError(message, hint=str(error)) from error
                if not isinstance(record, dict):
                    message = f"{path.name} line {number} holds no object"
                    raise ContractError(message, hint="one item a line, as a JSON object")
                yield path.name, str(record.get("id", number)), record


def build(
    items: Iterable[tuple[str, str, dict[str, Any]]], *, ngram: int, short: int, common: int
) -> BenchmarkIndex:
    """The index of items (file name, id, record).

    `ngram`: words in a gram. `short`: from how many words a shorter question counts as a whole.
    `common`: grams in more items than this are left out.
    """
    names: list[tuple[str, str]] = []
    owners: list[int] = []
    texts: list[str] = []
    wholes: list[bool] = []
    for file, name, record in items:
        for text, whole in units(record):
            owners.append(len(names))
            texts.append(text)
            wholes.append(whole)
        names.append((file, name))
    column = pl.Series("text", texts, dtype=pl.String)
    words, offsets = word_hashes(column)
    counts = np.diff(offsets)
    words_or_figures = np.where(np.isin(words, _figures(column)), np.uint64(0), words)
    is_whole: NDArray[np.bool_] = np.array(wholes, np.bool_)
    owner = np.array(owners, np.int32)
    grams = {}
    for length in range(short, ngram + 1):
        takes = (counts >= ngram) if length == ngram else (is_whole & (counts == length))
        hashes, starts = shingle_hashes(words, offsets, length)
        unit = np.repeat(np.arange(len(owner)), np.diff(starts))
        first = offsets[unit] + np.arange(len(unit)) - starts[unit]
        chosen = takes[unit] & (_variety(words_or_figures, length)[first] >= length // 2)
        gram = _distinct(hashes[chosen], owner[unit[chosen]], common)
        if len(gram[0]):
            grams[length] = gram
    return BenchmarkIndex(grams, names, _filter([hashes for hashes, _ in grams.values()]))


def units(record: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """The texts of an item, and whether each counts as a whole where it is short."""
    strings = {key: list(_strings(value)) for key, value in record.items()}
    every = [text for texts in strings.values() for text in texts]
    if not every:
        return
    named = next((strings[key] for key in QUESTIONS if strings.get(key)), None)
    question = named[0] if named else max(every, key=len)
    yield question, True
    for text in every:
        if text is not question:
            yield text, False
            yield f"{question} {text}", True


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _figures(texts: pl.Series) -> U64:
    """The hashes of the words in `texts` that are figures only."""
    figures = texts.str.extract_all("[0-9]+").list.explode().drop_nulls().unique()
    return word_hashes(figures)[0]


def _variety(words: U64, length: int) -> I64:
    """Distinct words, figures (0) not counted, in the n-gram beginning at each place."""
    out = np.zeros(len(words) + 1, np.int64)
    if len(words) >= length:
        windows = np.sort(np.lib.stride_tricks.sliding_window_view(words, length), axis=1)
        changes = (np.diff(windows, axis=1) != 0).sum(axis=1)
        out[: len(windows)] = changes + (windows[:, 0] != 0)
    return out


def _distinct(hashes: U64, items: I32, common: int) -> tuple[U64, I32]:
    table = (
        pl.DataFrame({"hash": hashes, "item": items})
        .group_by("hash")
        .agg(item=pl.col("item").min(), n=pl.col("item").n_unique())
        .filter(pl.col("n") <= common)
        .sort("hash")
    )
    return table["hash"].to_numpy(), table["item"].to_numpy()


def _filter(hashes: Sequence[U64]) -> U8:
    bits = np.zeros(1 << FILTER_BITS, np.bool_)
    for each in hashes:
        bits[each >> np.uint64(64 - FILTER_BITS)] = True
    return np.packbits(bits, bitorder="little")
