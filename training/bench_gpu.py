"""What training reaches on one GPU, in under ten minutes: `python -m training.bench_gpu --out F`.

Every stage (see `training.bench_stages`) is a process of its own with its own time budget, so that
one that fails, hangs or ruins its device costs the others nothing; what it had measured by then
counts. The JSON file is whole after every stage. Needs torch >= 2.11, NumPy, pydantic and PyYAML,
no network and no data: shards are drawn at random. `--dry-run` does all of it in small shapes on
a CPU, which proves the script and measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from training.saving.files import write_text
from training.shards import write_shard
from training.vocabulary import END_OF_TEXT, byte_characters

DEADLINE_SECONDS = 560.0
"""For everything; a stage whose turn comes later is left out."""
STAGES: dict[str, float] = {
    "ceiling": 40,
    "dense": 200,
    "mask": 120,
    "loss": 50,
    "muon": 80,
    "moe": 130,
}
"""Stages in order, and the most seconds of each: start, compilation and measurement."""
LAST_LINES = 15
FULL = {"vocab": 128_256, "tokens": 24_000_000, "mean": 900}
DRY = {"vocab": 512, "tokens": 40_000, "mean": 40}


def main(arguments: list[str] | None = None) -> int:
    """Run the stages; 0 where all of them measured all they had to, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="JSON file of all stages")
    parser.add_argument("--dry-run", action="store_true", help="small shapes on the CPU")
    parser.add_argument("--stages", default=",".join(STAGES), help="some of them, by comma")
    parser.add_argument("--seconds", type=float, default=DEADLINE_SECONDS, help="for all stages")
    given = parser.parse_args(arguments)
    names = given.stages.split(",")
    if unknown := sorted(set(names) - STAGES.keys()):
        parser.error(f"no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    end = time.monotonic() + given.seconds
    given.out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"dry_run": given.dry_run, "host": host(), "stages": {}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        make_material(folder, **(DRY if given.dry_run else FULL))
        for name in names:
            budget = min(STAGES[name], end - time.monotonic())
            say(f"{name}: up to {max(budget, 0):.0f} s")
            found["stages"][name] = run_stage(name, folder, budget, dry=given.dry_run)
            for path in (given.out, folder / "results.json"):
                write_text(path, json.dumps(found, indent=1) + "\n")
            say(json.dumps(found["stages"][name]))
    return 0 if all(stage["status"] == "done" for stage in found["stages"].values()) else 1


def say(text: str) -> None:
    """A line on standard error, at once."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def run_stage(name: str, folder: Path, seconds: float, *, dry: bool) -> dict[str, Any]:
    """One stage in a process of its own: `status` (done, failed, timed out, left out), seconds,
    what it measured, and the last lines of its log where it did not end well."""
    if seconds < 5:
        return {"status": "left out", "error": "no time was left for it"}
    out, log = folder / f"{name}.json", folder / f"{name}.log"
    command = [sys.executable, "-m", "training.bench_stages", name, str(folder), str(out)]
    command += ["--dry-run"] if dry else []
    began = time.monotonic()
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            env=environment(folder, dry=dry),
        )  # fmt: skip
        try:
            status = "failed" if process.wait(seconds) else "done"
        except subprocess.TimeoutExpired:
            status = "timed out"
        finally:
            kill(process)
    found: dict[str, Any] = {"status": status, "seconds": round(time.monotonic() - began, 1)}
    if out.exists():
        found |= json.loads(out.read_text(encoding="utf-8"))
    if status != "done":
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        found["log"] = lines[-LAST_LINES:]
    return found


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a stage and the compilers it started."""
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def environment(folder: Path, *, dry: bool) -> dict[str, str]:
    """No launcher's variables, one cache of compiled kernels for all stages, this checkout."""
    dropped = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "MLFLOW_",
        "DAGSTER_",
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    root = str(Path(__file__).resolve().parents[1])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (root, env.get("PYTHONPATH"))))
    env["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    env.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    return env | ({"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} if dry else {})


def host() -> dict[str, Any]:
    """What the figures belong to."""
    found: dict[str, Any] = {"python": platform.python_version(), "cpus": os.cpu_count()}
    query = "name,driver_version,memory.total,power.limit,clocks.max.sm"
    try:
        told = subprocess.run(
            ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
        found["nvidia_smi"] = told.stdout.strip().splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        found["nvidia_smi"] = f"{type(error).__name__}: {error}"
    return found


def make_material(folder: Path, *, vocab: int, tokens: int, mean: int) -> None:
    """A tokenizer of `vocab` entries and a shard of documents of log-normal length, no text."""
    entries = {END_OF_TEXT: 0} | {c: n + 1 for n, c in enumerate(byte_characters())}
    entries |= {f"t{n}": n for n in range(len(entries), vocab)}
    special = {"id": 0, "content": END_OF_TEXT, "special": True}
    content = {"added_tokens": [special], "model": {"type": "BPE", "vocab": entries, "merges": []}}
    write_text(folder / "tokenizer.json", json.dumps(content))
    draw = np.random.default_rng(0)
    n_documents = max(tokens // mean, 8)
    lengths = draw.lognormal(np.log(mean) - 0.5, 1.0, n_documents).astype(np.int64) + 2
    ids = (draw.random(int(lengths.sum())) ** 3 * (vocab - 1)).astype(np.int64) + 1
    ids[np.cumsum(lengths) - 1] = 0
    (folder / "shards").mkdir()
    sidecar = {"source": "web", "split": "train"}
    write_shard(folder / "shards" / "web-0", ids, lengths, vocab_size=vocab, sidecar=sidecar)


if __name__ == "__main__":
    sys.exit(main())
