"""Forests: the compiled evaluation against LightGBM's own, the file, and files that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import GristmillError
from pipeline.extractor.forest import (
    DE_BRUIJN,
    TILE,
    Forest,
    dump,
    flatten,
    forest_of,
    parse,
    probabilities,
)

FEATURES = 6


def grow(seed: int, rounds: int, leaves: int, rows: int = 600) -> tuple[Any, np.ndarray]:
    """A booster of random numbers, many of them equal, and what it was grown on."""
    import lightgbm

    rng = np.random.default_rng(seed)
    x = rng.integers(0, 12, (rows, FEATURES)).astype(np.float32) / 3
    y = (x[:, 0] * x[:, 1] + rng.normal(0, 0.5, rows) > x[:, 2]).astype(int)
    settings = {
        "objective": "binary", "num_leaves": leaves, "min_data_in_leaf": 3, "num_threads": 1,
        "deterministic": True, "force_row_wise": True, "verbose": -1, "seed": seed,
    }  # fmt: skip
    return lightgbm.train(settings, lightgbm.Dataset(x, y), rounds), x


@pytest.mark.parametrize(("rounds", "leaves"), [(1, 2), (5, 7), (40, 32)])
def test_equals_lightgbm(rounds: int, leaves: int) -> None:
    booster, x = grow(1, rounds, leaves)
    ours = probabilities(np.ascontiguousarray(x.T), *flatten([booster]).compiled())
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, booster.predict(x), atol=2e-3)  # leaves are float16


def test_the_mean_of_boosters_is_one_forest() -> None:
    (a, x), (b, _) = grow(1, 10, 8), grow(2, 10, 8)
    ours = probabilities(np.ascontiguousarray(x.T), *flatten([a, b]).compiled())
    raw = (a.predict(x, raw_score=True) + b.predict(x, raw_score=True)) / 2
    np.testing.assert_allclose(ours, 1 / (1 + np.exp(-raw)), atol=2e-3)


@pytest.mark.parametrize("n", [0, 1, TILE - 1, TILE, TILE + 1, 3 * TILE])
def test_a_block_is_answered_alike_in_any_tile(n: int) -> None:
    booster, x = grow(3, 12, 16)
    compiled = flatten([booster]).compiled()
    many = probabilities(np.ascontiguousarray(x[np.arange(n) % len(x)].T), *compiled)
    alone = [
        probabilities(np.ascontiguousarray(x[i % len(x), :, None]), *compiled)[0]
        for i in range(0, n, 97)
    ]
    assert many.shape == (n,)
    np.testing.assert_array_equal(many[::97], np.array(alone, np.float32))


def test_a_value_at_the_threshold_goes_left() -> None:
    tree = Forest(*(np.array(a, t) for a, t in zip(
        ([0], [0.1], [1], [0], [1], [-1.0, 1.0]),
        (np.uint16, np.float32, np.uint8, np.uint16, np.uint8, np.float16), strict=True,
    )))  # fmt: skip
    x = np.array([[0.1, np.nextafter(np.float32(0.1), np.float32(1))]], np.float32)
    p = probabilities(x, *tree.compiled())
    assert p[0] < 0.5 < p[1]


def test_every_bit_has_a_slot_of_its_own() -> None:
    slots = {((1 << bit) * int(DE_BRUIJN) & 0xFFFFFFFF) >> 27 for bit in range(32)}
    assert slots == set(range(32))


def random_forest(draw: Any) -> Forest:
    """Any sound forest over `FEATURES` features."""
    n_cuts = draw(st.integers(1, 5))
    nodes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    left = []
    for n in nodes:
        open_leaves = [n + 1]
        while open_leaves:
            leaves = open_leaves.pop()
            if leaves > 1:
                left.append(draw(st.integers(1, leaves - 1)))
                open_leaves += [leaves - left[-1], left[-1]]
    total = sum(nodes)
    number = st.floats(-4, 4, width=16)

    def several(what: st.SearchStrategy[Any], n: int) -> list[Any]:
        return list(draw(st.lists(what, min_size=n, max_size=n)))

    return Forest(
        np.array(several(st.integers(0, FEATURES - 1), n_cuts), np.uint16),
        np.array(several(number, n_cuts), np.float32),
        np.array(nodes, np.uint8),
        np.array(several(st.integers(0, n_cuts - 1), total), np.uint16),
        np.array(left, np.uint8),
        np.array(several(number, total + len(nodes)), np.float16),
    )


def walk(forest: Forest, x: np.ndarray) -> float:
    """The sum of the leaves reached, node by node."""
    total, node, leaf = 0.0, 0, 0
    for n in forest.nodes:
        low, high, at = 0, int(n) + 1, node
        while high - low > 1:
            cut = forest.cut[at]
            middle = low + int(forest.left[at])
            if x[forest.cut_feature[cut]] <= forest.cut_value[cut]:
                high, at = middle, at + 1
            else:
                at += middle - low  # the nodes of the left side are one fewer than its leaves
                low = middle
        total += float(forest.leaf[leaf + low])
        node, leaf = node + int(n), leaf + int(n) + 1
    return total


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_masks_reach_the_leaf_that_a_walk_reaches(data: st.DataObject) -> None:
    forest = random_forest(data.draw)
    cells = st.lists(st.floats(-5, 5, width=16), min_size=FEATURES, max_size=FEATURES)
    x = np.array(data.draw(cells), np.float32)
    p = probabilities(x[:, None], *forest.compiled())[0]
    assert p == pytest.approx(1 / (1 + np.exp(-walk(forest, x))), abs=1e-5)


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_file_gives_back_its_forests(data: st.DataObject) -> None:
    forest = random_forest(data.draw)
    packed = dump({"one": forest}, made_for=np.arange(3))
    assert packed == dump({"one": forest}, made_for=np.arange(3))
    arrays = parse(packed, "m.npz")
    again = forest_of(arrays, "one", FEATURES, "m.npz")
    for name in Forest.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(forest, name), getattr(again, name))
    assert arrays["made_for"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", b"no archive at all", b"\x93NUMPY\x01\x00"]
)
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(GristmillError, match=r"m\.npz is no extractor model") as caught:
        parse(content, "m.npz")
    assert "gristmill extractor train" in str(caught.value)


def test_an_archive_without_forests_is_refused() -> None:
    with pytest.raises(GristmillError, match=r"has no array 'first\.cut_feature'"):
        forest_of(parse(dump({}, x=np.zeros(2)), "m.npz"), "first", FEATURES, "m.npz")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cut_feature", FEATURES), ("cut", 9999), ("nodes", 200), ("left", 0), ("left", 9),
        ("leaf", None), ("nodes", None),
    ],
)  # fmt: skip
def test_a_forest_that_would_read_outside_is_refused(field: str, value: int | None) -> None:
    booster, _ = grow(1, 3, 8)
    arrays = parse(dump({"first": flatten([booster])}), "m.npz")
    array = arrays[f"first.{field}"]
    arrays[f"first.{field}"] = array[:0] if value is None else np.full_like(array, value)
    with pytest.raises(GristmillError, match="does not fit the 6 features"):
        forest_of(arrays, "first", FEATURES, "m.npz")
