"""Which blocks of a page are its main text: the model's forests, its file, comments.

Two forests give each block a probability, the second with the first one's answers before it;
`choice` says which blocks that makes main text.
"""

from __future__ import annotations

from dataclasses import dataclass
from errno import EISDIR
from functools import lru_cache
from os import strerror
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xxhash

from pipeline.config.extract import SHIPPED_MODEL
from pipeline.errors import GristmillError, UsageError
from pipeline.extractor import context, features, forest, kernels
from pipeline.extractor.choice import keep, once
from pipeline.extractor.tallies import tally
from pipeline.extractor.vocabulary import B_FIRST, B_HASH, B_WORDS, GROUPS, HINT_ARTICLE, HINT_FORUM
from pipeline.extractor.whole import complete

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.extractor.page import Page

FIRST, SECOND, MADE_FOR = "first", "second", "made_for"
"""Arrays of a model file: two forests, and what they were made for."""

COMMENT = 1 << GROUPS.index("comment")


@dataclass(frozen=True)
class Model:
    """The two forests, as arguments of `forest.probabilities`."""

    first: tuple[NDArray[Any], ...]
    second: tuple[NDArray[Any], ...]

    def __call__(self, page: Page) -> NDArray[np.float32]:
        """Probability of each block, `[blocks]`."""
        counts = tally(page)
        columns = features.block_features(page, counts)
        p = forest.probabilities(columns, *self.first)
        around = context.context_features(p, columns, page, counts)
        return forest.probabilities(around, *self.second)


def feature_key() -> NDArray[np.uint64]:
    """A hash of the features' names and order, kept in a model: it fits no others."""
    names = "\n".join((*features.NAMES, *context.NAMES))
    return np.array([xxhash.xxh3_64_intdigest(names.encode())], np.uint64)


def pack(first: forest.Forest, second: forest.Forest) -> bytes:
    """The bytes of a model file."""
    return forest.dump({FIRST: first, SECOND: second}, **{MADE_FOR: feature_key()})


def unpack(data: bytes, source: str) -> Model:
    """The model in a file's bytes. GristmillError, naming `source`, where it holds none."""
    arrays = forest.parse(data, source)
    if not np.array_equal(arrays.get(MADE_FOR, np.empty(0)), feature_key()):
        message = f"{source} is no extractor model of this version: its features are others"
        raise GristmillError(message, hint="make one with `gristmill extractor train`")
    counts = features.N_FEATURES, len(context.NAMES)
    forests = (
        forest.forest_of(arrays, name, n, source).compiled()
        for name, n in zip((FIRST, SECOND), counts, strict=True)
    )
    return Model(*forests)


def load_model(path: Path | None = None) -> Model:
    """The model of a file, by default the shipped one; read again only when the file changed.

    UsageError where the file is absent, GristmillError where it is no model.
    """
    path = path or SHIPPED_MODEL
    try:
        state = path.stat()
        if path.is_dir():
            raise IsADirectoryError(EISDIR, strerror(EISDIR))
    except OSError as error:
        message = f"the extractor model {path} cannot be read ({error.strerror})"
        raise UsageError(message, hint="`gristmill extractor train` writes one") from error
    return _loaded(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=4)
def _loaded(path: Path, _changed: int, _size: int) -> Model:
    return unpack(path.read_bytes(), str(path))


def probabilities(page: Page, model: Model | None = None) -> NDArray[np.float32]:
    """How likely each block is main text, `[blocks]`."""
    return (model or load_model())(page)


def kept_blocks(
    page: Page, comments: Literal["keep", "drop"] = "keep", model: Model | None = None
) -> NDArray[np.bool_]:
    """Whether each block is main text, `[blocks]`.

    `comments="drop"` leaves out what stands in a comment section where the page says that it is an
    article and does not say that it is a forum: there, comments are the text.
    """
    return kept_of(page, probabilities(page, model), comments)


def kept_of(
    page: Page, p: NDArray[np.float32], comments: Literal["keep", "drop"]
) -> NDArray[np.bool_]:
    """As `kept_blocks`, from probabilities that are known."""
    if comments == "drop" and is_article(page):
        p = np.where(in_comments(page), np.float32(0), p)
    words = page.blocks[:, B_WORDS]
    p = once(p, words, page.blocks[:, B_HASH])
    kept = keep(p, words)
    return complete(page.blocks, page.parent, page.tag, page.bits, page.number, p, kept)


def is_article(page: Page) -> bool:
    """Whether the page calls itself an article, and not a forum (schema.org, Open Graph)."""
    return bool(page.hints & HINT_ARTICLE) and not page.hints & HINT_FORUM


def in_comments(page: Page) -> NDArray[np.bool_]:
    """Whether an element around the block says that it holds comments, `[blocks]`."""
    above = kernels.inherited(page.bits, page.parent)
    return above[page.blocks[:, B_FIRST]] & COMMENT != 0
