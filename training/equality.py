"""The equality matrix: every way to spread a run gives the losses of a single process.

`python -m training.equality [--json FILE]` trains a small model for five steps on fixed data, once
in one process and once for every row of `ROWS` on its number of processes (gloo on CPUs, nccl where
there are GPUs enough), with the trainer's own model, gradients, clipping, gate and optimiser. It
prints the largest relative difference of loss and of gradient norm, and exits 1 where a loss is
further off than the row allows. The allowances are those of reordered sums: 5e-6 in float32, 1e-5
with experts, and 1e-3 where bfloat16 takes part (Muon iterates in it).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STEPS, SEQUENCES, CONTEXT, VOCABULARY = 5, 8, 32, 64
BIAS_RATE = 1e-2
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


EXACT, ROUTED, ROUGH = 5e-6, 1e-5, 1e-3
MOE = {"model": DENSE | {"moe": EXPERTS}}
ROWS = (
    Row("FSDP2 x 2", 2, EXACT),
    Row("FSDP2 x 4, micro-batches of 1", 4, EXACT, keys={"micro_batch": 1}),
    Row("HSDP 2 x 2", 4, EXACT, {"replicate": 2}),
    Row("tensor + sequence x 2", 2, EXACT, {"tensor": 2}),
    Row("FSDP2 x 2, tensor x 2", 4, EXACT, {"tensor": 2}),
    Row("pipeline (1F1B) x 2", 2, EXACT, {"pipeline": 2}, {"micro_batch": 2}),
    Row("pipeline x 2, FSDP2 x 2", 4, EXACT, {"pipeline": 2}, {"micro_batch": 1}),
    Row("pipeline x 2, tensor x 2", 4, EXACT, {"pipeline": 2, "tensor": 2}, {"micro_batch": 4}),
    Row("experts, FSDP2 x 2", 2, ROUTED, {}, {}, MOE),
    Row("experts x 2, FSDP2 x 2", 4, ROUTED, {"expert": 2}, {}, MOE),
    Row("recompute: full, FSDP2 x 2", 2, EXACT, {"recompute": "full"}),
    Row("recompute: selective, FSDP2 x 2", 2, EXACT, {"recompute": "selective"}),
    Row("bfloat16, float32 sums, FSDP2 x 2", 2, ROUGH, {}, {}, {"dtype": "bfloat16"}),
    Row("Muon, FSDP2 x 2", 2, ROUGH, {}, {}, {"optimizer": "muon"}),
)
NOT_RUN = {
    "context parallel": "not built; torch's has no sharding rule for attention on CPUs either",
    "CPU offload of weights": "not built; FSDP2's needs an accelerator",
    "varlen and flex attention": "CUDA only, or no backward pass on CPUs",
    "float8": "matrix units of a GPU; its arithmetic is tested on CPUs by itself",
    "compile": "over a minute a row on CPUs",
    "NCCL": "needs GPUs; this command uses it where there are enough",
}


def batch(step: int) -> list[Any]:
    """Tokens, positions, documents, mask, targets of a global batch, each [SEQUENCES, CONTEXT]:
    walks with few successors, in documents of 5 to 20 tokens, the last one padding."""
    import torch

    draw = torch.Generator().manual_seed(step)
    steps = torch.randint(0, 3, (SEQUENCES, CONTEXT + 1), generator=draw)
    ids = (steps.cumsum(1) + torch.randint(0, VOCABULARY, (SEQUENCES, 1), generator=draw)) % (
        VOCABULARY
    )
    lengths = torch.randint(5, 20, (SEQUENCES, CONTEXT), generator=draw)
    starts = torch.zeros(SEQUENCES, CONTEXT + 1, dtype=torch.bool)
    starts.scatter_(1, lengths.cumsum(1).clamp(max=CONTEXT), True)
    documents = starts[:, :-1].long().cumsum(1)
    places = torch.arange(CONTEXT).expand(SEQUENCES, -1)
    begins = torch.where(starts[:, :-1] | (places == 0), places, 0).cummax(1).values
    documents = torch.where(places >= CONTEXT - 2, -1, documents)
    mask = (documents >= 0) & ~starts[:, 1:]
    return [ids[:, :-1].contiguous(), places - begins, documents, mask, ids[:, 1:].contiguous()]


def run_row(row: Row, device: Any, *, alone: bool) -> dict[str, list[float]]:
    """`losses` and `norms` of the steps; all ranks call it, and all get the same."""
    from training.config import RunConfig
    from training.guards import Guard
    from training.layout import check_layout
    from training.model import Decoder
    from training.moe import update_biases
    from training.norms import clip_gradients, gradient_norm
    from training.optim import build_optimizer, held
    from training.parallel import parallelise
    from training.world import place

    keys: dict[str, Any] = {"model": DENSE, "micro_batch": SEQUENCES} | row.reference
    if not alone:
        keys |= row.keys | {"parallel": row.parallel}
    config = RunConfig(
        name="equality", recipe="tiny_cpu", shards=[Path()], tokenizer=Path(), out=Path(),
        parent_root=Path(), steps=STEPS, warmup_steps=0, context=CONTEXT, global_batch=SEQUENCES,
        lr=1e-3, **keys,
    )  # fmt: skip
    world = place(check_layout(config, 1 if alone else row.world, VOCABULARY), device)
    model = Decoder(config.model, VOCABULARY, CONTEXT)
    model.init_weights(0)
    spread = parallelise(model.to(device), world, config)
    optimizer = build_optimizer(spread, config)
    guard = Guard(config.spikes, config.max_skips, device)
    losses, norms = [], []
    for step in range(STEPS):
        fields = [f.chunk(world.data_size)[world.data_rank].to(device) for f in batch(step)]
        targets = world.sum_(fields[3].sum().double())
        optimizer.zero_grad(set_to_none=True)
        sums, _ = spread.accumulate(fields, (1 / targets).float())
        norm = gradient_norm(held(optimizer), world)
        clip_gradients(held(optimizer), config.clip, norm)
        loss = world.sum_(sums)[0] / targets
        verdict = guard.step(optimizer, loss, norm)
        update_biases(spread.model, BIAS_RATE, verdict.refused, world.sum_)
        losses.append(loss.item())
        norms.append(norm.item())
    return {"losses": losses, "norms": norms}


def run_rank(rows: Sequence[Row], out: Path) -> None:
    """All rows of one number of processes, in one process group; the first rank writes them."""
    import torch.distributed as dist

    from training.world import join

    world = join("auto", 120)
    found = [run_row(row, world.device, alone=world.size == 1) for row in rows]
    if world.first:
        out.write_text(json.dumps(found))
    dist.destroy_process_group()


def launch(rows: Sequence[Row], world: int) -> list[dict[str, list[float]]]:
    """Run rows on `world` processes here; RuntimeError with what they wrote if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        numbers = [str(ROWS.index(row)) for row in rows]
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={world}", "-m", "training.equality"]
        command += ["--out", str(out), "--rows", *numbers]
        environment = {"OMP_NUM_THREADS": "1"} | os.environ
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        if done.returncode:
            message = f"{world} processes ended with {done.returncode}:\n{done.stderr[-6000:]}"
            raise RuntimeError(message)
        found: list[dict[str, list[float]]] = json.loads(out.read_text())
        return found


