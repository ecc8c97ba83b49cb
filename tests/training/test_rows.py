"""Rows: packing rules, and what a row hands to training."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.rows import (
    DOCUMENT,
    LENGTH,
    ROW,
    START,
    Rows,
    best_fit,
    build_rows,
    read_row,
    rows_path,
    write_rows,
)
from training.shards import Shard, ShardError, write_shard


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
