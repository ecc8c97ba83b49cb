"""Quality and safety scores of documents, and the fastText classifiers behind them.

A score is the probability of the positive class: good text, or unsafe text. Texts are lower-cased
and their blanks squashed before training and scoring, so that a line end weighs as much as a blank
(fastText itself stops reading at one). An empty text has no score, and never passes as good.

Training is reproducible: rows are put in an order that depends on their texts only, one thread, a
seed. Joulin et al., arXiv:1607.01759; as a filter of web text: DCLM, arXiv:2406.11794.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import xxhash

from pipeline.errors import ConfigError, GristmillError
from pipeline.part import PartResult

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.config.score import ClassifierConfig, ScoreConfig

CODE_VERSION = "1"
LIBRARIES = ("polars", "numpy", "fasttext-community", "xxhash")
STAGE = "scored_text"

POSITIVE, NEGATIVE = "1", "0"
"""The labels of models that are trained here."""

QUALITY_LABELS = ("1", "true", "good", "hq", "high", "positive", "pos", "cc__high_quality")
SAFETY_LABELS = ("1", "true", "unsafe", "toxic", "nsfw")
"""What the positive class is called in models from elsewhere."""

TRUE_FALSE = {"1", "0", "true", "false"}
NOT_ONE_BLANK = r"(?:[^\S ]|\x00| [\s\x00])[\s\x00]*"
"""White space that is not a single blank already; passing those over is three times as fast."""

BATCH = 4096
CURVE = tuple(round(k / 10, 1) for k in range(1, 10))


@dataclass(frozen=True)
class TrainedClassifier:
    """A fastText model as the bytes of its file, and what it does on the rows held back."""

    model: bytes
    report: dict[str, Any]


def normalise(texts: pl.Series) -> pl.Series:
    """Texts as the classifiers read them: lower case, single blanks, nothing that fastText reads as
    a label or as the end of its input. Null is empty."""
    plain = texts.fill_null("").str.to_lowercase().str.replace_all(NOT_ONE_BLANK, " ")
    plain = plain.str.strip_chars(" ").str.replace_all("__label__", "_label_", literal=True)
    return plain.str.replace_all("</s>", "< /s>", literal=True)


def train_classifier(
    labels: pl.DataFrame, config: ClassifierConfig, positive_label: str = POSITIVE
) -> TrainedClassifier:
    """Train on `text, label` and optionally `split`; the same rows give the same bytes.

    The positive class is 1 or true where labels are such, else `positive_label`, else (where no
    row has that) a usual name such as `good`; all other labels are the negative class. Rows whose
    `split` is not `train` (or null) are not trained on; those of `dev` are reported on. Without dev
    rows a share of the rows, chosen by their text, is held back.
    Raises GristmillError where a class is missing, or training fails.
    """
    rows = _prepare(labels, positive_label)
    rows = _split(rows, config.dev_share)
    train, dev = (rows.filter(pl.col("split") == name) for name in ("train", "dev"))
    _check_classes(train, labels, positive_label)
    model = _train(train, config)
    report: dict[str, Any] = {
        "rows": len(labels),
        "empty": len(labels) - len(rows),
        "train": _sizes(train),
        "dev": _sizes(dev),
    }
    if len(dev):
        with tempfile.NamedTemporaryFile(suffix=".bin") as file:
            file.write(model)
            file.flush()
            scores = _scores(_open(file.name), dev["text"], (POSITIVE,))
        report |= evaluate(scores, dev["good"].to_numpy())
    return TrainedClassifier(model, report)


def _prepare(labels: pl.DataFrame, positive_label: str) -> pl.DataFrame:
    """`text, good, split` of the rows with text, in an order that only texts and labels decide."""
    names = labels["label"].cast(pl.String).str.strip_chars()
    lower = names.str.to_lowercase()
    plain = set(lower.drop_nulls().unique()) <= TRUE_FALSE
    if not plain and positive_label not in set(names):
        known = [name for name in QUALITY_LABELS if name in set(names)]
        positive_label = known[0] if known else positive_label
    good = lower.is_in(["1", "true"]) if plain else names == positive_label
    has_split = "split" in labels.columns
    split = labels["split"] if has_split else pl.Series([None] * len(labels), dtype=pl.String)
    rows = pl.DataFrame({"text": normalise(labels["text"]), "good": good, "split": split})
    rows = rows.filter((pl.col("text") != "") & pl.col("good").is_not_null())
    digests = [xxhash.xxh3_64_intdigest(text.encode()) for text in rows["text"]]
    rows = rows.with_columns(pl.Series("order", digests, pl.UInt64))
    return rows.sort("order", "text", "good", "split")


def _split(rows: pl.DataFrame, dev_share: float) -> pl.DataFrame:
    split = pl.col("split").fill_null("train")
    if not (rows["split"] == "dev").any():
        held_back = pl.col("order") < int(dev_share * 2**64)
        split = pl.when((split == "train") & held_back).then(pl.lit("dev")).otherwise(split)
    return rows.with_columns(split.alias("split"))


def _sizes(rows: pl.DataFrame) -> dict[str, int]:
    positive = int(rows["good"].sum())
    return {"positive": positive, "negative": len(rows) - positive}


def _check_classes(train: pl.DataFrame, labels: pl.DataFrame, positive_label: str) -> None:
    sizes = _sizes(train)
    if all(sizes.values()):
        return
    found = labels["label"].cast(pl.String).unique().drop_nulls().sort().to_list()
    names = ", ".join(map(repr, found)) or "none"
    missing = " and ".join(name for name, n in sizes.items() if n == 0)
    message = f"the labels to train on have no {missing} row; labels found: {names}"
    hint = "give rows of both classes; the good one is 1 or true, else references.positive_label, "
    hint += f"now {positive_label!r}"
    raise GristmillError(message, hint=hint)


def _train(rows: pl.DataFrame, config: ClassifierConfig) -> bytes:
    import fasttext

    marks = pl.when("good").then(pl.lit(POSITIVE)).otherwise(pl.lit(NEGATIVE))
    lines = rows.select(pl.format("__label__{} {}", marks, "text"))["literal"]
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "train.txt"), Path(folder, "model.bin")
        source.write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            model = fasttext.train_supervised(
                str(source), dim=config.dim, wordNgrams=config.word_ngrams, bucket=config.bucket,
                epoch=config.epochs, lr=config.learning_rate, minCount=config.min_count,
                seed=config.seed, thread=1, verbose=0,
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:  # NaN; a vocabulary that min_count emptied
            message = f"fastText could not train on {len(rows)} rows: {error}"
            hint = "lower score.classifier.learning_rate or score.classifier.min_count"
            raise GristmillError(message, hint=hint) from error
        model.save_model(str(target))
        return target.read_bytes()


def evaluate(scores: NDArray[np.float32], good: NDArray[np.bool_]) -> dict[str, Any]:
    """Accuracy at 0.5, AUC, and precision and recall at nine thresholds; null where undefined."""
    passes = [(t, scores >= t) for t in CURVE]
    curve = [
        {
            "threshold": t,
            "precision": _ratio((good & p).sum(), p.sum()),
            "recall": _ratio((good & p).sum(), good.sum()),
        }
        for t, p in passes
    ]
    accuracy = _ratio(((scores >= 0.5) == good).sum(), len(good))
    return {"accuracy": accuracy, "auc": auc(scores, good), "curve": curve}


def _ratio(part: int, whole: int) -> float | None:
    return round(float(part) / float(whole), 6) if whole else None


def auc(scores: NDArray[np.float32], good: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: how often a good row scores above a bad one, ties half."""
    positive, negative = int(good.sum()), int((~good).sum())
    if not positive or not negative:
        return None
    ranks = pl.Series(scores).rank("average").to_numpy()
    wins = ranks[good].sum() - positive * (positive + 1) / 2
    return round(float(wins / (positive * negative)), 6)


