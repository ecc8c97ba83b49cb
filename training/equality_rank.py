"""One rank of the equality matrix: `training.equality_rank FOLDER ROW...`, started by torchrun.

Runs rows of `training.equality.ROWS` one after the other in one process group; the first rank
writes what they found to FOLDER/found.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from training.checkpoint import Checkpoints
from training.config import RunConfig
from training.equality import (
    CONTEXT,
    DENSE,
    ROWS,
    SAVED_AT,
    SEQUENCES,
    STEPS,
    VOCABULARY,
    Found,
    Row,
)
from training.guards import Guard
from training.layouts import compiling
from training.layouts.layout import check_layout
from training.layouts.norms import clip_gradients, gradient_norm, local
from training.model import Decoder
from training.network.losses import token_losses
from training.network.moe import update_biases
from training.optim import build_optimizer, held
from training.parallel import ParallelModel, parallelise
from training.world import World, join, place

BIAS_RATE = 1e-2
SAVED = {row.goes_on_from for row in ROWS}


def main() -> None:
    """Run the rows named on the command line."""
    folder, rows = Path(sys.argv[1]), [ROWS[int(n)] for n in sys.argv[2:]]
    world = join("auto", 120)
    if world.device.type == "cpu":
        compiling.BACKEND = "aot_eager"  # the same graphs, run without kernels made for them
    found = [run(row, world.device, folder) for row in rows]
    if world.first:
        (folder / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def settings(row: Row, *, alone: bool) -> RunConfig:
    """The run file of a row; `alone`: of the single process that it is compared with."""
    nowhere = Path()
    keys = {"model": DENSE, "micro_batch": SEQUENCES} | row.reference
    if not alone:
        keys |= row.keys | {"parallel": row.parallel}
    return RunConfig.model_validate(
        {
            "name": "equality", "recipe": "tiny_cpu", "shards": [nowhere], "tokenizer": nowhere,
            "out": nowhere, "parent_root": nowhere, "steps": STEPS, "warmup_steps": 0,
            "context": CONTEXT, "global_batch": SEQUENCES, "lr": 1e-3,
        }
        | keys
    )  # fmt: skip


def run(row: Row, device: torch.device, folder: Path) -> Found:
    """Train for the steps of a row; all ranks call it, and all get the same."""
    alone = dist.get_world_size() == 1
    config = settings(row, alone=alone)
    world = place(check_layout(config, dist.get_world_size(), VOCABULARY), device)
    with torch.device("meta"):
        model = Decoder(config.model, VOCABULARY, CONTEXT)
    total = sum(p.numel() for p in model.parameters())
    spread = parallelise(model, world, config)
    spread.model.to_empty(device=device)
    spread.model.init_weights(0)
    mine = torch.tensor(sum(local(p).numel() for p in spread.parameters()) / total, device=device)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    optimizer = build_optimizer(spread, config)
    guard = Guard(config.spikes, config.max_skips, device)
    first, name = 0, "" if alone else row.goes_on_from
    if name:
        first, path = SAVED_AT, folder / name / f"step-{SAVED_AT}"
        checkpoints(world, path.parent).load(path, spread.model, optimizer)
    losses, norms, worst = [], [], 0.0
    for number in range(first, STEPS):
        loss, norm = step(spread, optimizer, guard, batch(number))
        losses.append(loss.item())
        norms.append(norm.item())
        if number == 0:
            worst = worst_gradient(spread, folder / f"gradients-{row.key}.pt", alone)
        if number + 1 == SAVED_AT and row.name in SAVED and not alone:
            store = checkpoints(world, folder / row.name)
            store.save(spread.model, optimizer, SAVED_AT, {})
            store.wait()
    held_out = [evaluated(spread, logits).item() for logits in (False, True)]
    return {
        "losses": losses,
        "norms": norms,
        "held_out": held_out,
        "held": mine.item(),
        "gradients": worst,
    }


@torch.no_grad()
def worst_gradient(spread: ParallelModel, path: Path, alone: bool) -> float:
    """The largest relative difference of a parameter's gradient from that of one process.

    A small parameter, such as a norm's weight, moves neither the loss nor the norm enough to show
    that ranks have forgotten to add its gradient up. A single process writes its own to `path`.
    """
    found = {}
    for name, parameter in spread.named_parameters():
        grad = parameter.grad
        assert grad is not None, name
        found[name] = grad.full_tensor() if isinstance(grad, DTensor) else grad
    if alone:
        torch.save({name: grad.cpu() for name, grad in found.items()}, path)
    expected = torch.load(path, map_location=spread.world.device)
    off = [(grad - expected[name]).norm() / expected[name].norm() for name, grad in found.items()]
    worst = torch.stack(off).max()
    dist.all_reduce(worst, op=dist.ReduceOp.MAX)
    return worst.item()


def checkpoints(world: World, folder: Path) -> Checkpoints:
    """Those of a row."""
    return Checkpoints(folder, world, keep=1, stamps={})


def step(
    spread: ParallelModel, optimizer: torch.optim.Optimizer, guard: Guard, whole: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """(loss, norm of the gradient) of a global batch, and one step of the optimiser."""
    world, config = spread.world, spread.config
    fields = share(whole, world)
    targets = world.total_(fields[3].sum().double())
    optimizer.zero_grad(set_to_none=True)
    sums, _ = spread.accumulate(fields, (1 / targets).float())
    norm = gradient_norm(held(optimizer), world)
    clip_gradients(held(optimizer), config.clip, norm)
    loss = world.total_(sums)[0] / targets
    verdict = guard.step(optimizer, loss, norm)
    update_biases(spread.model, BIAS_RATE, verdict.refused, world.sum_)
    return loss, norm


@torch.no_grad()
def evaluated(spread: ParallelModel, through_logits: bool) -> Tensor:
    """Mean nats of a batch that was not trained on, by either way to evaluate."""
    tokens, positions, documents, mask, targets = share(batch(STEPS), spread.world)
    spread.eval()
    if through_logits:
        logits = spread(tokens, positions, documents)
        nats = token_losses(logits.flatten(0, 1), targets.flatten())[0].view(targets.shape)
    else:
        nats = spread.nats(tokens, positions, documents, targets)
    sums = torch.stack([(nats * mask).sum().double(), mask.sum().double()])
    total, count = spread.world.total_(sums)
    return total / count


def share(whole: list[Tensor], world: World) -> list[Tensor]:
    """What a data rank reads of a global batch."""
    return [field.chunk(world.data_size)[world.data_rank].to(world.device) for field in whole]


def batch(number: int) -> list[Tensor]:
    """Tokens, positions, documents, mask, targets of a global batch, each [SEQUENCES, CONTEXT].

    Walks with few successors, in documents of 5 to 20 tokens; the last two tokens are padding.
    """
    draw = torch.Generator().manual_seed(number)
    steps = torch.randint(0, 3, (SEQUENCES, CONTEXT + 1), generator=draw)
    begin = torch.randint(0, VOCABULARY, (SEQUENCES, 1), generator=draw)
    ids = (steps.cumsum(1) + begin) % VOCABULARY
    lengths = torch.randint(5, 20, (SEQUENCES, CONTEXT), generator=draw)
    starts = torch.zeros(SEQUENCES, CONTEXT + 1, dtype=torch.bool)
    starts.scatter_(1, lengths.cumsum(1).clamp(max=CONTEXT), True)
    places = torch.arange(CONTEXT).expand(SEQUENCES, -1)
    begins = torch.where(starts[:, :-1] | (places == 0), places, 0).cummax(1).values
    documents = starts[:, :-1].long().cumsum(1).masked_fill(places >= CONTEXT - 2, -1)
    mask = (documents >= 0) & ~starts[:, 1:]
    return [ids[:, :-1].contiguous(), places - begins, documents, mask, ids[:, 1:].contiguous()]


if __name__ == "__main__":
    main()