def measure(rows: Sequence[Row] = ROWS) -> list[dict[str, Any]]:
    """Every row with the largest relative differences of its losses and norms from one process."""
    alone: dict[str, dict[str, list[float]]] = {}
    unique = {json.dumps(row.reference): row for row in rows}
    for key, found in zip(unique, launch(list(unique.values()), 1), strict=True):
        alone[key] = found
    spread: dict[str, dict[str, list[float]]] = {}
    for world in sorted({row.world for row in rows}):
        those = [row for row in rows if row.world == world]
        spread |= zip((row.name for row in those), launch(those, world), strict=True)
    return [_compared(row, alone[json.dumps(row.reference)], spread[row.name]) for row in rows]


def _compared(
    row: Row, one: dict[str, list[float]], many: dict[str, list[float]]
) -> dict[str, Any]:
    off = {
        key: max(abs(a - b) / abs(b) for a, b in zip(many[key], one[key], strict=True))
        for key in ("losses", "norms")
    }
    holds = off["losses"] <= row.allowed
    return asdict(row) | {"one": one, "many": many, "loss_off": off["losses"],
                          "norm_off": off["norms"], "holds": holds}  # fmt: skip


def table(found: Sequence[dict[str, Any]]) -> str:
    """The matrix as text."""
    lines = [f"{'':36} ranks   last loss   loss off  allowed  norm off"]
    for row in found:
        lines.append(
            f"{row['name']:36} {row['world']:5}  {row['many']['losses'][-1]:10.7f}  "
            f"{row['loss_off']:9.1e} {row['allowed']:8.0e} {row['norm_off']:9.1e}"
            f"  {'holds' if row['holds'] else 'DIFFERS'}"
        )
    lines += [f"{name:36} not run: {why}" for name, why in NOT_RUN.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the matrix; exit code 1 where a row differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write losses and differences to this file too")
    parser.add_argument("--rows", type=int, nargs="*", help="only these, by number from 0")
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)  # set for the ranks
    given = parser.parse_args(arguments)
    rows = ROWS if given.rows is None else [ROWS[n] for n in given.rows]
    if given.out:
        run_rank(rows, given.out)
        return 0
    found = measure(rows)
    sys.stdout.write(table(found) + "\n")
    if given.json:
        given.json.write_text(json.dumps({"rows": found, "not_run": NOT_RUN}, indent=1) + "\n")
    return 0 if all(row["holds"] for row in found) else 1


if __name__ == "__main__":
    sys.exit(main())
