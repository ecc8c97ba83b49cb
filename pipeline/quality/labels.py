"""Labelled texts, made ready for training: which class a row is of, and on which side it stands.

Labels are two classes (1/0, true/false, or names of which one is the good class), or grades 0 to 5
as a larger model gives them (FineWeb-Edu, arXiv:2406.17557). Rows are put in an order that depends
on their texts only, so that the same labels in any order train the same model.
"""

from __future__ import annotations

import polars as pl
import xxhash

from pipeline.errors import GristmillError
from pipeline.quality.plain_text import normalise

POSITIVE, NEGATIVE = "1", "0"
"""The labels of two-class models that are trained here."""

GRADES = ("0", "1", "2", "3", "4", "5")
GOOD_GRADE = 3
"""FineWeb-Edu keeps 3 and above; rows of it are the good class in reports on graded labels."""

QUALITY_LABELS = ("1", "true", "good", "hq", "high", "positive", "pos", "cc__high_quality")
SAFETY_LABELS = ("1", "true", "unsafe", "toxic", "nsfw")
"""What the positive class is called in models from elsewhere."""

TRUE_FALSE = {"1", "0", "true", "false"}
KINDS = "reason"
"""The column that says what kind of source a row is from."""
LANGUAGES = ("language", "lang")


def is_graded(labels: pl.Series) -> bool:
    """Whether labels are grades: whole numbers 0 to 5, more than the two of 0 and 1."""
    names = set(_names(labels).drop_nulls().unique())
    return names <= set(GRADES) and not names <= {"0", "1"}


def _names(labels: pl.Series) -> pl.Series:
    names = labels.cast(pl.String).str.strip_chars()
    return names.str.replace(r"^([0-9])\.0+$", "$1")


def prepare(labels: pl.DataFrame, positive_label: str) -> pl.DataFrame:
    """The rows with text: `text` (normalised)`, mark` (label to train)`, good, split`, and `kind,
    language` where the labels name them (else null); `order` is a hash of the text.

    The positive class is 1 or true where labels are such, else `positive_label`, else (where no
    row has that) a usual name such as `good`; all other labels are the negative class.
    """
    names = _names(labels["label"])
    _check_numbers(names)
    if is_graded(names):
        mark, good = names, names.cast(pl.Int8, strict=False) >= GOOD_GRADE
    else:
        good = _good(names, positive_label)
        mark = good.replace_strict({True: POSITIVE, False: NEGATIVE}, return_dtype=pl.String)
    rows = pl.DataFrame(
        {
            "text": normalise(labels["text"].cast(pl.String)),
            "mark": mark,
            "good": good,
            "split": _optional(labels, "split"),
            "kind": _optional(labels, KINDS),
            "language": _optional(labels, *LANGUAGES),
        }
    )
    rows = rows.filter((pl.col("text") != "") & pl.col("good").is_not_null())
    digests = [xxhash.xxh3_64_intdigest(text.encode()) for text in rows["text"]]
    rows = rows.with_columns(pl.Series("order", digests, pl.UInt64))
    return rows.sort("order", "text", "mark", "split", "kind", "language")


def _check_numbers(names: pl.Series) -> None:
    """GristmillError for a scale that is not that of grades: which of it is good is not known."""
    distinct = names.drop_nulls().unique().sort()
    numbers = distinct.cast(pl.Float64, strict=False)
    if len(distinct) > 2 and numbers.null_count() == 0 and not set(distinct) <= set(GRADES):
        odd = ", ".join(repr(name) for name in distinct if name not in GRADES)
        message = f"labels are numbers, but neither 1 and 0 nor grades 0 to 5: {odd[:100]}"
        raise GristmillError(message, hint="round a score to whole grades, or write 1 and 0")


def _optional(labels: pl.DataFrame, *names: str) -> pl.Series:
    for name in names:
        if name in labels.columns:
            return labels[name].cast(pl.String)
    return pl.Series([None] * len(labels), dtype=pl.String)


def _good(names: pl.Series, positive_label: str) -> pl.Series:
    lower = names.str.to_lowercase()
    if set(lower.drop_nulls().unique()) <= TRUE_FALSE:
        return lower.is_in(["1", "true"])
    known = [name for name in (positive_label, *QUALITY_LABELS) if name in set(names)]
    return names == (known[0] if known else positive_label)


def with_split(rows: pl.DataFrame, dev_share: float) -> pl.DataFrame:
    """`split` filled in: without dev rows a share of the rows, chosen by their text, is held back.

    Rows of another split than `train`, `dev` or null stay as they are, and are used for nothing.
    """
    split = pl.col("split").fill_null("train")
    if not (rows["split"] == "dev").any():
        held_back = pl.col("order") < int(dev_share * 2**64)
        split = pl.when((split == "train") & held_back).then(pl.lit("dev")).otherwise(split)
    return rows.with_columns(split.alias("split"))


def sizes(rows: pl.DataFrame) -> dict[str, int]:
    """Rows of each class."""
    positive = int(rows["good"].sum())
    return {"positive": positive, "negative": len(rows) - positive}


def check_classes(train: pl.DataFrame, labels: pl.DataFrame, positive_label: str) -> None:
    """Refuse rows of one class only. Raises GristmillError naming the labels found."""
    found = sizes(train)
    if all(found.values()):
        return
    names = labels["label"].cast(pl.String).unique().drop_nulls().sort().to_list()
    some = ", ".join(map(repr, names)) or "none"
    missing = " and ".join(name for name, n in found.items() if n == 0)
    message = f"the labels to train on have no {missing} row; labels found: {some}"
    hint = "give rows of both classes; the good one is 1 or true, else references.positive_label, "
    hint += f"now {positive_label!r}; of grades, {GOOD_GRADE} and above are good"
    raise GristmillError(message, hint=hint)
