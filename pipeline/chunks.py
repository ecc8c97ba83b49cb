"""Tokens of runs of characters between blanks, as spaCy's English tokenizer cuts them.

Ninety-nine runs in a hundred are cut by `pipeline.chunk_kernels`, which has the tokenizer's rules
compiled, at a hundredth of the cost; the rest goes to spaCy. The tables that the kernels read are
made from spaCy's own lists, so that they follow its version.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import chunk_kernels as kernels
from pipeline.word_kernels import table_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

PLANE = 0x10000
"""Code points that have a class; a run with one beyond goes to spaCy."""


@contextmanager
def without_torch() -> Iterator[None]:
    """Hide torch from what is imported inside, unless it is there already.

    spaCy's machine learning imports it where it is installed: a second and 180 MiB of each worker
    for models that a tokenizer does not have.
    """
    if "torch" in sys.modules:
        yield
        return
    hidden: Any = None
    sys.modules["torch"] = hidden
    try:
        yield
    finally:
        del sys.modules["torch"]


@dataclass(frozen=True)
class Rules:
    """What `chunk_kernels.cut_runs` needs to know."""

    kinds: NDArray[np.uint16]  # [PLANE] classes of each code point
    units: NDArray[np.int64]  # [n, LONGEST_UNIT]
    specials: NDArray[np.uint64]  # table of hashes; see kernels.special
    longest: int  # characters of the longest special case


class ChunkTokenizer:
    """spaCy's tokenizer, without what the words of the filters do not need."""

    def __init__(self) -> None:
        with without_torch():
            import spacy
            from spacy.pipeline import Sentencizer

        self._nlp = spacy.blank("en")
        # shape, prefix, lower case, ... of each new word: a third of the time, and not needed
        self._nlp.vocab.lex_attr_getters = {}
        self.sentence_ends = frozenset(Sentencizer.default_punct_chars)

    @cached_property
    def _rules(self) -> Rules:
        return rules_of(self._nlp.tokenizer)

    def memory_zone(self) -> AbstractContextManager[object]:
        """What spaCy learns inside is forgotten at the end, else it keeps every string."""
        zone: AbstractContextManager[object] = self._nlp.memory_zone()
        return zone

    def tokens(self, chunk: str) -> list[str]:
        """The tokens of one run; joined they are the run."""
        data = chunk.encode()
        ends, _ = self.cut(np.frombuffer(data, np.uint8), np.zeros(1, int), np.array([len(data)]))
        bounds = [0, *ends.tolist()]
        return [data[a:b].decode() for a, b in pairwise(bounds)]

    def cut(
        self, buffer: NDArray[np.uint8], begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the tokens of each run end, in bytes of `buffer`, and how many tokens each run has.

        `begins, ends` [n_runs]: runs without blanks, in whole UTF-8 characters.
        """
        counts = np.empty(len(begins), np.int64)
        out = np.empty(int((ends - begins).sum()), np.int64)
        rules = self._rules
        n = kernels.cut_runs(
            buffer, begins, ends, rules.kinds, rules.units, rules.specials, rules.longest, counts,
            out,
        )  # fmt: skip
        refused = np.flatnonzero(counts == kernels.REFUSED)
        if not len(refused):
            return out[:n], counts
        places: list[int] = []
        with self.memory_zone():
            for r in refused.tolist():
                first = len(places)
                places += self._ask(buffer[begins[r] : ends[r]].tobytes(), int(begins[r]))
                counts[r] = len(places) - first
        both = np.empty(int(counts.sum()), np.int64)
        asked = np.zeros(len(counts), np.bool_)
        asked[refused] = True
        from_spacy = np.repeat(asked, counts)
        both[from_spacy], both[~from_spacy] = places, out[:n]
        return both, counts

    def _ask(self, run: bytes, at: int) -> Iterable[int]:
        for token in self._nlp.tokenizer(run.decode()):
            at += len(token.text.encode())
            yield at


def rules_of(tokenizer: Any) -> Rules:
    """The tables of an English tokenizer of spaCy."""
    from spacy.lang.char_classes import LIST_UNITS

    units = np.zeros((len(LIST_UNITS), kernels.LONGEST_UNIT), np.int64)
    for k, unit in enumerate(LIST_UNITS):
        units[k, : len(unit)] = [ord(c) for c in unit]
    bare = type(tokenizer)(
        tokenizer.vocab,
        prefix_search=tokenizer.prefix_search,
        suffix_search=tokenizer.suffix_search,
        infix_finditer=tokenizer.infix_finditer,
        url_match=tokenizer.url_match,
    )
    affixes = (tokenizer.find_prefix, tokenizer.find_infix, tokenizer.find_suffix)
    cases = [case for case in tokenizer.rules if len(case) > 1]  # of one character: itself
    hashes, values = [], []
    for case in cases:
        points = np.array([ord(c) for c in case])
        hashes.append(kernels.hash_points(points, 0, len(points)))
        looked_for = any(find(case) for find in affixes)
        values.append(1 + (len(bare(case)) if looked_for else 0))
    specials = table_of(np.array(hashes, np.uint64), np.array(values, np.uint64))
    return Rules(_kinds(), units, specials, max(map(len, cases)))


def _kinds() -> NDArray[np.uint16]:
    """Classes of all code points of the basic plane, from spaCy's lists of characters."""
    from spacy.lang import char_classes as lists

    # the pieces that are one character; "..", "US$" and the like are written out in the kernels
    single = [re.sub(r"^\\", "", p) for p in [*lists.LIST_PUNCT, *lists.LIST_QUOTES, "…"]]
    money = [re.sub(r"^\\", "", piece) for piece in lists.LIST_CURRENCY]
    splits = "".join(map(re.escape, filter(lambda p: len(p) == 1, single))) + lists.ICONS
    currency = "".join(re.escape(p) for p in money if len(p) == 1)
    before_dot = f"0-9{lists.ALPHA_LOWER}%²\\-\\+{lists.PUNCT}(?:{lists.CONCAT_QUOTES})"
    classes = (
        (kernels.ALPHA, lists.ALPHA), (kernels.LOWER, lists.ALPHA_LOWER),
        (kernels.UPPER, lists.ALPHA_UPPER), (kernels.DIGIT, "0-9"), (kernels.SPLITS, splits),
        (kernels.STARTS, "§%=—–" + currency), (kernels.ENDS, "—–"),
        (kernels.ICON, lists.ICONS + "…"), (kernels.QUOTE, lists.CONCAT_QUOTES),
        (kernels.BEFORE_DOT, before_dot), (kernels.CURRENCY, currency),
    )  # fmt: skip
    plane = "".join(map(chr, range(PLANE)))
    kinds = np.zeros(PLANE, np.uint16)
    for bit, members in classes:
        for match in re.finditer(f"[{members}]+", plane):
            kinds[match.start() : match.end()] |= bit
    return kinds
