"""The check `language_accuracy` of `filtered_text`: how often languages are told right.

Labelled texts do not shape what the stage makes, so they are no input of it; the question is asked
when its checks run, of the backend that is configured now.
"""

from collections.abc import Iterable
from pathlib import Path

import dagster as dg

from assets.checks import CURES
from assets.display import table
from pipeline.errors import UsageError
from pipeline.language_accuracy import Row, accuracy, read_labels
from pipeline.mill import Mill

NAME = "language_accuracy"


def language_accuracy(mill: Mill) -> dg.AssetCheckResult:
    """Accuracy over `references.language_labels`, by size, length and language."""
    location = mill.config.references.language_labels
    if location is None:
        why = "not asked: references.language_labels names no file with labelled texts"
        return dg.AssetCheckResult(check_name=NAME, passed=True, description=why)
    try:
        labels = read_labels(Path(location))
    except UsageError as error:
        return _warning(f"references.language_labels: {error.message}. Cure: {error.hint}")
    found = accuracy(labels, mill.config.filter.language.backend)
    row = found.size("long") or found.sizes[0]
    floor = mill.config.gates.language_accuracy
    sentence = f"{found.backend} tells {row.accuracy:.1%} of {row.n:,} {row.name} texts right"
    passed = row.accuracy >= floor
    return dg.AssetCheckResult(
        check_name=NAME,
        passed=passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=sentence if passed else f"{sentence}, under {floor:.1%}. Cure: {CURES[NAME]}",
        metadata={
            "by_size": _sizes(found.sizes),
            "by_length": _sizes(found.lengths),
            "by_language": _languages(found.languages),
        },
    )


def _warning(why: str) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=NAME, passed=False, severity=dg.AssetCheckSeverity.WARN, description=why
    )


def _sizes(rows: Iterable[Row]) -> dg.TableMetadataValue:
    return table(
        {
            "texts": row.name,
            "n": row.n,
            "accuracy": row.accuracy,
            "with sr, hr, bs as one": row.merged,
        }
        for row in rows
    )


def _languages(rows: Iterable[Row]) -> dg.TableMetadataValue:
    return table(
        {
            "language": row.name,
            "n": row.n,
            "accuracy": row.accuracy,
            "long": row.long,
            "short": row.short,
            "most often told": row.confused_with,
            "times": row.confused,
        }
        for row in rows
    )
