"""Keeping a share of each language: thresholds fitted once, then applied by value.

A percentile needs all scores, but a part is decided without knowing the others, and must not change
when more pages arrive. So thresholds are fitted on datasets that are there already (their signals,
which hold kept and dropped documents), stored in a file, and applied like any threshold: the same
document gets the same decision in any part, order and number of parts, until a new file is
promoted. DCLM (arXiv:2406.11794) fixes its threshold the same way, at the top tenth.

A language with fewer than `min_documents` scores has no percentile of its own worth the name: it
takes the pooled threshold, that of all documents together, as do languages the file does not know.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from pipeline.config.base import Section
from pipeline.errors import ConfigError, GristmillError

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

UNDETERMINED = "und"
FORMAT = "gristmill.selection.1"
Share = Annotated[float, Field(ge=0, le=1)]


class Limit(Section):
    """The threshold of one language: documents with at least that score are kept."""

    threshold: Share
    documents: int = Field(ge=0, description="scores it was fitted on")
    kept: int = Field(ge=0, description="of those, at or above it; ties with it are kept")


class Selection(Section):
    """Thresholds by language, and the classifier whose scores they are for."""

    format: Literal["gristmill.selection.1"] = FORMAT  # type: ignore[assignment]
    keep: float = Field(gt=0, le=1)
    min_documents: int = Field(ge=1)
    classifier: str | None = Field(description="checksum of the model file")
    pooled: Limit
    languages: dict[str, Limit]

    def to_bytes(self) -> bytes:
        """The file: the same scores give the same bytes."""
        value = self.model_dump(mode="json")
        return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()

    def check_model(self, checksum: str | None) -> None:
        """Refuse to judge scores of another classifier. Raises ConfigError."""
        if self.classifier and checksum != self.classifier:
            message = "score.selection was fitted on scores of another classifier: "
            message += f"{self.classifier[:19]}…, not {str(checksum)[:19]}…"
            raise ConfigError(message, hint="fit it again on datasets scored with this model")


def read_selection(path: Path) -> Selection:
    """The thresholds of a file. ConfigError where it is absent or no such file."""
    try:
        return Selection.model_validate_json(path.read_bytes())
    except OSError as error:
        message = f"score.selection: {path} cannot be read: {error.strerror}"
        raise ConfigError(message, hint="gristmill classifier select makes one") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        message = f"score.selection: {path} holds no thresholds: {where}: {first['msg']}"
        raise ConfigError(message, hint="gristmill classifier select makes one") from error


def fit_selection(
    frames: Iterable[pl.DataFrame], *, keep: float, min_documents: int, classifier: str | None
) -> Selection:
    """Thresholds from signals (`language, quality_score`; null scores are left out).

    Four bytes a document are held. Raises GristmillError where there is no score at all.
    """
    scores: dict[str, list[NDArray[np.float32]]] = {}
    for frame in frames:
        for language, values in _by_language(frame):
            scores.setdefault(language, []).append(values)
    joined = {language: np.concatenate(some) for language, some in sorted(scores.items())}
    if not joined:
        message = "no document has a quality score"
        raise GristmillError(message, hint="score the datasets with --model first")
    large = {name: some for name, some in joined.items() if len(some) >= min_documents}
    return Selection(
        keep=keep,
        min_documents=min_documents,
        classifier=classifier,
        pooled=limit_of(np.concatenate(list(joined.values())), keep),
        languages={name: limit_of(some, keep) for name, some in large.items()},
    )


def _by_language(frame: pl.DataFrame) -> list[tuple[str, NDArray[np.float32]]]:
    import polars as pl

    if "language" not in frame.columns:
        frame = frame.with_columns(language=pl.lit(None, pl.String))
    told = frame.select(pl.col("language").fill_null(UNDETERMINED), "quality_score").drop_nulls()
    groups = told.group_by("language").agg("quality_score").sort("language")
    return [(name, np.array(some, np.float32)) for name, some in groups.iter_rows()]


def limit_of(scores: NDArray[np.float32], keep: float) -> Limit:
    """The score of the last document within the best share `keep`, at least one document."""
    n = len(scores)
    wanted = min(max(math.ceil(round(keep * n, 6)), 1), n)
    at = np.partition(scores, n - wanted)[n - wanted]
    return Limit(threshold=float(at), documents=n, kept=int((scores >= at).sum()))


def row_thresholds(frame: pl.DataFrame, selection: Selection) -> pl.Series:
    """The threshold of each document's language [n], float32."""
    import polars as pl

    known: dict[str, Any] = {k: limit.threshold for k, limit in selection.languages.items()}
    pooled = selection.pooled.threshold
    if "language" not in frame.columns:
        return pl.select(pl.repeat(pooled, len(frame), dtype=pl.Float32)).to_series()
    language = pl.col("language").cast(pl.String).fill_null(UNDETERMINED)
    if not known:
        return frame.select(pl.repeat(pooled, pl.len(), dtype=pl.Float32)).to_series()
    return frame.select(
        language.replace_strict(known, default=pooled, return_dtype=pl.Float32).alias("threshold")
    )["threshold"]
