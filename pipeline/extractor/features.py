"""Numbers about each block, for the first forest: its text, its place, its ancestors, its page.

No feature knows a site or a language. Each family of features has one kernel; the names stand in
the order of the columns, so that a model can be read and ablated.
Ideas: boilerpipe's text and link density with neighbours (Kohlschütter et al., WSDM 2010),
readability's scores, Web2Text's containers (Vogels et al., arXiv:1801.02607); all measured here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline.extractor import kernels
from pipeline.extractor.tallies import CHARS, LINKS, Tally, equal, of_size, tally
from pipeline.extractor.vocabulary import (
    B_CHARS,
    B_CJK,
    B_HASH,
    B_TAG,
    B_WORDS,
    GROUPS,
    HINT_NAMES,
    TAG_CODE,
    TAGS,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.extractor.page import Page

TAGS_ASKED = [
    "nav", "header", "footer", "aside", "article", "main", "section", "form", "table", "ul", "ol",
    "li", "figure", "blockquote", "pre", "a", "button", "label", "dl", "td", "th", "dd", "dt", "p",
    "h1", "h2", "h3", "h4", "span", "div", "tr", "figcaption", "details", "noscript",
]  # fmt: skip
TAG_BITS = np.array([1 << TAGS_ASKED.index(t) if t in TAGS_ASKED else 0 for t in TAGS], np.int64)
"""Of each tag code, the bit of the tag asked about."""
FAMILIES = {
    # the block's own text
    "own": "words bytes link_share links sentences commas digits capitals short_words word_length "
    "cjk after_br images bold ends_with starts_with title_share title_words copies",
    # where it stands in the page
    "place": "rel_index rel_bytes index depth heading since_heading words_since_heading from_h1 "
    "prose_before body_before",
    # steps up to the nearest ancestor that says so by a class name, or is such a tag
    "says": " ".join(f"says_{group}" for group in GROUPS),
    "inside": " ".join(f"in_{tag}" for tag in TAGS_ASKED) + " hidden",
    # the elements around it, nearest first, and the largest that is not the whole page
    "around": " ".join(
        f"up{k}_{what}"
        for k in range(kernels.LEVELS)
        for what in ("bytes", "links", "blocks", "prose", "share")
    ),
    "section": "section_share section_links section_prose section_index section_blocks "
    "section_sentences",
    # what looks like it
    "alike": "siblings0 siblings1 siblings2 siblings3 alike0 alike1 alike2 kin kin_words kin_links",
    "dense": "up_to_densest down_to_densest densest_share",
    # its neighbours in reading order
    "near": " ".join(
        f"near{step:+d}_{what}"
        for step in (*range(-kernels.REACH, 0), *range(1, kernels.REACH + 1))
        for what in ("words", "links", "sentences", "kind", "climb")
    ),
    # the page, the same for all its blocks
    "page": "page_blocks page_words page_links page_prose_share page_prose page_cjk page_h1 "
    "page_li page_repeats page_body_share",
    "page_says": " ".join(f"page_{group}" for group in GROUPS),
    "page_hints": " ".join(f"hint_{hint}" for hint in HINT_NAMES),
}  # fmt: skip
NAMES = tuple(name for names in FAMILIES.values() for name in names.split())
N_FEATURES = len(NAMES)


def _slices() -> dict[str, slice]:
    slices, start = {}, 0
    for family, names in FAMILIES.items():
        slices[family] = slice(start, start + len(names.split()))
        start = slices[family].stop
    return slices


AT = _slices()
"""The columns of each family."""
AGAIN = slice(AT["own"].start, AT["place"].stop)
"""The columns that the second forest looks at too."""
MIN_REPEATED = 40
"""Bytes of text below which a repeated element is decoration."""
LINK_SHARE = NAMES.index("link_share")
COMMENT = AT["says"].start + GROUPS.index("comment")


def block_features(page: Page, counts: Tally | None = None) -> NDArray[np.float32]:
    """`[features, blocks]`, one row a feature in the order of `NAMES`."""
    columns = np.zeros((N_FEATURES, len(page.blocks)), np.float32)
    if not len(page.blocks):
        return columns
    counts = counts or tally(page)
    rows, parent = page.blocks, page.parent
    copies = of_size(equal(page.blocks[:, B_HASH].view(np.uint64)))
    kernels.own(columns[AT["own"]], page.text, rows, copies)
    says_bytes = kernels.ancestors(
        columns[AT["says"]], columns[AT["inside"]], rows, parent, page.tag, page.bits, TAG_BITS
    )
    body = counts.prose & (columns[COMMENT] == kernels.FAR)
    kernels.place(columns[AT["place"]], rows, counts.depth, counts.prose, body)
    kernels.around(columns[AT["around"]], columns[AT["section"]], rows, parent, counts.sums)
    kernels.alike(columns[AT["alike"]], rows, parent, counts.siblings, counts.alike)
    kernels.kin(columns[AT["alike"]][-3:], rows, counts.kin, columns[LINK_SHARE])
    share = counts.sums[counts.densest, CHARS] / counts.sums[0, CHARS]
    kernels.dense(
        columns[AT["dense"]], rows, parent, counts.depth, counts.densest, counts.on_path, share
    )
    kernels.near(columns[AT["near"]], rows, parent, counts.depth, page.sig)
    columns[AT["page"]] = _page(page, counts, body)[:, None]
    columns[AT["page_says"]] = (says_bytes / counts.sums[0, CHARS])[:, None]
    columns[AT["page_hints"]] = (page.hints >> np.arange(len(HINT_NAMES)) & 1)[:, None]
    return columns


def _page(page: Page, counts: Tally, body: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The family `page`: totals, and the largest number of look-alike elements with text."""
    rows, n = page.blocks, len(page.blocks)
    words, tags = rows[:, B_WORDS], rows[:, B_TAG]
    total = counts.sums[0]
    all_words, prose = words.sum(), words[counts.prose].sum()
    repeats = counts.siblings[counts.sums[:, CHARS] > MIN_REPEATED]
    return np.array(
        [
            n,
            all_words,
            total[LINKS] / total[CHARS],
            prose / (all_words + 1),
            prose,
            rows[:, B_CJK].sum() / (rows[:, B_CHARS].sum() + 1),
            (tags == TAG_CODE["h1"]).sum(),
            (tags == TAG_CODE["li"]).sum() / n,
            repeats.max(initial=0),
            words[body].sum() / (prose + 1),
        ]
    )
