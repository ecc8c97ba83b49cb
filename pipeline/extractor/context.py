"""What the second forest sees: the first one's answers around the block.

A block alone may be unsure; the paragraphs before and after it, the others in its containers and
those in look-alike places (all replies of a thread, all prices of a list) seldom are. One pass of
stacking (Wolpert 1992; for web pages Web2Text, arXiv:1801.02607, smooths with a Markov model).
The first forest's answers in training come from folds that have not seen the page's host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.extractor import context_kernels as kernels
from pipeline.extractor import features
from pipeline.extractor.choice import keep
from pipeline.extractor.vocabulary import B_NODE, B_TAG, B_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.extractor.page import Page
    from pipeline.extractor.tallies import Tally

MAX_WORDS = 200.0
"""A block weighs as many words as it has, up to this, plus one."""
FAMILIES = {
    # in reading order
    "near": (
        "p",
        *(f"p{step:+d}" for step in kernels.STEPS),
        *(f"p_window{width}" for width in kernels.WINDOWS),
    ),
    # in the elements around it, in look-alike places, in the page
    "around": (
        "p_up1", "p_up2", "p_up3", "p_kin", "p_page", "p_page_words", "p_before", "since_first",
        "until_last",
    ),
    # in the elements before and after the one around it, and the one around that
    "beside": ("p_before_up1", "p_after_up1", "p_before_up2", "p_after_up2"),
    # under its heading, of the heading itself, under the headings before and after
    "headed": ("p_headed", "p_heading", "p_headed_before", "p_headed_after"),
    # where the first forest alone would cut, and the run of kept (or not kept) blocks it is in
    "cut": ("cut", "p_over_cut", "run_words", "run_share", "since_kept", "until_kept"),
    # the deepest elements that hold half, and most, of the expected main text
    "main": ("in_half", "climb_half", "in_most", "climb_most", "most_share"),
}  # fmt: skip
NAMES = (
    *features.NAMES[features.AGAIN],
    *(name for names in FAMILIES.values() for name in names),
)


def context_features(
    p: NDArray[np.float32], columns: NDArray[np.float32], page: Page, counts: Tally
) -> NDArray[np.float32]:
    """`[features, blocks]`, in the order of `NAMES`, from the probabilities of a page's blocks.

    The block's own text and place (of its `columns`) are looked at again, its elements and page are
    not: the first forest's answers hold what they say, and with all of them the second one learns
    pages by heart (page F1 0.8435 without, 0.8424 with, log loss 0.241 and 0.253).
    """
    again = columns[features.AGAIN]
    out = np.zeros((len(NAMES), len(p)), np.float32)
    out[: len(again)] = again
    if not len(p):
        return out
    node, words = page.blocks[:, B_NODE], page.blocks[:, B_WORDS]
    weight = np.minimum(words, MAX_WORDS) + 1.0
    up = kernels.sums_up(p, weight, node, page.parent)
    near, around, beside, headed, cut, main = _views(out[len(again) :])
    kernels.near(near, p, weight)
    kernels.around(around, p, weight, node, page.parent, up, counts.kin)
    kernels.beside(beside, node, page.parent, up)
    kernels.headed(headed, p, weight, page.blocks[:, B_TAG])
    kernels.cut(cut, p, weight, keep(p, words))
    kernels.main(main, node, page.parent, counts.depth, up)
    return out


def _views(columns: NDArray[Any]) -> list[NDArray[Any]]:
    """The rows of each family."""
    ends = np.cumsum([len(names) for names in FAMILIES.values()])
    return np.split(columns, ends[:-1])
