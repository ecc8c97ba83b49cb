"""The asset `checkpoints` in a process of its own: `python -m tests.faults.asset ROOT RUN...`.

Materialises the partition once for each RUN, `name` or `name:processes[:stop_after]` (which then
go into its run file), and prints for each a line of JSON: success and the log of the Dagster run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dagster as dg
import yaml

from assets.millwork import MillResource
from assets.model import checkpoints
from assets.partitions import RUNS


def main(root: Path, runs: list[str]) -> None:
    """One materialisation after the other."""
    for run in runs:
        name, *numbers = run.split(":")
        if numbers:
            _set(root / "runs" / f"{name}.yaml", *map(int, numbers))
        with dg.DagsterInstance.ephemeral() as instance:
            instance.add_dynamic_partitions(str(RUNS.name), [name])
            done = dg.materialize(
                [checkpoints],
                partition_key=name,
                instance=instance,
                resources={"mill": MillResource(root=str(root))},
                raise_on_error=False,
            )
            logs = [event.user_message for event in instance.all_logs(done.run_id)]
            failed = [
                event.step_failure_data.error.to_string()
                for event in done.all_node_events
                if event.is_step_failure and event.step_failure_data.error
            ]
        print(json.dumps({"success": done.success, "logs": logs, "failed": failed}), flush=True)


def _set(file: Path, processes: int, stop_after: int | None = None) -> None:
    content = yaml.safe_load(file.read_text())
    content |= {"nproc_per_node": processes, "stop_after": stop_after}
    file.write_text(yaml.safe_dump(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
