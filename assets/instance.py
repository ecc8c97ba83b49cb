"""The local Dagster instance: `DAGSTER_HOME` with a `dagster.yaml` that fits one small machine.

Runs, partitions and checks of `gristmill run`, of the demo and of the web UI all land in it, so the
UI opens on what was done headlessly. A file that a person wrote is never replaced.
"""

import os
import re
from pathlib import Path

HOME = "DAGSTER_HOME"

TEMPLATE = """\
# Written once by gristmill; yours to change.
telemetry: {enabled: false}
nux: {enabled: false}

# Two runs at a time: each has worker processes of its own (engine.workers).
concurrency:
  runs: {max_concurrent_runs: 2}
  pools:
    # slots are held by steps, so a run waits at the stage and not at the door;
    # one slot each: `dedup` goes in the order of snapshots, `training` has the devices to itself
    granularity: op
    default_limit: 1

# A run whose process died (killed, out of memory) is marked failed instead of running for ever,
# and its slots in the pools are free again.
run_monitoring:
  enabled: true
  start_timeout_seconds: 300
  poll_interval_seconds: 30
  free_slots_after_run_end_seconds: 60

retention:
  sensor: {purge_after_days: {skipped: 2, failure: 30, success: 30}}
"""


def prepare_home(root: str | Path) -> Path:
    """The folder for `DAGSTER_HOME`, with a `dagster.yaml` in it; telemetry is switched off.

    `DAGSTER_HOME` where it is set; below a local storage root otherwise; for a bucket a folder of
    the user, named after the bucket. Sets the variable for this process and its children.
    """
    given = os.environ.get(HOME)
    home = Path(given).expanduser().absolute() if given else home_of(str(root))
    home.mkdir(parents=True, exist_ok=True)
    file = home / "dagster.yaml"
    if not file.exists():
        file.write_text(TEMPLATE, encoding="utf-8")
    os.environ[HOME] = str(home)
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    return home


def home_of(root: str) -> Path:
    """Where the instance of a storage root lives."""
    if "://" in root and not root.startswith("file://"):
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", root).strip("-")
        return Path.home() / ".gristmill" / name
    return Path(root.removeprefix("file://")).expanduser().absolute() / "dagster"
