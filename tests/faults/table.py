"""`python -m tests.faults.table` runs the tests of faults in training and prints their table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.training import TABLE
from tests.training.miniature import ROOT

TESTS = ("tests/faults/test_training_faults.py", "tests/faults/test_training_services.py")


def main(arguments: list[str]) -> int:
    """Run, then print Markdown; the exit code of the tests."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "rows"
        place.touch()
        command = [sys.executable, "-m", "pytest", *TESTS, "-q", "-m", "faults", *arguments]
        env = dict(os.environ) | {TABLE: str(place)}
        code = subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
        rows = [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
    print("| fault | found after, s | steps done twice | largest difference of a loss |")
    print("| --- | ---: | ---: | ---: |")
    for row in rows:
        found, lost = row["found_after_seconds"], row["lost_steps"]
        numbers = ["" if number is None else str(number) for number in (found, lost)]
        print(
            "|", " | ".join([row["fault"], *numbers, f"{row['largest_loss_difference']:.1e}"]), "|"
        )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
