"""Compiled kernels are read back, never after an update of what they take in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import compiled

KERNEL = """
from pipeline.compiled import kernel
from pipeline.words import FACTOR

@kernel
def scaled(n): return FACTOR * n

print(scaled(4), sum(scaled.stats.cache_hits.values()), scaled.stats.cache_path)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of two modules: a kernel, and the constant it takes in."""
    package = tmp_path / "checkout" / "pipeline"
    package.mkdir(parents=True)
    shutil.copy(compiled.__file__, package)
    (package / "mill.py").write_text(KERNEL)
    (package / "words.py").write_text("FACTOR = 2\n")
    return package.parent


def run(checkout: Path, **variables: str) -> list[str]:
    given = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-m", "pipeline.mill"],
        cwd=checkout,
        env=given | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_an_update_of_an_imported_module_compiles_again(checkout: Path) -> None:
    value, hits, place = run(checkout)
    assert (value, hits) == ("8", "0")
    assert place.startswith(str(checkout / ".kernels" / "mill-"))
    assert run(checkout) == ["8", "1", place]
    (checkout / "pipeline/words.py").write_text("FACTOR = 3\n")
    assert run(checkout)[:2] == ["12", "0"]


def test_a_cache_that_cannot_be_written_is_copied(checkout: Path, tmp_path: Path) -> None:
    shipped, temporary = tmp_path / "shipped", tmp_path / "tmp"
    temporary.mkdir()
    names = {"NUMBA_CACHE_DIR": str(shipped), "TMPDIR": str(temporary)}
    value, hits, place = run(checkout, **names)
    assert (value, hits) == ("8", "0")
    assert place.startswith(str(shipped))
    # a file in the way of the folder refuses even root, whom no mode of a folder stops
    shipped.rename(tmp_path / "aside")
    shipped.write_text("")
    value, hits, place = run(checkout, **names)
    assert (value, hits) == ("8", "0"), "an empty copy: compiled again"
    assert place.startswith(str(temporary / "gristmill-kernels-"))
    assert run(checkout, **names) == ["8", "1", place], "later processes share the copy"


@pytest.mark.skipif(os.getuid() == 0, reason="root writes into any folder")
def test_the_copy_has_what_was_shipped(checkout: Path, tmp_path: Path) -> None:
    shipped, temporary = tmp_path / "shipped", tmp_path / "tmp"
    temporary.mkdir()
    names = {"NUMBA_CACHE_DIR": str(shipped), "TMPDIR": str(temporary)}
    run(checkout, **names)
    shipped.chmod(0o555)
    try:
        assert run(checkout, **names)[:2] == ["8", "1"]
    finally:
        shipped.chmod(0o755)


def test_imports_are_found_however_they_are_written() -> None:
    source = """
from pipeline.extractor import vocabulary, page as p
from pipeline.words import (
    texts_of,
)
def later():
    from pipeline.filters.rules import Rule
"""
    names = {str(path.relative_to(compiled.ROOT)) for path in compiled.imported(source)}
    assert names >= {
        "pipeline/extractor/vocabulary.py",
        "pipeline/extractor/page.py",
        "pipeline/words.py",
        "pipeline/filters/rules.py",
    }
