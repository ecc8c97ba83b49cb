"""Scores of texts under a fastText classifier.

A softmax over words and word n-grams is computed by a compiled pass of our own over the bytes of
the texts (`kernels.add_up`): the library's numbers to 1e-6, at several times the speed of its
`predict`, which wants a Python string a text. Models with subwords or another loss go to the
library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipeline.errors import GristmillError, UsageError
from pipeline.quality.fasttext_file import LinearModel, read_linear
from pipeline.quality.labels import GRADES
from pipeline.quality.plain_text import normalised
from pipeline.words import Texts, series_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

BATCH = 4096
FLOOR = 1e-5
"""What fastText adds to a probability before it takes its logarithm, and never takes off again:
published thresholds contain it."""
END_OF_LINE = "</s>"


@dataclass(frozen=True)
class Classifier:
    """A model of a process; `linear` is None where only the library can compute it."""

    path: Path
    labels: tuple[str, ...]
    linear: LinearModel | None

    @property
    def graded(self) -> bool:
        """Whether its labels are grades 0 to 5, of which there are more than two."""
        return set(self.labels) <= set(GRADES) and len(self.labels) > 2

    @cached_property
    def tables(self) -> tuple[Any, ...]:
        """The open table of the words, and the number and hash of the end of a line."""
        from pipeline.quality.kernels import EMPTY, find, fnv, hash_words

        assert self.linear is not None
        words, offsets = self.linear.words, self.linear.offsets
        table = np.full(max(4, 1 << (2 * len(offsets)).bit_length()), EMPTY, np.uint64)
        hash_words(words, offsets, table)
        mark = np.frombuffer(END_OF_LINE.encode(), np.uint8)
        h = np.uint32(fnv(mark, 0, len(mark)))
        return table, find(mark, 0, len(mark), h, words, offsets, table), h

    def probabilities(self, texts: Texts) -> NDArray[np.float32]:
        """Probability of each label for normalised texts [n, n_labels]; 0 where it knows nothing.

        A text of which the model has neither a word nor a pair is such a one.
        """
        if self.linear is None:
            return _by_library(_open(str(self.path)), self.labels, texts)
        from pipeline.quality.kernels import add_up

        model = self.linear
        table, end_of_line, end_hash = self.tables
        logits = np.zeros((len(texts), len(self.labels)), np.float64)
        add_up(
            texts.buffer, texts.offsets, model.words, model.offsets, table, model.weights,
            model.slots, model.bucket, model.n_grams, end_of_line, end_hash, logits,
        )  # fmt: skip
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return np.nan_to_num(np.clip(shares + FLOOR, 0, 1)).astype(np.float32)


@lru_cache(maxsize=4)
def _load(path: str, stamp: int, size: int) -> Classifier:
    """One model a process and file; `stamp` and `size` tell a file that was replaced."""
    names = [str(label).removeprefix("__label__") for label in _open(path).get_labels()]
    linear = read_linear(Path(path))
    return Classifier(Path(path), linear.labels if linear else tuple(names), linear)


def load_classifier(path: Path) -> Classifier:
    """The model of a file. GristmillError where it is none."""
    status = path.stat()
    return _load(str(path), status.st_mtime_ns, status.st_size)


def _open(path: str) -> Any:
    import fasttext

    try:
        return fasttext.load_model(path)
    except ValueError as error:
        message = f"{path} is no fastText model: {error}"
        raise GristmillError(message, hint="gristmill classifier train makes one") from error


def _by_library(model: Any, labels: Sequence[str], texts: Texts) -> NDArray[np.float32]:
    found = np.zeros((len(texts), len(labels)), np.float32)
    column = {f"__label__{label}": k for k, label in enumerate(labels)}
    series = series_of(texts)
    for start in range(0, len(series), BATCH):
        names, values = model.predict(series[start : start + BATCH].to_list(), k=len(labels))
        for row, (some, numbers) in enumerate(zip(names, values, strict=True), start):
            found[row, [column[name] for name in some]] = numbers
    return np.clip(found, 0, 1)


def positive_column(labels: Sequence[str], names: Sequence[str]) -> int:
    """Which label is the positive class: the first of `names` that the model has."""
    for name in names:
        if name in labels:
            return list(labels).index(name)
    some = ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")
    message = f"the classifier has labels {some}, none of which is a positive class"
    raise UsageError(message, hint=f"its positive label must be one of {', '.join(names)}")


def score_columns(texts: pl.Series, path: Path | None, names: Sequence[str]) -> pl.DataFrame:
    """`score` (float32, 0 to 1) and `grade` (float32, 0 to 5, null unless the labels are grades).

    The score is the probability of the positive class, or a fifth of the expected grade. Both are
    null for an empty text, or for all without a model.
    """
    nothing = pl.Series("score", [None] * len(texts), dtype=pl.Float32)
    if path is None or not len(texts):
        return pl.DataFrame([nothing, nothing.alias("grade")])
    model = load_classifier(path)
    column = -1 if model.graded else positive_column(model.labels, names)
    plain = normalised(texts)
    shares = model.probabilities(plain)
    empty = np.diff(plain.offsets) == 0
    if not model.graded:
        score = pl.Series("score", shares[:, column])
        return pl.DataFrame([_where(score, ~empty), nothing.alias("grade")])
    grades = np.array([float(label) for label in model.labels], np.float64)
    total = np.maximum(shares.sum(axis=1, dtype=np.float64), FLOOR)
    expected = shares.astype(np.float64) @ grades / total
    grade = _where(pl.Series("grade", expected, pl.Float64), ~empty)
    top = float(GRADES[-1])
    return pl.DataFrame([grade]).select(
        (pl.col("grade") / top).cast(pl.Float32).alias("score"), pl.col("grade").cast(pl.Float32)
    )


def _where(values: pl.Series, mask: NDArray[np.bool_]) -> pl.Series:
    """Values where the mask is set, null elsewhere."""
    if mask.all():
        return values
    return pl.select(pl.when(pl.Series(mask)).then(values).alias(values.name)).to_series()


def score_texts(texts: pl.Series, path: Path | None, names: Sequence[str]) -> pl.Series:
    """The scores alone."""
    return score_columns(texts, path, names)["score"].alias("")
