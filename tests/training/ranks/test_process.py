from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.training.miniature import ROOT
from training.ranks import process
from training.ranks.process import hold

HOLDER = """
import sys, time
from pathlib import Path
from training.ranks.process import hold
print(hold(Path(sys.argv[1]), 0), flush=True)
time.sleep(60)
"""


def test_one_process_at_a_time_trains_in_a_folder(tmp_path: Path) -> None:
    lock = tmp_path / "run" / ".lock"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "None\n"
    assert hold(lock, 0.1) == f"process {other.pid} is training in {tmp_path / 'run'}"
    other.kill()
    other.communicate()
    assert hold(lock, 5) is None, "a dead process holds nothing"
    process._held.pop().close()


CHILD = (
    "from training.ranks.process import end_with_parent; end_with_parent(); print(1, flush=True)"
)
PARENT = f"""
import subprocess, sys, os
child = subprocess.Popen([sys.executable, "-c", {CHILD + "; import time; time.sleep(60)"!r}],
                         stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_rank_ends_with_its_parent() -> None:
    import psutil

    done = subprocess.run(
        [sys.executable, "-c", PARENT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    child = int(done.stdout)
    if psutil.pid_exists(child):
        psutil.wait_procs([psutil.Process(child)], timeout=5)
    gone = not psutil.pid_exists(child)
    assert gone or psutil.Process(child).status() == psutil.STATUS_ZOMBIE


STOPPING = """
import os, signal, time
from training.ranks.process import StopRequest
stop = StopRequest(2)
print(stop.left, stop.reason, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGINT)
print(0 < stop.left <= 2, stop.reason, flush=True)
time.sleep(30)
"""


def test_a_stop_leaves_so_many_seconds_and_then_ends_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STOPPING], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "inf \nTrue SIGTERM\n"
    assert (done.returncode, done.stderr) == (1, "not saved and ended within 2 s of SIGTERM\n")


TALKING = """
import sys
from training.ranks.process import print_line
sys.stdin.readline()
for n in range(3):
    print_line("line")
sys.stderr.write("done")
"""


def test_a_log_that_nobody_reads_ends_nothing() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", TALKING],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate("go\n")[1] == "done"
    assert process.returncode == 0
