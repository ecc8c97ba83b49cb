"""What a process and its children cost."""

from __future__ import annotations

import subprocess
import sys

from pipeline import costs

BURN = """
import sys, time
begin = time.process_time()
while time.process_time() - begin < 0.2: pass
print('done', flush=True)
sys.stdin.read()
"""


def test_a_living_child_counts_as_an_ended_one_does() -> None:
    before = costs.cpu_seconds()
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BURN], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        child.stdout.readline()
        living = costs.cpu_seconds() - before
        assert child.pid in costs.children()
        assert child.pid in costs.descendants()
        assert costs.peak_mib(child.pid) > 1
    ended = costs.cpu_seconds() - before
    assert child.pid not in costs.children()
    assert 0.2 <= living <= ended
    assert costs.peak_of_ended_mib() > 1


def test_a_process_that_is_gone_costs_nothing_more() -> None:
    assert costs.children(2**22 + 1) == []
    assert costs.peak_mib(2**22 + 1) == 0.0
    assert costs.peak_mib() > 1
