"""Words of documents, as integers: what the word rules of the filters count.

The words are those of spaCy's English tokenizer (`spacy.blank("en")`), which the published filters
were run with (datatrove 0.10.1). It works on each run of characters between blanks by itself, so
every distinct run is tokenised once (`pipeline.chunks`), its tokens are kept in a table, and a
document is put together by copying numbers: the same tokens at many times the speed.

In documents written mostly in a script without blanks between words, the runs are segmented first
(`pipeline.segment`). Such characters in other documents, and documents that are told to be English,
stay as the tokenizer has them: there the published filters never segment.
"""

from __future__ import annotations

import sys
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline import word_kernels as kernels
from pipeline.chunks import ChunkTokenizer
from pipeline.segment import cut

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl
    from numpy.typing import NDArray

UNSPACED_SHARE = 0.2
"""A document whose characters are to more than a fifth of such a script is segmented."""

FIRST_SLOTS = 1 << 14
MOST_KNOWN = 1 << 21
"""Runs and tokens of runs that are remembered at least (some 80 MB of English text, 175 MiB of
memory); with more, all are forgotten, so that memory is the same after any number of documents."""


def _characters(ranges: str) -> frozenset[str]:
    bounds = [span.split("-") for span in ranges.split()]
    return frozenset(chr(c) for b in bounds for c in range(int(b[0], 16), int(b[-1], 16) + 1))


TERMINAL_PUNCTUATION = _characters(
    "21 2e 3f 589 61d-61f 6d4 700-702 7f9 837 839 83d-83e 964-965 104a-104b 1362 1367-1368 "
    "166e 1735-1736 17d4-17d6 17d9-17da 1803 1809 1944-1945 1aa8-1aab 1b5a-1b5b 1b5e-1b5f "
    "1b7d-1b7e 1c3b-1c3c 1c7e-1c7f 203c-203d 2047-2049 2e2e 2e3c 2e53-2e54 3002 a4ff "
    "a60e-a60f a6f3 a6f7 a876-a877 a8ce-a8cf a92f a9c8-a9c9 aa5d-aa5f aaf0-aaf1 abeb fe52 "
    "fe56-fe57 ff01 ff0e ff1f ff61 10a56-10a57 10f55-10f59 10f86-10f89 11047-11048 "
    "110be-110c1 11141-11143 111c5-111c6 111cd 111de-111df 11238-11239 1123b-1123c 112a9 "
    "1144b-1144c 115c2-115c3 115c9-115d7 11641-11642 1173c-1173e 11944 11946 11a42-11a43 "
    "11a9b-11a9c 11c41-11c42 11ef7-11ef8 11f43-11f44 16a6e-16a6f 16af5 16b37-16b38 16b44 "
    "16e98 1bc9f 1da88"
)
"""Ends of sentences in all scripts: Unicode's Sentence_Terminal as the FineWeb rules have it."""

PUNCTUATION = TERMINAL_PUNCTUATION | _characters(
    "0-8 b-1f 21-2f 3a-40 5b-60 7b-9f ab b4 bb 2013-2014 2019 201c-201e 2026 2236 2501 25ba "
    "3001-3002 3008-300d 3010-3011 ff01 ff05 ff08-ff09 ff0c ff0e ff11 ff1a-ff1b ff1f ff5e"
)
"""What does not make a word by itself, as the published Gopher rules have it (datatrove)."""


@dataclass(frozen=True)
class Texts:
    """Texts of a batch in one buffer: UTF-8 bytes [n_bytes], offsets int64 [n + 1]."""

    buffer: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1


def texts_of(series: pl.Series) -> Texts:
    """The bytes of a column of strings, without a copy where that is possible. Null is empty."""
    array = series.fill_null("").rechunk().to_arrow()
    _, offsets, data = array.buffers()
    width = np.dtype(np.int64 if str(array.type).startswith("large") else np.int32)
    begin, end = array.offset, array.offset + len(array) + 1
    bounds = np.frombuffer(offsets, width)[begin:end].astype(np.int64)
    buffer = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Texts(buffer[bounds[0] : bounds[-1]], bounds - bounds[0])


def series_of(texts: Texts) -> pl.Series:
    """The column of strings whose bytes these are; they must be whole characters."""
    import polars as pl
    import pyarrow as pa

    buffers = [None, pa.py_buffer(texts.offsets), pa.py_buffer(texts.buffer)]
    array = pa.Array.from_buffers(pa.large_string(), len(texts), buffers)
    series = pl.from_arrow(array)
    assert isinstance(series, pl.Series)
    return series.alias("text")


