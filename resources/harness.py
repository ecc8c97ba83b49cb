"""The lm-eval harness (EleutherAI) on an exported model, with local task files and no network.

It is the program that published scores are made with, so it runs as it is, in a process of its own,
with `HF_HUB_OFFLINE=1` and `HF_DATASETS_OFFLINE=1`: a task file whose data lie elsewhere fails
instead of fetching them. It comes with the extra `eval`.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from pipeline.errors import GristmillError, UsageError
from resources.command import Say, run_command

CURE = "install it with pip install -c constraints.txt -e '.[eval]'"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUTF8": "1",
}
LAST_LINES = 12


class _Lenient(yaml.SafeLoader):
    """Takes the harness's own tags (`!function`) for text: only names are read here."""


_Lenient.add_multi_constructor("", lambda loader, suffix, node: str(getattr(node, "value", "")))


@dataclass(frozen=True)
class Tasks:
    """Task files in a folder."""

    folder: Path
    names: dict[str, Path]
    """Tasks and groups, and the file that defines each."""

    @property
    def checksum(self) -> str:
        """SHA-256 over names and contents of all files: data and code of the tasks."""
        digest = hashlib.sha256()
        for path in sorted(p for p in self.folder.rglob("*") if p.is_file()):
            if "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(self.folder).as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def chosen(self, names: Sequence[str]) -> list[str]:
        """These tasks, or all of the folder. UsageError for unknown ones."""
        unknown = sorted(set(names) - self.names.keys())
        if unknown:
            message = f"evaluation.names: no task {unknown[0]!r} is defined in {self.folder}"
            raise UsageError(message, hint=f"there: {', '.join(sorted(self.names))}")
        return list(names) or sorted(self.names)


def find_tasks(folder: Path) -> Tasks:
    """The tasks and groups that YAML files of a folder define, by their names.

    UsageError where the folder is not there, holds none, or two files define the same name.
    """
    if not folder.is_dir():
        message = f"evaluation.tasks: {folder} is no folder"
        raise UsageError(message, hint="name a folder of task files of the lm-eval harness")
    found: dict[str, Path] = {}
    for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
        try:
            content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Lenient)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            message = f"evaluation.tasks: {path} is no YAML: {str(error).splitlines()[0]}"
            raise UsageError(message, hint="correct the file, or move it away") from error
        name = _name(content)
        if name is not None:
            if name in found:
                message = f"evaluation.tasks: {path} and {found[name]} both define {name!r}"
                raise UsageError(message, hint="rename one of them")
            found[name] = path
    if not found:
        message = f"evaluation.tasks: no file in {folder} defines a task"
        raise UsageError(message, hint="a task is a YAML file with the key `task`")
    return Tasks(folder, found)


def _name(content: Any) -> str | None:
    """The group or task that a file defines; None where it is a part of others."""
    if not isinstance(content, dict):
        return None
    name = content.get("group") or content.get("task")
    return name if isinstance(name, str) else None


def check_installed() -> str:
    """The version of the harness; UsageError with the cure where it is not installed."""
    if find_spec("lm_eval") is None:
        message = "benchmark_scores needs the lm-eval harness, which is not installed"
        raise UsageError(message, hint=CURE)
    return version("lm_eval")


def run_harness(
    model: Path,
    tasks: Tasks,
    names: Sequence[str],
    *,
    batch_size: int = 8,
    limit: int | None = None,
    device: str = "cpu",
    say: Say | None = None,
) -> dict[str, Any]:
    """Score the model in a folder on tasks; returns what the harness writes, as JSON values.

    Relative paths of data files start at the folder of the tasks. Raises GristmillError with the
    harness's last lines where it fails.
    """
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "lm_eval", "run", "--model", "hf"]
        command += ["--model_args", f"pretrained={model.absolute()},dtype=float32"]
        command += ["--include_path", ".", "--tasks", ",".join(names), "--device", device]
        command += ["--batch_size", str(batch_size), "--output_path", f"{scratch}/scores"]
        command += ["--limit", str(limit)] if limit else []
        cache = {"HF_DATASETS_CACHE": f"{scratch}/datasets"}
        ended = run_command(
            command, env={**os.environ, **OFFLINE, **cache}, cwd=tasks.folder, say=say
        )
        files = sorted(Path(scratch, "scores").rglob("results*.json"))
        if ended.code or not files:
            said = [line.strip() for line in ended.tail if line.strip()]
            message = f"the lm-eval harness failed with exit code {ended.code}"
            message += f": {said[-1]}" if said else ""
            last = "\n".join(said[-LAST_LINES:])
            hint = f"it has no network here; the last lines of its log stand below\n{last}"
            raise GristmillError(message, hint=hint)
        found: dict[str, Any] = json.loads(files[-1].read_text(encoding="utf-8"))
        return found


def score_rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a task and metric, in the harness's order."""
    rows = []
    counts = found.get("n-samples", {})
    for task, results in found["results"].items():
        for key, value in results.items():
            metric, _, chosen = key.partition(",")
            if metric.endswith("_stderr") or not isinstance(value, int | float) or not chosen:
                continue
            error = results.get(f"{metric}_stderr,{chosen}")
            rows.append(
                {
                    "task": task,
                    "metric": metric if chosen == "none" else key,
                    "value": round(float(value), 6),
                    "stderr": round(error, 6) if isinstance(error, int | float) else None,
                    "examples": counts.get(task, {}).get("effective"),
                }
            )
    return rows
