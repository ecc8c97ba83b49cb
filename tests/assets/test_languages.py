"""The check of how often languages are told right."""

import json
from pathlib import Path

import dagster as dg
import pytest

from assets.checks import results
from assets.languages import language_accuracy
from assets.preflight import preflight
from pipeline import second_opinion
from pipeline.config import load_config
from pipeline.errors import ConfigError
from pipeline.mill import Mill
from resources.mill import open_mill

RIGHT = {"lang": "en", "text": "The engineer opened the old chart near the vineyard. " * 3}
WRONG = {"lang": "fr", "text": "Der Ingenieur öffnete die alte Karte am Weinberg. " * 3}


def mill_at(folder: Path, labels: Path | None) -> Mill:
    references = {"language_labels": str(labels)} if labels else {}
    overrides = {"storage": {"root": str(folder / "store")}, "references": references}
    return open_mill(load_config(overrides=overrides))


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_without_labels_it_is_not_asked(tmp_path: Path) -> None:
    result = language_accuracy(mill_at(tmp_path, None))
    assert result.passed
    assert "references.language_labels" in str(result.description)


def test_enough_right_passes_and_shows_its_tables(tmp_path: Path) -> None:
    mill = mill_at(tmp_path, write(tmp_path / "labels.jsonl", RIGHT))
    [result] = results(mill, "filtered_text", [], {"language_accuracy"})
    assert result.passed
    assert result.description == "lid176 tells 100.0% of 1 long texts right"
    shown = result.metadata["by_language"]
    assert isinstance(shown, dg.TableMetadataValue)
    assert shown.records[0].data["language"] == "en"


def test_too_many_wrong_is_a_warning_with_its_cure(tmp_path: Path) -> None:
    result = language_accuracy(mill_at(tmp_path, write(tmp_path / "l.jsonl", RIGHT, WRONG)))
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "under 98.0%. Cure:" in str(result.description)


def test_labels_that_cannot_be_read_are_a_warning_that_names_the_key(tmp_path: Path) -> None:
    result = language_accuracy(mill_at(tmp_path, tmp_path / "absent.jsonl"))
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "references.language_labels" in str(result.description)


def test_a_run_is_refused_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {"references": {"language_labels": str(tmp_path / "absent.jsonl")}}
    with pytest.raises(ConfigError, match=r"references\.language_labels"):
        preflight(load_config(overrides=absent), "snapshot", "A")
    monkeypatch.setattr(second_opinion, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"filter\.language\.backend"):
        preflight(load_config(sets=["filter.language.backend=eldc"]), "source", "A")
