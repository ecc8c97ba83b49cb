"""Boosted trees as flat arrays: a compact file, and an evaluation that has no branch in it.

A walk down a tree waits for memory and mispredicts at each node. Here every node of a tree is asked
about a whole tile of blocks at once, and each answer strikes out leaves: one bit a leaf, the lowest
bit left is the leaf reached (QuickScorer, Lucchese et al., SIGIR 2015). The inner loop runs over
neighbouring blocks of one feature, so the compiler makes it vectors. No LightGBM at run time.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.compiled import kernel
from pipeline.errors import GristmillError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_LEAVES = 32
"""Leaves of a tree: the bits of a mask."""
TILE = 256
"""Blocks a tile: its columns of all features stay in the second cache (220 KB)."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time in every archive, so that equal forests are equal files."""
DE_BRUIJN = np.uint32(0x077CB531)
ALL = np.uint32(0xFFFFFFFF)
FIELDS = {
    "cut_feature": np.uint16,
    "cut_value": np.float32,
    "nodes": np.uint8,
    "cut": np.uint16,
    "left": np.uint8,
    "leaf": np.float16,
}


@dataclass(frozen=True)
class Forest:
    """The sum of trees over features, as it is stored and as it is evaluated.

    Stored: `cut_feature, cut_value [cuts]` are the distinct questions; `nodes [trees]` how many a
    tree asks; `cut, left [all nodes]`, in preorder, which question and how many leaves lie on its
    left; `leaf [all leaves]` the values, from left to right.
    """

    cut_feature: NDArray[np.uint16]
    cut_value: NDArray[np.float32]
    nodes: NDArray[np.uint8]
    cut: NDArray[np.uint16]
    left: NDArray[np.uint8]
    leaf: NDArray[np.float16]

    def compiled(self) -> tuple[NDArray[Any], ...]:
        """The arguments of `probabilities` after the features."""
        start = np.concatenate(([0], np.cumsum(self.nodes, dtype=np.int64))).astype(np.int32)
        mask = np.zeros(len(self.cut), np.uint32)
        values = np.zeros((len(self.nodes), MAX_LEAVES), np.float32)
        for tree, (low, high) in enumerate(pairwise(start)):
            mask[low:high] = _masks(self.left[low:high])
            leaves = self.leaf[low + tree : high + tree + 1]
            for bit, value in enumerate(leaves):
                values[tree, _slot(bit)] = value
        return start, self.cut_feature[self.cut], self.cut_value[self.cut], mask, values


def _slot(bit: int) -> int:
    """Where the value of a leaf lies, so that the evaluation finds it without a logarithm."""
    return ((1 << bit) * int(DE_BRUIJN) & 0xFFFFFFFF) >> 27


def _is_tree(left: NDArray[np.uint8]) -> bool:
    """Whether every node has leaves on both sides, and the nodes are as many as that takes."""
    open_leaves = [len(left) + 1]
    for n_left in left:
        leaves = open_leaves.pop() if open_leaves else 0
        if not 0 < n_left < leaves:
            return False
        open_leaves += [n for n in (leaves - int(n_left), int(n_left)) if n > 1]
    return True


def _masks(left: NDArray[np.uint8]) -> list[int]:
    """Of each node, the leaves that stay when the answer is "above": all but those on its left."""
    masks = []
    open_ranges = [(0, len(left) + 1)]  # leaves under the nodes that are still to come
    for n_left in left:
        first, last = open_ranges.pop()
        middle = first + int(n_left)
        masks.append(int(ALL) & ~((1 << middle) - (1 << first)))
        open_ranges += [(a, b) for a, b in ((middle, last), (first, middle)) if b - a > 1]
    return masks


