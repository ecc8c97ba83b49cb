"""Which blocks are main text: the share of a block's words that lie under a gold shingle.

Gold text and page are both cut into word 4-shingles; a word of the page counts as main text if one
of its shingles is in the gold. Short blocks, whose shingles reach into their neighbours, count as
well where they are a whole line of the gold. A page with no gold text, only segments that must or
must not be in it, labels the blocks that hold one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.extractor.scores import SHINGLE, words

if TYPE_CHECKING:
    from numpy.typing import NDArray

WHOLE_SEGMENT = 30
"""Characters from which a block that lies inside a segment takes its label."""


@dataclass(frozen=True)
class Labels:
    """Of one page's blocks: the share of main text, the words, and whether the label is known."""

    share: NDArray[np.float32]
    words: NDArray[np.int32]
    known: NDArray[np.bool_]


def gold_labels(texts: list[str], gold: str) -> Labels:
    """Labels from the full main text; blocks without a word stay unknown."""
    tokens = [words(text) for text in texts]
    counts = np.array([len(block) for block in tokens], np.int32)
    covered = _covered([word for block in tokens for word in block], words(gold))
    ends = np.concatenate(([0], np.cumsum(covered)))
    stops = np.cumsum(counts)
    share = ((ends[stops] - ends[stops - counts]) / np.maximum(counts, 1)).astype(np.float32)
    lines = {tuple(words(line)) for line in gold.split("\n")}
    for b, block in enumerate(tokens):
        if block and len(block) < 2 * SHINGLE and tuple(block) in lines:
            share[b] = 1.0
    return Labels(share, counts, counts > 0)


def _covered(page: list[str], gold: list[str]) -> NDArray[np.bool_]:
    """For each word of the page, whether it lies under a shingle of the gold."""
    wanted = {tuple(gold[i : i + SHINGLE]) for i in range(len(gold) - SHINGLE + 1)}
    covered = np.zeros(len(page), bool)
    for i in range(len(page) - SHINGLE + 1):
        if tuple(page[i : i + SHINGLE]) in wanted:
            covered[i : i + SHINGLE] = True
    return covered


def segment_labels(texts: list[str], must: list[str], must_not: list[str]) -> Labels:
    """Labels from segments; where a block holds one of each kind, the one that must be in wins."""
    share = np.full(len(texts), np.nan, np.float32)
    flat = [" ".join(text.split()) for text in texts]
    for segments, value in ((must_not, 0.0), (must, 1.0)):
        for segment in filter(None, (" ".join(s.split()) for s in segments)):
            for b, text in enumerate(flat):
                if segment in text or (len(text) > WHOLE_SEGMENT and text in segment):
                    share[b] = value
    counts = np.array([len(words(text)) for text in texts], np.int32)
    known = ~np.isnan(share)
    return Labels(np.nan_to_num(share), counts, known)