def joined(pieces: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pieces in one buffer, and where each begins [n + 1]."""
    return np.frombuffer(b"".join(pieces), np.uint8), np.cumsum([0, *map(len, pieces)])


def spacing_of(texts: Texts) -> NDArray[np.uint8]:
    """SPACED, KANA or UNSPACED for each document, by the script of its characters."""
    spacing = np.zeros(len(texts), np.uint8)
    kernels.spacing(texts.buffer, texts.offsets, UNSPACED_SHARE, spacing)
    return spacing


@dataclass(frozen=True)
class Vocabulary:
    """What is known of each distinct token [n_tokens]."""

    lengths: NDArray[np.int32]  # characters
    flags: NDArray[np.uint8]  # bits: HAS_WORD_CHARACTER, HAS_LETTER, ENDS_SENTENCE, IS_PUNCTUATION
    sums: NDArray[np.uint64]  # hash of the bytes; see word_kernels.describe
    powers: NDArray[np.uint64]
    inverses: NDArray[np.uint64]

    @classmethod
    def of(cls, n: int) -> Vocabulary:
        """Room for `n` tokens."""
        hashes = (np.empty(n, np.uint64) for _ in range(3))
        return cls(np.empty(n, np.int32), np.empty(n, np.uint8), *hashes)

    def __add__(self, more: Vocabulary) -> Vocabulary:
        return Vocabulary(
            *(np.concatenate([mine, more.__dict__[k]]) for k, mine in self.__dict__.items())
        )


@dataclass(frozen=True)
class Words:
    """The tokens of a batch of documents."""

    tokens: NDArray[np.int32]  # numbers into the vocabulary
    offsets: NDArray[np.int64]  # [n_documents + 1]
    breaks: NDArray[np.int64]  # [n_documents] sentence starts after the first of each line
    spacing: NDArray[np.uint8]  # [n_documents] SPACED, KANA or UNSPACED
    vocabulary: Vocabulary
    table: NDArray[np.uint64]  # of (hash, number) of tokens; may know later ones too

    def counts(self) -> NDArray[np.int64]:
        """Tokens per document."""
        return np.diff(self.offsets)

    def number(self, word: str) -> int:
        """The number of a token, -1 for one that the vocabulary does not have."""
        data = np.frombuffer(word.encode(), np.uint8)
        digest = np.empty(1, np.uint64)
        kernels.hash_spans(data, np.array([[0, len(data)]]), digest)
        found = int(kernels.find(self.table, digest[0]))
        return found if found < len(self.vocabulary.lengths) else -1

    def numbers(self, words: Iterable[str]) -> NDArray[np.int16]:
        """Per token of the vocabulary: which of `words` it is, -1 for none."""
        found = np.full(len(self.vocabulary.lengths), -1, np.int16)
        for k, word in enumerate(words):
            if (number := self.number(word)) >= 0:
                found[number] = k
        return found


class HashTable:
    """Numbers things by their hashes, in the order in which they are first seen."""

    def __init__(self) -> None:
        self.rows = np.zeros((FIRST_SLOTS, 2), np.uint64)
        self.known = 0

    def number(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The number of each hash, and the positions of those that were new, in order."""
        ids = np.empty(len(hashes), np.int32)
        new = np.empty(len(hashes), np.int64)
        first, done = self.known, 0
        while True:
            limit, at = len(self.rows) // 2, self.known - first
            done, self.known = kernels.look_up(
                hashes, done, self.rows, self.known, limit, ids, new[at:]
            )
            if done == len(hashes):
                return ids, new[: self.known - first]
            larger = np.zeros((2 * len(self.rows), 2), np.uint64)
            kernels.rehash(self.rows, larger)
            self.rows = larger


class Tokenizer:
    """spaCy's tokenizer behind a table of the runs it has seen. One per process."""

    def __init__(self, *, most_known: int = MOST_KNOWN) -> None:
        self._chunks = ChunkTokenizer()
        self._most_known = most_known
        self._kinds = np.zeros(sys.maxunicode + 1, np.uint8)
        self.clear()

    def clear(self) -> None:
        """Forget all runs and tokens, so that memory stays bounded."""
        self._runs, self._tokens = HashTable(), HashTable()
        self._starts = np.zeros(1, np.int64)
        self._run_tokens = np.zeros(0, np.int32)
        self._vocabulary = Vocabulary.of(0)

    @property
    def known(self) -> int:
        """Tokens of all runs that are remembered, and the runs: what memory grows with."""
        return len(self._run_tokens) + len(self._starts)

    def words(self, texts: Texts, spacing: NDArray[np.uint8] | None = None) -> Words:
        """The tokens of every document.

        `spacing` per document: what `spacing_of` says unless the caller knows better.
        """
        n = len(texts)
        if self.known > self._most_known:
            self.clear()
        if spacing is None:
            spacing = spacing_of(texts)
        most = n + _blanks(texts.buffer)
        hashes, gaps = np.empty(most, np.uint64), np.empty(most, np.uint8)
        runs = np.empty((most, 3), np.int64)
        offsets, tails = np.zeros(n + 1, np.int64), np.zeros(n, np.uint8)
        m = kernels.cut(texts.buffer, texts.offsets, spacing, hashes, runs, gaps, offsets, tails)
        ids, new = self._runs.number(hashes[:m])
        if len(new):
            self._learn(texts.buffer, runs[new])
        tokens, token_offsets = kernels.expand(ids, offsets, self._starts, self._run_tokens)
        breaks = np.zeros(n, np.int64)
        kernels.sentence_breaks(
            ids, gaps, offsets, tails, self._starts, self._run_tokens, self._vocabulary.flags,
            breaks,
        )  # fmt: skip
        return Words(tokens, token_offsets, breaks, spacing, self._vocabulary, self._tokens.rows)

    def _learn(self, buffer: NDArray[np.uint8], new: NDArray[np.int64]) -> None:
        """Tokenise runs that were not known yet and append them to the table's columns."""
        pieces = _pieces(buffer, new)
        ends, counts = self._chunks.cut(pieces.buffer, pieces.begins, pieces.ends)
        begins = np.empty_like(ends)
        begins[1:] = ends[:-1]
        firsts = np.cumsum(counts) - counts
        begins[firsts[counts > 0]] = pieces.begins[counts > 0]
        spans = np.stack([begins, ends], axis=1)
        hashes = np.empty(len(spans), np.uint64)
        kernels.hash_spans(pieces.buffer, spans, hashes)
        numbers, fresh = self._tokens.number(hashes)
        per_run = np.bincount(pieces.owners, weights=counts, minlength=len(new)).astype(np.int64)
        starts = np.cumsum(per_run) + len(self._run_tokens)
        self._starts = np.concatenate([self._starts, starts])
        self._run_tokens = np.concatenate([self._run_tokens, numbers])
        self._vocabulary = self._vocabulary + self._describe(pieces.buffer, spans[fresh])

    def _describe(self, buffer: NDArray[np.uint8], spans: NDArray[np.int64]) -> Vocabulary:
        made = Vocabulary.of(len(spans))
        kernels.describe(buffer, spans, made.lengths, made.sums, made.powers, made.inverses)
        points = np.empty(1 << 12, np.int64)
        while n := kernels.unknown_characters(buffer, spans, self._kinds, points):
            for c in points[:n].tolist():
                self._kinds[c] |= self._kind(chr(c))
        kernels.flag_tokens(buffer, spans, self._kinds, made.flags)
        return made

    def _kind(self, character: str) -> int:
        return (
            kernels.PUNCTUATION * (character in PUNCTUATION)
            | kernels.LETTER * character.isalpha()
            | kernels.SENTENCE_END * (character in self._chunks.sentence_ends)
            | kernels.CATEGORY_P * (unicodedata.category(character)[0] == "P")
        )


@dataclass(frozen=True)
class _Pieces:
    """What is tokenised for some runs: the runs, or the words that segmentation made of them."""

    buffer: NDArray[np.uint8]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    owners: NDArray[np.int64]  # which run a piece is of, ascending


def _pieces(buffer: NDArray[np.uint8], runs: NDArray[np.int64]) -> _Pieces:
    """`runs` [n, 3] (begin, end, mode) in pieces; those of a mode without blanks are segmented."""
    chosen = np.flatnonzero(runs[:, 2] != kernels.SPACED)
    if not len(chosen):
        return _Pieces(buffer, runs[:, 0], runs[:, 1], np.arange(len(runs)))
    texts = [buffer[a:b].tobytes().decode() for a, b in runs[chosen, :2].tolist()]
    numbers = np.ones(len(runs), np.int64)
    sizes, numbers[chosen] = cut(texts)
    owners = np.repeat(np.arange(len(runs)), numbers)
    lengths = np.repeat(runs[:, 1] - runs[:, 0], numbers)
    lengths[np.isin(owners, chosen)] = sizes
    ahead = np.cumsum(lengths) - lengths  # bytes of all pieces before
    first = np.cumsum(numbers) - numbers
    begins = runs[owners, 0] + ahead - ahead[first[owners]]
    return _Pieces(buffer, begins, begins + lengths, owners)


def _blanks(buffer: NDArray[np.uint8]) -> int:
    """An upper bound of the blanks in a text: ASCII ones, and first bytes of the others."""
    beyond = np.count_nonzero((buffer == 0xC2) | ((buffer >= 0xE1) & (buffer <= 0xE3)))
    return int(np.count_nonzero(buffer <= 32) + beyond)


_TOKENIZER: Tokenizer | None = None


def tokenizer() -> Tokenizer:
    """This process's tokenizer, made on first use (spaCy takes half a second to import)."""
    global _TOKENIZER
    if _TOKENIZER is None:
        _TOKENIZER = Tokenizer()
    return _TOKENIZER
