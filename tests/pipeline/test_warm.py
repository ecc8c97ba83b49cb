"""After `python -m pipeline.warm` no stage compiles anything."""

from __future__ import annotations

import json
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
