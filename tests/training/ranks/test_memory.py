from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

from tests.training.miniature import ROOT

PROGRAM = """
import resource, sys
import torch
from training.ranks.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    for _ in range(10):
        torch.ones(16 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = faults()
print(faults() - before)
"""


def again(how: str) -> int:
    """Page faults of making ten tensors of 64 MiB a second time."""
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_blocks_that_were_freed_are_not_asked_of_the_kernel_again() -> None:
    pages = 10 * (64 << 20) // resource.getpagesize()
    assert again("keep") < pages / 20
