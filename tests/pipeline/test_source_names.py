"""Which files of a folder are sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigError, UsageError
from pipeline.stages.sources import source_file, source_names


def test_a_source_is_a_file(tmp_path: Path) -> None:
    for name in ("code.jsonl.gz", "books.parquet", "notes.txt", ".hidden.jsonl"):
        (tmp_path / name).touch()
    assert source_names(str(tmp_path)) == ["books", "code"]
    assert source_file(str(tmp_path), "code").name == "code.jsonl.gz"
    with pytest.raises(UsageError, match="has no file"):
        source_file(str(tmp_path), "notes")


def test_two_files_of_one_source_are_refused(tmp_path: Path) -> None:
    for name in ("code.jsonl", "code.jsonl.gz"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="two files of the source 'code'"):
        source_names(str(tmp_path))


def test_no_folder(tmp_path: Path) -> None:
    assert source_names(None) == []
    with pytest.raises(ConfigError, match="is no folder"):
        source_names(str(tmp_path / "absent"))
