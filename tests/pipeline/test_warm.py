"""After `python -m pipeline.warm` no stage compiles anything, and a read-only cache is enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import miniature_input

STAGES = """
import gc, json, sys
from pathlib import Path
from numba.core.registry import CPUDispatcher
from pipeline.warm import warm
from tests import miniature

def known():
    found = (one for one in gc.get_objects() if isinstance(one, CPUDispatcher))
    names = ((f, f.py_func.__module__, f.py_func.__qualname__) for f in found)
    return {(module, name, str(s)) for f, module, name in names for s in f.signatures}

warm()
before = known()
miniature.run(sys.argv[1], Path(sys.argv[2]))
print(json.dumps([len(before), sorted(known() - before)]))
"""

KERNEL = """
from numba import njit
@njit(cache=True)
def double(n): return 2 * n
print(double(4), sum(double.stats.cache_hits.values()), double.stats.cache_path)
"""


@pytest.mark.slow
def test_every_stage_finds_its_kernels_compiled(tmp_path: Path) -> None:
    given = miniature_input.build(tmp_path / "input")
    done = subprocess.run(
        [sys.executable, "-c", STAGES, str(tmp_path / "root"), str(given)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    n, more = json.loads(done.stdout.splitlines()[-1])
    assert n > 50
    assert more == []


def run(program: Path, shipped: Path, temporary: Path) -> list[str]:
    names = {
        "NUMBA_CACHE_DIR": str(shipped),
        "NUMBA_CACHE_LOCATOR_CLASSES": "pipeline.kernel_cache.SeededCacheLocator",
        "TMPDIR": str(temporary),
    }
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, **names, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_cache_that_cannot_be_written_is_copied(tmp_path: Path) -> None:
    program, shipped, temporary = tmp_path / "kernel.py", tmp_path / "shipped", tmp_path / "tmp"
    program.write_text(KERNEL)
    temporary.mkdir()
    value, hits, place = run(program, shipped, temporary)
    assert (value, hits) == ("8", "0")
    assert place.startswith(str(shipped))
    # a file in the way of the folder refuses even root, whom no mode of a folder stops
    aside = tmp_path / "aside"
    shipped.rename(aside)
    shipped.write_text("")
    value, hits, place = run(program, shipped, temporary)
    assert (value, hits) == ("8", "0"), "an empty copy: compiled again"
    assert place.startswith(str(temporary / "gristmill-kernels-"))
    value, hits, again = run(program, shipped, temporary)
    assert (value, hits, again) == ("8", "1", place), "the copy is shared by later processes"


@pytest.mark.skipif(os.getuid() == 0, reason="root writes into any folder")
def test_the_copy_has_what_was_shipped(tmp_path: Path) -> None:
    program, shipped, temporary = tmp_path / "kernel.py", tmp_path / "shipped", tmp_path / "tmp"
    program.write_text(KERNEL)
    temporary.mkdir()
    run(program, shipped, temporary)
    shipped.chmod(0o555)
    try:
        assert run(program, shipped, temporary)[:2] == ["8", "1"]
    finally:
        shipped.chmod(0o755)


WITHOUT_TORCH = """
import importlib.util, sys
from pipeline.chunks import ChunkTokenizer
ChunkTokenizer()
print("torch" in sys.modules, importlib.util.find_spec("torch") is not None)
"""


def test_the_tokenizer_of_the_filters_does_not_load_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", "True"], "not loaded, and there for whoever wants it"
