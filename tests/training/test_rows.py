"""Rows: packing rules, and what a row hands to training."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.rows import (
    DOCUMENT,
    LENGTH,
    ROW,
    START,
    Chunks,
    Packed,
    Rows,
    best_fit,
    build_rows,
    rows_path,
    write_rows,
)
from training.samples.reading import read_row, read_rows
from training.shards import Shard, ShardError, offsets_of, write_shard


def shard_of(folder: Path, lengths: list[int]) -> Shard:
    tokens = np.arange(1, sum(lengths) + 1)
    write_shard(folder / "s", tokens, np.array(lengths), vocab_size=len(tokens) + 1)
    return Shard.open(folder / "s")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 20))
def test_every_token_stands_in_exactly_one_row(lengths: list[int], context: int) -> None:
    rows = build_rows(np.array(lengths, dtype=np.int64), context)
    seen = np.zeros(sum(lengths), dtype=int)
    for _, document, start, length in rows.tolist():
        seen[start : start + length] += 1
        first = sum(lengths[:document])
        assert first <= start
        assert start + length <= first + lengths[document]
    assert (seen == 1).all()
    if len(rows):
        assert np.bincount(rows[:, ROW], rows[:, LENGTH]).max() <= context
        assert np.array_equal(np.unique(rows[:, ROW]), np.arange(rows[:, ROW].max() + 1))
    for document, length in enumerate(lengths):
        pieces = rows[rows[:, DOCUMENT] == document]
        assert len(pieces) == -(-length // context)
        assert len(set(pieces[:, ROW].tolist())) == len(pieces)


def test_best_fit_takes_the_tightest_row() -> None:
    # rooms after 7 and 6: 3 and 4; the 3 goes where it fits exactly
    assert best_fit([7, 6, 3, 4, 2], 10).tolist() == [0, 1, 0, 1, 2]


def test_padding_is_small_on_web_like_lengths_and_rows_are_deterministic() -> None:
    rng = np.random.default_rng(0)
    lengths = np.maximum(16, rng.lognormal(6.2, 1.1, 20_000)).astype(np.int64)
    for context in (1024, 2048):
        rows = build_rows(lengths, context)
        assert 1 - lengths.sum() / (context * (rows[:, ROW].max() + 1)) <= 0.001
        assert np.array_equal(rows, build_rows(lengths.astype(np.int32), context))


def test_a_row_hands_out_tokens_positions_documents_and_targets(tmp_path: Path) -> None:
    shard = shard_of(tmp_path, [3, 2])
    write_rows(shard.prefix, 6)
    row = read_row(shard, Rows.open(shard.prefix, 6), 0)
    assert row.tokens.tolist() == [1, 2, 3, 4, 5, 0]
    assert row.positions.tolist() == [0, 1, 2, 0, 1, 0]
    assert row.doc_index.tolist() == [0, 0, 0, 1, 1, -1]
    assert row.loss_mask.tolist() == [True, True, False, True, False, False]
    assert row.targets.tolist() == [2, 3, 0, 5, 0, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=15), st.integers(1, 12))
def test_a_document_of_n_tokens_has_n_minus_1_targets(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], context: int
) -> None:
    shard = shard_of(tmp_path_factory.mktemp("rows"), lengths)
    write_rows(shard.prefix, context)
    rows = Rows.open(shard.prefix, context)
    assert rows.n_tokens == shard.n_tokens
    targets: list[int] = []
    for number in range(len(rows)):
        row = read_row(shard, rows, number)
        assert (row.targets[row.loss_mask] == row.tokens[row.loss_mask] + 1).all()
        assert ((row.doc_index >= 0) == (row.tokens > 0)).all()
        targets += row.targets[row.loss_mask].tolist()
    firsts = {int(start) + 1 for start in shard.offsets[:-1]}
    assert sorted(targets) == [t for t in range(1, shard.n_tokens + 1) if t not in firsts]


def plainly(shard: Shard, rows: Packed, row: int) -> Any:
    """A sample token by token: tokens, positions, documents, mask, targets."""
    ends = set(shard.offsets[1:].tolist())
    out = []
    for _, document, start, length in rows.of(row).tolist():
        for place in range(start, start + length):
            counts = place + 1 not in ends
            target = int(shard.tokens[place + 1]) if counts else 0
            out.append([int(shard.tokens[place]), place - start, document, int(counts), target])
    out += [[0, n, -1, 0, 0] for n in range(rows.context - len(out))]
    return np.array(out).T.tolist()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.integers(1, 12),
    st.booleans(),
    st.randoms(),
)
def test_a_batch_is_its_rows_read_token_by_token(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[int],
    context: int,
    concatenated: bool,
    draw: random.Random,
) -> None:
    shard = shard_of(tmp_path_factory.mktemp("rows"), lengths)
    packed: Packed = Rows(build_rows(shard.lengths, context), context)
    if concatenated:
        packed = Chunks(shard.offsets, context)
    numbers = draw.choices(range(len(packed)), k=5)
    batch = read_rows([(shard, packed, number) for number in numbers])
    for place, number in enumerate(numbers):
        wanted = plainly(shard, packed, number)
        assert [field[place].astype(int).tolist() for field in batch] == wanted
        assert [field.astype(int).tolist() for field in read_row(shard, packed, number)] == wanted


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(1, 12))
def test_concatenation_has_every_token_once_and_padding_at_the_end_only(
    lengths: list[int], context: int
) -> None:
    offsets = offsets_of(np.array(lengths))
    chunks = Chunks(offsets, context)
    rows = [chunks.of(number) for number in range(len(chunks))]
    assert [int(row[:, LENGTH].sum()) for row in rows[:-1]] == [context] * (len(rows) - 1)
    at = 0
    for _, document, start, length in np.concatenate(rows).tolist():
        assert (start, length > 0) == (at, True)
        assert offsets[document] <= start < start + length <= offsets[document + 1]
        at += length
    assert at == sum(lengths) == chunks.n_tokens
    with pytest.raises(ShardError, match=f"no row {len(rows)}; there are"):
        chunks.of(len(rows))


@settings(max_examples=12, deadline=None)
@given(st.floats(5.5, 6.5), st.floats(0.9, 1.4), st.sampled_from([1024, 2048, 4096]))
def test_padding_of_log_normal_lengths_is_at_most_one_in_a_thousand(
    mean: float, spread: float, context: int
) -> None:
    rng = np.random.default_rng(0)
    lengths = np.maximum(16, rng.lognormal(mean, spread, 30_000)).astype(np.int64)
    rows = build_rows(lengths, context)
    padding = context * (int(rows[:, ROW].max()) + 1) - int(lengths.sum())
    assert padding <= 0.001 * lengths.sum() + context
    pieces = np.bincount(rows[:, DOCUMENT], minlength=len(lengths))
    assert (pieces[lengths <= context] == 1).all(), "a document that fits is not cut"


def test_packing_leaves_the_tokens_alone(tmp_path: Path) -> None:
    shard = shard_of(tmp_path, [5, 9, 1])
    before = (tmp_path / "s.bin").read_bytes()
    for context in (4, 8):
        path = write_rows(tmp_path / "s.bin", context)
        assert path == rows_path(tmp_path / "s", context)
        assert np.load(path).dtype == np.int64
    assert (tmp_path / "s.bin").read_bytes() == before
    assert Rows.open(shard.prefix, 4).segments[0, START] == 0


def test_rows_that_are_not_there_are_named(tmp_path: Path) -> None:
    shard = shard_of(tmp_path, [5])
    with pytest.raises(ShardError, match=r"rows-8.npy is absent"):
        Rows.open(shard.prefix, 8)
    write_rows(shard.prefix, 8)
    with pytest.raises(ShardError, match="no row 1; there are 1"):
        Rows.open(shard.prefix, 8).of(1)
    with pytest.raises(ShardError, match="context of 0"):
        build_rows(np.array([1]), 0)
