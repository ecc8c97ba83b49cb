"""The order of samples: a permutation of the rows of every source, interleaved by weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.errors import TrainingError
from training.samples.interleave import TOTAL, Interleave, whole_shares
from training.samples.order import BLOCK, Order, permute, permute_many, round_keys

MASK = 2**64 - 1
WITHIN = 1.5
"""Samples that any prefix may be off the weights."""


def plainly(index: int, n: int, keys: tuple[int, ...]) -> int:
    """The permutation with whole numbers of any size, one at a time."""
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = index >> half, index & mask
        for key in keys:
            value = right ^ key
            value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
            value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
            left, right = right, left ^ ((value ^ (value >> 31)) & mask)
        index = left << half | right
        if index < n:
            return index


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 700), st.integers(0, 2**62), st.integers(0, 3))
def test_the_permutation_hits_every_row_once(n: int, seed: int, epoch: int) -> None:
    keys = round_keys(seed, "web", epoch)
    found = permute_many(np.arange(n), n, keys)
    assert sorted(found.tolist()) == list(range(n))
    assert found[:5].tolist() == [plainly(i, n, keys) for i in range(min(n, 5))]


def test_rows_of_a_source_of_any_size_are_permuted() -> None:
    n, keys = 2**40 + 7, round_keys(0, "web", 0)
    assert permute(n - 1, n, keys) == plainly(n - 1, n, keys) < n


def test_another_seed_epoch_or_source_is_another_order() -> None:
    orders = {
        tuple(permute_many(np.arange(50), 1000, round_keys(*key)).tolist())
        for key in [(0, "web", 0), (1, "web", 0), (0, "web", 1), (0, "code", 0)]
    }
    assert len(orders) == 4


WEIGHTS = st.lists(
    st.one_of(st.floats(0.01, 1.0), st.floats(-14, 0).map(lambda x: 2.0**x)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(WEIGHTS, st.integers(0, 2**33))
def test_every_prefix_follows_the_weights(weights: list[float], later: int) -> None:
    interleave = Interleave(weights)
    share = np.array(weights) / sum(weights)
    for begin in (0, later):
        had = interleave.counts(begin)
        sources, before = interleave.at(np.arange(begin, begin + 1500))
        for source, of in enumerate(share):
            taken = had[source] + np.cumsum(sources == source)
            wanted = of * (begin + np.arange(1, 1501))
            drift = begin / TOTAL  # weights are kept to one in TOTAL
            assert np.abs(taken - wanted).max() < WITHIN + drift
            n = int((sources == source).sum())
            assert (before[sources == source] == had[source] + np.arange(n)).all()
    assert (
        interleave.counts(later + 1500) == had + np.bincount(sources, minlength=len(share))
    ).all()


def test_equal_and_geometric_weights_keep_closest() -> None:
    for weights in ([1] * 40, [1.5**n for n in range(30)], [1e-9, 1, 1, 2, 3, 5, 8, 13]):
        interleave, share = Interleave(weights), np.array(weights) / sum(weights)
        sources, _ = interleave.at(np.arange(20_000))
        taken = np.cumsum(sources[:, None] == np.arange(len(share)), axis=0)
        wanted = share * np.arange(1, 20_001)[:, None]
        assert np.abs(taken - wanted).max() < WITHIN


def test_whole_shares_keep_every_source_and_sum_up() -> None:
    assert whole_shares([1, 0, 3]) == [TOTAL // 4, 0, 3 * TOTAL // 4]
    shares = whole_shares([1.0, 1e-12, 0.0])
    assert sum(shares) == TOTAL
    assert shares[1:] == [1, 0]


PHASES = st.lists(
    st.tuples(st.integers(1, 400), st.lists(st.floats(0.05, 1.0), min_size=3, max_size=3)),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=40)
@given(PHASES, st.integers(0, 2**40))
def test_phases_begin_at_their_sample_and_no_row_comes_twice_in_a_pass(
    phases: list[tuple[int, list[float]]], seed: int
) -> None:
    ends = np.cumsum([length for length, _ in phases]).tolist()
    order = Order(
        ["a", "b", "c"],
        [50, 300, 301],
        [(end, weights) for end, (_, weights) in zip(ends, phases, strict=True)],
        seed,
    )
    last = ends[-1] + 200
    source, epoch, row = order.many(range(last))
    for number, (_, weights) in enumerate(phases):
        begin = 0 if number == 0 else ends[number - 1]
        stop = last if number == len(phases) - 1 else ends[number]
        for of, share in enumerate(np.array(weights) / sum(weights)):
            taken = np.cumsum(source[begin:stop] == of)
            assert np.abs(taken - share * np.arange(1, stop - begin + 1)).max() < WITHIN
    assert (order.taken(last) == np.bincount(source, minlength=3)).all()
    for of, n in enumerate(order.n_rows):
        mine = np.stack([epoch, row], 1)[source == of]
        assert (mine[:, 0] == np.arange(len(mine)) // n).all()
        assert len(np.unique(mine, axis=0)) == len(mine)


def test_samples_one_by_one_and_across_blocks_are_the_same() -> None:
    order = Order(["a", "b"], [5000, 3000], [(6000, [1, 2]), (9000, [2, 1])], seed=3)
    indices = [BLOCK - 2, BLOCK - 1, BLOCK, 5999, 6000, 3 * BLOCK, 1]
    together = list(zip(*(field.tolist() for field in order.many(indices)), strict=True))
    assert together == [tuple(order[i]) for i in indices]


def test_sources_without_weight_are_never_drawn() -> None:
    order = Order(["a", "b"], [5, 0], [(0, [1.0, 0.0])], seed=0)
    assert {order[i].source for i in range(100)} == {0}
    with pytest.raises(TrainingError, match="source b has weight"):
        Order(["a", "b"], [5, 0], [(0, [1.0, 0.5])], seed=0)


def test_phases_change_the_weights_and_go_on_where_the_last_one_stopped() -> None:
    order = Order(["a", "b"], [40, 40], [(30, [1.0, 0.0]), (60, [0.0, 1.0])], seed=3)
    samples = [order[i] for i in range(70)]
    assert [s.source for s in samples[:30]] == [0] * 30
    assert [s.source for s in samples[30:]] == [1] * 40, "the last phase goes on"
    assert len({s.row for s in samples[:30]}) == 30
    assert order.taken(45).tolist() == [30, 15]
