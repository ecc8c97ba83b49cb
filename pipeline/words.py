"""Words of documents, as integers: what the word rules of the filters count.

The words are those of spaCy's English tokenizer (`spacy.blank("en")`), which the published filters
were run with (datatrove 0.10.1). It works on each run of characters between blanks by itself, so
every distinct run is tokenised once, its tokens are kept in a table, and a document is put together
by copying numbers. That gives the same tokens at many times the speed.

In documents written mostly in a script without blanks between words, the runs are segmented first
(`pipeline.segment`). Such characters in other documents stay as the tokenizer has them.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline import word_kernels as kernels
from pipeline.chunks import ChunkTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl
    from numpy.typing import NDArray

UNSPACED_SHARE = 0.2
"""A document whose characters are to more than a fifth of such a script is segmented."""

FIRST_SLOTS = 1 << 14
MOST_RUNS = 1 << 20
"""Distinct runs that are remembered at least; with more, all are forgotten: about 100 MiB."""


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


@dataclass(frozen=True)
class Vocabulary:
    """What is known of each distinct token [n_tokens]."""

    lengths: NDArray[np.int32]  # characters
    flags: NDArray[np.uint8]  # bits: HAS_WORD_CHARACTER, HAS_LETTER, ENDS_SENTENCE, IS_PUNCTUATION
    sums: NDArray[np.uint64]  # hash of the bytes; see word_kernels.describe
    powers: NDArray[np.uint64]
    inverses: NDArray[np.uint64]


@dataclass(frozen=True)
class Words:
    """The tokens of a batch of documents."""

    tokens: NDArray[np.int32]  # numbers into the vocabulary
    offsets: NDArray[np.int64]  # [n_documents + 1]
    breaks: NDArray[np.int64]  # [n_documents] sentence starts after the first of each line
    spacing: NDArray[np.uint8]  # [n_documents] SPACED, KANA or UNSPACED
    vocabulary: Vocabulary
    index: dict[str, int]  # token -> number

    def counts(self) -> NDArray[np.int64]:
        """Tokens per document."""
        return np.diff(self.offsets)

    def numbers(self, words: Iterable[str]) -> NDArray[np.int8]:
        """Per token of the vocabulary: which of `words` it is, -1 for none."""
        found = np.full(len(self.vocabulary.lengths), -1, np.int8)
        for k, word in enumerate(words):
            if word in self.index:
                found[self.index[word]] = k
        return found


class Tokenizer:
    """spaCy's tokenizer behind a table of the runs it has seen. One per process."""

    def __init__(self, *, most_runs: int = MOST_RUNS) -> None:
        self._chunks = ChunkTokenizer()
        self._most_runs = most_runs
        self.clear()

    def clear(self) -> None:
        """Forget all runs and tokens, so that memory stays bounded."""
        self._table = np.zeros((FIRST_SLOTS, 2), np.uint64)
        self._index: dict[str, int] = {}
        self._starts = np.zeros(1, np.int64)
        self._chunk_tokens = np.zeros(0, np.int32)
        empty = np.zeros(0, np.uint64)
        self._vocabulary = Vocabulary(
            np.zeros(0, np.int32), np.zeros(0, np.uint8), empty, empty, empty
        )

    def words(self, texts: Texts, spacing: NDArray[np.uint8] | None = None) -> Words:
        """The tokens of every document.

        `spacing` per document, where it is known from the text before an edit; else measured.
        """
        n = len(texts)
        if len(self._starts) > self._most_runs:
            self.clear()
        if spacing is None:
            spacing = np.zeros(n, np.uint8)
            kernels.spacing(texts.buffer, texts.offsets, UNSPACED_SHARE, spacing)
        most = n + _blanks(texts.buffer)
        hashes, gaps = np.empty(most, np.uint64), np.empty(most, np.uint8)
        runs = np.empty((most, 3), np.int64)
        offsets, tails = np.zeros(n + 1, np.int64), np.zeros(n, np.uint8)
        m = kernels.cut(texts.buffer, texts.offsets, spacing, hashes, runs, gaps, offsets, tails)
        ids = self._numbers(texts.buffer, hashes[:m], runs)
        tokens, token_offsets = kernels.expand(ids, offsets, self._starts, self._chunk_tokens)
        breaks = np.zeros(n, np.int64)
        kernels.sentence_breaks(
            ids, gaps, offsets, tails, self._starts, self._chunk_tokens, self._vocabulary.flags,
            breaks,
        )  # fmt: skip
        return Words(tokens, token_offsets, breaks, spacing, self._vocabulary, self._index)

    def _numbers(
        self, buffer: NDArray[np.uint8], hashes: NDArray[np.uint64], runs: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """The number of each run; the table grows and learns as needed."""
        ids = np.empty(len(hashes), np.int32)
        new = np.empty(len(hashes), np.int64)
        done, known, fresh = 0, len(self._starts) - 1, 0
        first = known
        while True:
            limit = len(self._table) // 2
            done, known = kernels.look_up(hashes, done, self._table, known, limit, ids, new[fresh:])
            fresh = known - first
            if done == len(hashes):
                break
            larger = np.zeros((2 * len(self._table), 2), np.uint64)
            kernels.rehash(self._table, larger)
            self._table = larger
        if fresh:
            self._learn(buffer, runs[new[:fresh]])
        return ids

    def _learn(self, buffer: NDArray[np.uint8], new: NDArray[np.int64]) -> None:
        """Tokenise runs that were not known yet and append them to the table's columns."""
        data = buffer.tobytes()
        tokens: list[int] = []
        ends: list[int] = []
        before = len(self._index)
        with self._chunks.memory_zone():
            for begin, end, mode in zip(*(column.tolist() for column in new.T), strict=True):
                for token in self._tokenise(data[begin:end].decode(), mode):
                    number = self._index.setdefault(token, len(self._index))
                    tokens.append(number)
                ends.append(len(tokens))
        starts = np.array(ends, np.int64) + len(self._chunk_tokens)
        self._starts = np.concatenate([self._starts, starts])
        self._chunk_tokens = np.concatenate([self._chunk_tokens, np.array(tokens, np.int32)])
        self._describe([*self._index][before:])

    def _tokenise(self, chunk: str, mode: int) -> Iterable[str]:
        if mode == kernels.SPACED:
            return self._chunks.tokens(chunk)
        return self._chunks.segmented(chunk, kana=mode == kernels.KANA)

    def _describe(self, tokens: list[str]) -> None:
        encoded = [token.encode() for token in tokens]
        offsets = np.zeros(len(tokens) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        flags = np.array([self._flag(token) for token in tokens], np.uint8)
        n, old = len(tokens), self._vocabulary
        lengths = np.empty(n, np.int32)
        sums, powers, inverses = (np.empty(n, np.uint64) for _ in range(3))
        joined = np.frombuffer(b"".join(encoded), np.uint8)
        kernels.describe(joined, offsets, lengths, sums, powers, inverses)
        both: list[Any] = [
            np.concatenate(pair)
            for pair in (
                (old.lengths, lengths), (old.flags, flags), (old.sums, sums),
                (old.powers, powers), (old.inverses, inverses),
            )
        ]  # fmt: skip
        self._vocabulary = Vocabulary(*both)

    def _flag(self, token: str) -> int:
        if token.isalpha():
            return kernels.HAS_WORD_CHARACTER | kernels.HAS_LETTER
        flag = 0 if PUNCTUATION.issuperset(token) else kernels.HAS_WORD_CHARACTER
        if any(map(str.isalpha, token)):
            return flag | kernels.HAS_LETTER  # neither a sentence's end nor punctuation
        if token in self._chunks.sentence_ends:
            flag |= kernels.ENDS_SENTENCE
        if all(unicodedata.category(c)[0] == "P" for c in token):
            flag |= kernels.IS_PUNCTUATION
        return flag


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