def flatten(boosters: Sequence[Any]) -> Forest:
    """The mean of LightGBM boosters (binary objective, at most 32 leaves a tree) as one forest.

    Thresholds are rounded down to float32, which keeps `x <= threshold` exact for float32 features;
    leaf values are rounded to float16.
    """
    nodes: list[int] = []
    questions: list[tuple[int, np.float32]] = []
    left: list[int] = []
    leaves: list[float] = []

    def walk(node: Mapping[str, Any]) -> int:
        """Append the nodes and leaves under a node; how many leaves these are."""
        if "split_feature" not in node:
            leaves.append(node["leaf_value"] / len(boosters))
            return 1
        at = len(left)
        questions.append((node["split_feature"], _float_below(node["threshold"])))
        left.append(0)
        left[at] = walk(node["left_child"])
        return left[at] + walk(node["right_child"])

    for booster in boosters:
        for tree in booster.dump_model()["tree_info"]:
            before = len(left)
            walk(tree["tree_structure"])
            nodes.append(len(left) - before)
    cuts = sorted(set(questions))
    number = {cut: i for i, cut in enumerate(cuts)}
    columns = (
        [feature for feature, _ in cuts],
        [value for _, value in cuts],
        nodes,
        [number[question] for question in questions],
        left,
        leaves,
    )
    return Forest(*(np.array(c, t) for c, t in zip(columns, FIELDS.values(), strict=True)))


def _float_below(threshold: float) -> np.float32:
    value = np.float32(threshold)
    return value if float(value) <= threshold else np.nextafter(value, np.float32(-np.inf))


def dump(forests: Mapping[str, Forest], **extra: NDArray[Any]) -> bytes:
    """The bytes of an .npz with the arrays `<forest>.<field>` and what else is given.

    `numpy.savez` writes the clock into the archive; here equal forests give equal bytes.
    """
    arrays = {
        f"{name}.{field}": getattr(f, field) for name, f in forests.items() for field in FIELDS
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in sorted({**arrays, **extra}.items()):
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content.getvalue())
    return packed.getvalue()


def parse(data: bytes, source: str) -> dict[str, NDArray[Any]]:
    """The arrays of a model file. GristmillError, naming `source`, where it is none."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        why = "no archive of arrays" if isinstance(error, ValueError) else error
        message = f"{source} is no extractor model ({why})"
        raise GristmillError(message, hint="`gristmill extractor train` writes one") from error


def forest_of(
    arrays: Mapping[str, NDArray[Any]], name: str, n_features: int, source: str
) -> Forest:
    """One forest of a model file. GristmillError where it is absent or damaged."""
    try:
        forest = Forest(*(arrays[f"{name}.{f}"].astype(t) for f, t in FIELDS.items()))
    except KeyError as error:
        message = f"{source} has no array {error}: it is no extractor model"
        raise GristmillError(message, hint="`gristmill extractor train` writes one") from error
    if not _sound(forest, n_features):
        message = f"{source}: the {name} forest does not fit the {n_features} features of a block"
        raise GristmillError(
            message, hint="train the model again with this version: `gristmill extractor train`"
        )
    return forest


def _sound(forest: Forest, n_features: int) -> bool:
    """Whether no index of a forest leaves its arrays: the evaluation does not check."""
    ends = np.cumsum(forest.nodes, dtype=np.int64)
    n_nodes = int(ends[-1]) if len(ends) else 0
    return bool(
        len(forest.nodes)
        and forest.nodes.max() < MAX_LEAVES
        and len(forest.cut) == len(forest.left) == n_nodes
        and len(forest.leaf) == n_nodes + len(forest.nodes)
        and len(forest.cut_feature) == len(forest.cut_value)
        and (not n_nodes or forest.cut.max() < len(forest.cut_feature))
        and (not n_nodes or forest.cut_feature.max() < n_features)
        and all(map(_is_tree, np.split(forest.left, ends[:-1])))
    )


@kernel
def probabilities(
    columns: Any, start: Any, feature: Any, threshold: Any, mask: Any, values: Any
) -> Any:
    """Probability of each block, float32 `[blocks]`, from features `[features, blocks]`."""
    n = columns.shape[1]
    out = np.zeros(n, np.float32)
    live = np.empty(TILE, np.uint32)
    for low in range(0, n, TILE):
        size = min(TILE, n - low)
        for tree in range(len(start) - 1):
            for b in range(size):
                live[b] = ALL
            for node in range(start[tree], start[tree + 1]):
                column = columns[feature[node], low : low + size]
                limit, stays = threshold[node], mask[node]
                for b in range(size):
                    live[b] &= stays if column[b] > limit else ALL
            value = values[tree]
            for b in range(size):
                lowest = live[b] & (~live[b] + np.uint32(1))
                out[low + b] += value[np.uint32(lowest * DE_BRUIJN) >> np.uint32(27)]
    for b in range(n):
        out[b] = np.float32(1.0) / (np.float32(1.0) + np.exp(-out[b]))
    return out
