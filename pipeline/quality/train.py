"""Training of a fastText classifier: the same labels give the same bytes.

Rows are in an order that only their texts decide; one thread, a seed (more threads race). Texts are
cut into short lines before training: many views of a text are a better teacher than one mean over
all of it (measured, see `score.classifier.segment_words`). Joulin et al., arXiv:1607.01759; as a
filter of web text: DCLM, arXiv:2406.11794.
"""

from __future__ import annotations

import math
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import GristmillError
from pipeline.quality.labels import check_classes, is_graded, prepare, sizes, with_split

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from pipeline.config.score import ClassifierConfig


CODEBOOK = 256
"""Rows that product quantisation takes at least."""


@dataclass(frozen=True)
class TrainedClassifier:
    """A fastText model as the bytes of its file, and what it does on the rows held back."""

    model: bytes
    quantised: bytes
    """The same in a fraction of the bytes (product quantisation), for shipping."""
    report: dict[str, Any]


def train_classifier(
    labels: pl.DataFrame,
    config: ClassifierConfig,
    positive_label: str = "1",
    working_threshold: float = 0.5,
) -> TrainedClassifier:
    """Train on `text, label` and optionally `split, reason, language`.

    Rows whose `split` is not `train` (or null) are not trained on; those of `dev` are reported on
    (`pipeline.quality.evaluate`). Where rows name the kind of source they are from (`reason`), the
    report also says what happens to kinds that training never saw (`pipeline.quality.folds`).
    Raises GristmillError where a class is missing, or training fails.
    """
    from pipeline.quality.evaluate import report_on
    from pipeline.quality.folds import leave_kinds_out

    rows = with_split(prepare(labels, positive_label), config.dev_share)
    train, dev = (rows.filter(rows["split"] == name) for name in ("train", "dev"))
    check_classes(train, labels, positive_label)
    model, quantised = fit(train, config)
    report: dict[str, Any] = {
        "rows": len(labels),
        "empty": len(labels) - len(rows),
        "graded": is_graded(labels["label"]),
        "train": sizes(train),
        "dev": sizes(dev),
        "model_bytes": len(model),
        "quantised": {"bytes": len(quantised)},
    }
    if len(dev):
        scores = scores_of(model, dev)
        report |= report_on(scores, dev, train, working_threshold)
        report["quantised"] |= compare(scores, scores_of(quantised, dev), dev)
    if config.leave_out:
        report |= leave_kinds_out(rows, config)
    return TrainedClassifier(model, quantised, report)


def fit(
    rows: pl.DataFrame, config: ClassifierConfig, *, quantise: bool = True
) -> tuple[bytes, bytes]:
    """The bytes of a model of prepared rows, and of its quantised copy (empty unless asked for)."""
    import fasttext

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "train.txt"), Path(folder, "model.bin")
        lines = _lines(rows, config)
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            model = fasttext.train_supervised(
                str(source), dim=config.dim, wordNgrams=config.word_ngrams, bucket=config.bucket,
                epoch=passes(len(lines), config), lr=config.learning_rate,
                minCount=config.min_count, seed=config.seed, thread=1, verbose=0,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:  # NaN; a vocabulary that min_count emptied
            message = f"fastText could not train on {len(rows)} rows: {error}"
            hint = "lower score.classifier.learning_rate or score.classifier.min_count"
            raise GristmillError(message, hint=hint) from error
        model.save_model(str(target))
        whole = target.read_bytes()
        if not quantise:
            return whole, b""
        if len(model.get_words()) + config.bucket < CODEBOOK:
            return whole, whole  # too small to be made smaller
        cutoff = max(config.quantised_rows, CODEBOOK) if config.quantised_rows else 0
        model.quantize(cutoff=cutoff, qnorm=True)
        model.save_model(str(target))
        return whole, target.read_bytes()


def _lines(rows: pl.DataFrame, config: ClassifierConfig) -> list[str]:
    """The lines fastText learns from: pieces of the texts, shuffled by the seed."""
    lines = []
    for mark, text in rows.select("mark", "text").iter_rows():
        lines += [f"__label__{mark} {piece}" for piece in pieces(text, config.segment_words)]
    if config.segment_words:  # pieces of one text behind each other would be one long step
        random.Random(config.seed).shuffle(lines)
    return lines


def passes(n_lines: int, config: ClassifierConfig) -> int:
    """Passes over the lines: few labels need more of them, or the weights stay where they began."""
    return max(config.epochs, math.ceil(config.min_lines / max(n_lines, 1)))


def pieces(text: str, size: int) -> list[str]:
    """A text cut every `size` words (0: not at all); a last piece of half of that or less is
    left out, unless it is the only one."""
    if not size:
        return [text]
    words = text.split(" ")
    last = max(len(words) - size // 2, 1)
    return [" ".join(words[start : start + size]) for start in range(0, last, size)]


def scores_of(model: bytes, rows: pl.DataFrame) -> NDArray[np.float32]:
    """Scores [n] of the texts of prepared rows."""
    from pipeline.quality.labels import QUALITY_LABELS
    from pipeline.quality.scores import score_texts

    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(model)
        file.flush()
        scores = score_texts(rows["text"], Path(file.name), QUALITY_LABELS)
    return scores.fill_null(0).to_numpy()


def compare(
    whole: NDArray[np.float32], quantised: NDArray[np.float32], dev: pl.DataFrame
) -> dict[str, Any]:
    """What quantising costs: AUC, rows on the same side of 0.5, mean and largest change of a score.

    Pruned words no longer take part in a text's mean, so scores move although their order stays:
    thresholds of the one are none of the other.
    """
    from pipeline.quality.evaluate import auc, ratio

    return {
        "auc": auc(quantised, dev["good"].to_numpy()),
        "same_side": ratio(int(((whole >= 0.5) == (quantised >= 0.5)).sum()), len(whole)),
        "mean_change": round(float(np.abs(whole - quantised).mean(dtype=np.float64)), 6),
        "largest_change": round(float(np.abs(whole - quantised).max()), 6),
    }
