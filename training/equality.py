"""The equality matrix: every way to spread a run gives the losses of a single process.

`python -m training.equality [--json FILE]` trains a small model for five steps on fixed data, once
in one process and once for every row of `ROWS` on its number of processes (gloo on CPUs, nccl where
there are GPUs enough), with the trainer's own model, gradients, clipping, gate, optimiser and
checkpoints. It prints the largest relative difference of loss, gradient norm and held-out loss, and
exits 1 where a loss is further off than the row allows. The allowances are those of reordered sums:
5e-6 in float32, 1e-5 with experts and after a checkpoint, and 1e-3 where bfloat16 takes part (Muon
iterates in it). AdamW hardly sees the size of a gradient, so norms are held to ten times that, and
the gradient of each parameter in the first step to twenty times that.

What a row does on its ranks stands in `training.equality_rank`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STEPS, SEQUENCES, CONTEXT, VOCABULARY = 5, 8, 32, 64
SAVED_AT = 3
"""Steps before the checkpoint that other rows go on from."""
DENSE = {"layers": 4, "dim": 32, "heads": 4, "kv_heads": 2, "ffn": 96}
EXPERTS = {"n_experts": 8, "top_k": 2, "expert_ffn": 32, "aux_loss": 1e-2, "router_z_loss": 1e-3}


@dataclass(frozen=True)
class Row:
    """A way to spread a run, and how far its losses may be from those of one process."""

    name: str
    world: int
    allowed: float
    parallel: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)
    """Keys of the run file that are its own; they do not change the result."""
    reference: dict[str, Any] = field(default_factory=dict)
    """Keys of the run file that the single process has as well."""
    goes_on_from: str = ""
    """Row whose checkpoint it begins with: one above it, or on more processes."""

    @property
    def key(self) -> str:
        """Names the single process that it is compared with."""
        return f"{zlib.crc32(json.dumps(self.reference).encode()):08x}"


EXACT, ROUTED, ROUGH = 5e-6, 1e-5, 1e-3
MOE = {"model": DENSE | {"moe": EXPERTS}}
ALONE = {"model": DENSE | {"moe": EXPERTS | {"aux_loss": 0.0}}}
TIED = {"model": DENSE | {"tied_embeddings": True}}
ROWS = (
    Row("FSDP2 x 2", 2, EXACT),
    Row("FSDP2 x 4, micro-batches of 1", 4, EXACT, {}, {"micro_batch": 1}),
    Row("HSDP 2 x 2", 4, EXACT, {"replicate": 2}),
    Row("tensor + sequence x 2", 2, EXACT, {"tensor": 2}),
    Row("tensor x 2, FSDP2 x 2, tied", 4, EXACT, {"tensor": 2}, {}, TIED),
    Row("pipeline (1F1B) x 2", 2, EXACT, {"pipeline": 2}, {"micro_batch": 2}),
    Row("pipeline x 2, FSDP2 x 2", 4, EXACT, {"pipeline": 2}, {"micro_batch": 1}),
    Row("pipeline x 2, tensor x 2", 4, EXACT, {"pipeline": 2, "tensor": 2}, {"micro_batch": 4}),
    Row("pipeline x 4, fewer micro-batches", 4, EXACT, {"pipeline": 4}, {"micro_batch": 4}),
    Row("experts, FSDP2 x 2", 2, ROUTED, {}, {}, MOE),
    Row("experts x 2, FSDP2 x 2", 4, ROUTED, {"expert": 2}, {}, MOE),
    Row("experts x 4, tensor x 2, FSDP2 x 2", 4, ROUTED, {"expert": 4, "tensor": 2}, {}, ALONE),
    Row("experts x 2, HSDP 2 x 2", 4, ROUTED, {"expert": 2, "replicate": 2}, {}, MOE),
    Row(
        "experts x 2, pipeline x 2, recompute", 4, ROUTED,
        {"expert": 2, "pipeline": 2, "recompute": "full"}, {"micro_batch": 2}, MOE,
    ),
    Row("recompute: full, FSDP2 x 2", 2, EXACT, {"recompute": "full"}),
    Row("recompute: selective, FSDP2 x 2", 2, EXACT, {"recompute": "selective"}),
    Row(
        "compiler's graphs, tensor x 2, recompute", 2, EXACT,
        {"tensor": 2, "recompute": "selective", "compile": "on"},
    ),
    Row("bfloat16, float32 sums, FSDP2 x 2", 2, ROUGH, {}, {}, {"dtype": "bfloat16"}),
    Row("Muon, FSDP2 x 2", 2, ROUGH, {}, {}, {"optimizer": "muon"}),
    Row("Muon, FSDP2 x 2, tensor x 2", 4, ROUGH, {"tensor": 2}, {}, {"optimizer": "muon"}),
    Row(
        "checkpoint: FSDP2 x 4 to pipeline x tensor", 4, ROUTED,
        {"pipeline": 2, "tensor": 2}, {"micro_batch": 4}, {}, "FSDP2 x 4, micro-batches of 1",
    ),
    Row(
        "checkpoint: pipeline x tensor to FSDP2 x 2", 2, ROUTED,
        {}, {}, {}, "pipeline x 2, tensor x 2",
    ),
    Row(
        "checkpoint: experts x 2 to FSDP2 x 2", 2, ROUTED,
        {}, {}, MOE, "experts x 2, FSDP2 x 2",
    ),
)  # fmt: skip
NOT_RUN = {
    "context parallel": "not built; torch's has no sharding rule for attention on CPUs either",
    "CPU offload of weights": "not built; FSDP2's needs an accelerator",
    "varlen and flex attention": "CUDA only, or no backward pass on CPUs",
    "float8": "matrix units of a GPU; its arithmetic is tested on CPUs by itself",
    "kernels of the compiler": "over a minute a row on CPUs; only its graphs are run",
    "NCCL": "needs GPUs; this command uses it where there are enough",
}
Found = dict[str, Any]
"""Of a row: `losses` and `norms` of its steps, `held_out`, `held` (the most that a rank holds of
the weights, as a share), `gradients` (the worst of the first step, relative)."""


def launch(rows: Sequence[Row], world: int, folder: Path) -> list[Found]:
    """Run rows on `world` processes here; RuntimeError with what they wrote if one fails.

    Checkpoints that rows go on from lie in `folder`.
    """
    out = folder / "found.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world}", "-m", "training.equality_rank", str(folder)]
    command += [str(ROWS.index(row)) for row in rows]
    environment = {"OMP_NUM_THREADS": "1"} | os.environ
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        message = f"{world} processes ended with {done.returncode}:\n{done.stderr[-6000:]}"
        raise RuntimeError(message)
    found: list[Found] = json.loads(out.read_text())
    return found


def measure(rows: Sequence[Row] = ROWS) -> list[dict[str, Any]]:
    """Every row with the largest relative differences from one process."""
    unique = {row.key: row for row in rows}
    spread: dict[str, Found] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        alone = dict(zip(unique, launch(list(unique.values()), 1, folder), strict=True))
        for world in sorted({row.world for row in rows}, reverse=True):
            those = [row for row in rows if row.world == world]
            names = (row.name for row in those)
            spread |= zip(names, launch(those, world, folder), strict=True)
    return [_compared(row, alone[row.key], spread[row.name]) for row in rows]


def _compared(row: Row, one: Found, many: Found) -> dict[str, Any]:
    off = {}
    for key in ("losses", "norms", "held_out"):
        pairs = zip(reversed(many[key]), reversed(one[key]), strict=False)
        off[key] = max(abs(a - b) / abs(b) for a, b in pairs)
    holds = off["losses"] <= row.allowed and off["held_out"] <= row.allowed
    off["gradients"] = many["gradients"]
    holds = holds and off["norms"] <= 10 * row.allowed
    holds = holds and off["gradients"] <= 20 * row.allowed
    return asdict(row) | {"one": one, "many": many, "off": off, "holds": holds}


def table(found: Sequence[dict[str, Any]]) -> str:
    """The matrix as text."""
    told = "ranks  weights here  last loss   loss off  allowed  norm off  held out  worst gradient"
    lines = [f"{'':42} {told}"]
    for row in found:
        many, off = row["many"], row["off"]
        worst = "-" if row["goes_on_from"] else f"{off['gradients']:.1e}"
        lines.append(
            f"{row['name']:42} {row['world']:5} {100 * many['held']:12.1f}% "
            f"{many['losses'][-1]:10.7f} {off['losses']:10.1e} {row['allowed']:8.0e} "
            f"{off['norms']:9.1e} {off['held_out']:9.1e} {worst:>15}"
            f"  {'holds' if row['holds'] else 'DIFFERS'}"
        )
    lines += [f"{name:42} not run: {why}" for name, why in NOT_RUN.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the matrix; exit code 1 where a row differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write losses and differences to this file too")
    parser.add_argument("--rows", type=int, nargs="*", help="only these, by number from 0")
    given = parser.parse_args(arguments)
    rows = ROWS if given.rows is None else [ROWS[n] for n in given.rows]
    needed = {row.goes_on_from for row in rows}
    rows = [row for row in ROWS if row in rows or row.name in needed]
    found = measure(rows)
    sys.stdout.write(table(found) + "\n")
    if given.json:
        given.json.write_text(json.dumps({"rows": found, "not_run": NOT_RUN}, indent=1) + "\n")
    return 0 if all(row["holds"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
