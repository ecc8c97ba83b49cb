"""`gristmill demo` as a user runs it, one undisturbed run shared by all tests of a session.

`identity` says what a demo made, by content: two demos made the same when it is equal.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SECONDS = 1_800
"""The demo takes about two minutes on two idle cores; CI machines are neither."""
_done: dict[str, Demo] = {}


@dataclass(frozen=True)
class Demo:
    """A demo that has ended well."""

    root: Path
    result: dict[str, Any]
    """The one JSON object on stdout."""
    told: str
    """What a person reads while it works."""


def command(root: Path, *more: str) -> list[str]:
    """The command line of a demo in `root`."""
    return [str(Path(sys.executable).with_name("gristmill")), "demo", "--root", str(root), *more]


def environment() -> dict[str, str]:
    """A user's: no Dagster home, MLflow server or store of a developer in it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("DAGSTER_", "GRISTMILL_"))}
    return {k: v for k, v in kept.items() if not k.startswith("MLFLOW_")}


def run(root: Path, *more: str) -> Demo:
    """Run a demo to its end."""
    done = subprocess.run(
        command(root, "--json", *more),
        cwd=root.parent,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("\n") == 1
    return Demo(root, json.loads(done.stdout), done.stderr)


def undisturbed(factory: pytest.TempPathFactory) -> Demo:
    """The demo that nothing disturbed, made once a session."""
    if "demo" not in _done:
        _done["demo"] = run(factory.mktemp("demo") / "store")
    return _done["demo"]


def identity(root: Path) -> dict[str, str]:
    """Dataset folder -> manifest, and what names the training: losses, checkpoint, weights."""
    found = {
        str(pointer.parent.relative_to(root)): pointer.read_text().strip()
        for pointer in sorted(root.glob("**/current"))
    }
    run = root / "checkpoints/demo"
    result = json.loads((run / "result.json").read_text())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [[line["step"], line["loss"], line["batch_checksum"]] for line in lines]
    model = (root / "hf_model/demo/model.safetensors").read_bytes()
    return found | {
        "checkpoint": result["checkpoint"]["identity"],
        "held_out": str(result["held_out"]["bits_per_byte"]),
        "losses": json.dumps(losses),
        "model": hashlib.sha256(model).hexdigest(),
    }