@lru_cache(maxsize=4)
def _load(path: str, stamp: int, size: int) -> Any:
    """One model a process and file; `stamp` and `size` tell a file that was replaced."""
    return _open(path)


def _open(path: str) -> Any:
    import fasttext

    try:
        return fasttext.load_model(path)
    except ValueError as error:
        message = f"{path} is no fastText model: {error}"
        raise GristmillError(message, hint="gristmill classifier train makes one") from error


def _positive(model: Any, names: Sequence[str]) -> str:
    labels = [str(label) for label in model.get_labels()]
    for name in names:
        if f"__label__{name}" in labels:
            return f"__label__{name}"
    some = ", ".join(labels[:5]) + (f" and {len(labels) - 5} more" if len(labels) > 5 else "")
    message = f"the classifier has labels {some}, none of which is a positive class"
    raise GristmillError(message, hint=f"its positive label must be one of {', '.join(names)}")


def _scores(model: Any, texts: pl.Series, names: Sequence[str]) -> NDArray[np.float32]:
    """Probability of the positive class of normalised texts that are not empty [n]."""
    positive = _positive(model, names)
    scores = np.zeros(len(texts), np.float32)
    n_labels = len(model.get_labels())
    for start in range(0, len(texts), BATCH):
        found, probabilities = model.predict(texts[start : start + BATCH].to_list(), k=n_labels)
        for k, (labels, values) in enumerate(zip(found, probabilities, strict=True)):
            at = labels.index(positive) if positive in labels else -1
            scores[start + k] = values[at] if at >= 0 else 0.0
    return np.clip(scores, 0, 1)  # fastText's softmax overshoots by up to 4e-5


def score_texts(texts: pl.Series, path: Path | None, names: Sequence[str]) -> pl.Series:
    """Scores of texts, float32; null for an empty text, or for all without a model."""
    result = pl.Series([None] * len(texts), dtype=pl.Float32)
    if path is None or not len(texts):
        return result
    status = path.stat()
    model = _load(str(path), status.st_mtime_ns, status.st_size)
    plain = normalise(texts)
    rows = (plain != "").arg_true()
    if len(rows):
        result = result.scatter(rows, pl.Series(_scores(model, plain.gather(rows), names)))
    return result


def held_out(frame: pl.DataFrame, share: float) -> pl.Series:
    """`split` of each document, `train` or `held_out`, a pure function of what it is split by.

    Web pages by host (without `www.`), records of sources by source and id, anything else by its
    document id: all pages of a host are on one side.
    """
    null = pl.lit(None, pl.String)
    column = {name: pl.col(name) if name in frame.columns else null for name in _KEYS}
    host = column["url"].str.extract(r"^[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#@]*@)?([^/?#:]+)", 1)
    host = host.str.to_lowercase().str.strip_chars_end(".").str.strip_prefix("www.")
    record = pl.format("{}\0{}", column["source"].fill_null(""), column["source_id"])
    keys = frame.select(pl.coalesce(record, host, column["doc_id"]).fill_null("").alias("key"))
    limit = int(share * 2**64)
    distinct = keys["key"].unique().to_list()
    out = [
        key for key in distinct if xxhash.xxh3_64_intdigest(b"held_out\0" + key.encode()) < limit
    ]
    chosen = pl.when(pl.col("key").is_in(out)).then(pl.lit("held_out")).otherwise(pl.lit("train"))
    return keys.select(chosen.alias("split"))["split"]


_KEYS = ("url", "source", "source_id", "doc_id")


def score_documents(
    frame: pl.DataFrame,
    config: ScoreConfig,
    quality_model: Path | None,
    safety_model: Path | None,
) -> PartResult:
    """Documents -> `parts` (kept, with `quality_score, safety_score, split`) and `decisions`.

    Reasons: `quality.below` where the score is under `min_quality` or the text is empty,
    `safety.above`. A threshold without its model is a ConfigError. `extra.unscored` counts
    the documents that a model gave no score, for want of text.
    """
    wants = (("min_quality", quality_model), ("max_safety", safety_model))
    for key, path in wants:
        if getattr(config, key) is not None and path is None:
            message = f"score.{key} is {getattr(config, key)}, but there is no model to score with"
            raise ConfigError(message, hint=f"name a model, or set score.{key} to null")
    scored = frame.with_columns(
        score_texts(frame["text"], quality_model, QUALITY_LABELS).alias("quality_score"),
        score_texts(frame["text"], safety_model, SAFETY_LABELS).alias("safety_score"),
        held_out(frame, config.held_out),
    )
    decisions = scored.select(
        "doc_id", pl.col("url").cast(pl.String), pl.lit(STAGE).alias("stage"), *_verdict(config)
    )
    unscored = scored["quality_score"].null_count() if quality_model else 0
    parts = scored.filter(decisions["kept"])
    return PartResult({"parts": parts, "decisions": decisions}, extra={"unscored": unscored})


def _verdict(config: ScoreConfig) -> list[pl.Expr]:
    """`kept, reason, value, threshold, detail` from the scores."""
    text, number = pl.lit(None, pl.String), pl.lit(None, pl.Float64)
    quality, safety = pl.col("quality_score"), pl.col("safety_score")
    low, high = pl.lit(value=False), pl.lit(value=False)
    if config.min_quality is not None:
        low = (quality < pl.lit(config.min_quality, pl.Float32)).fill_null(value=True)
    if config.max_safety is not None:
        high = (safety > pl.lit(config.max_safety, pl.Float32)).fill_null(value=False)
    reason = pl.when(low).then(pl.lit("quality.below")).when(high).then(pl.lit("safety.above"))
    value = pl.when(low).then(quality.cast(pl.Float64)).when(high).then(safety.cast(pl.Float64))
    limits = (pl.lit(limit, pl.Float64) for limit in (config.min_quality, config.max_safety))
    threshold = pl.when(low).then(next(limits)).when(high).then(next(limits))
    return [
        (~(low | high)).alias("kept"),
        reason.otherwise(text).alias("reason"),
        value.otherwise(number).alias("value"),
        threshold.otherwise(number).alias("threshold"),
        text.alias("detail"),
    ]
