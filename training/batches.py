"""The hash of every global batch of a run, read by 1, 2, 4, ... processes: they must agree.

    torchrun --nproc-per-node 4 -m training.batches RUN.yaml --steps 1:8 --ranks 1,2,4

Each rank reads its own share, as in training, and hashes tokens, targets, positions, documents and
mask of every sequence; the first rank puts them together in the order of their sample indices. The
ledger of the run is honoured, so the batches are those that training reads or has read. Without
`torchrun` one process reads the share of every rank in turn. Exit code 1 where two differ.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Sequence

from training.config import RunConfig, load_run
from training.data import Batch, Loader
from training.errors import RunConfigError, TrainingError
from training.plan import open_data
from training.samples.course import Course
from training.shards import ShardError
from training.spikes.ledger import read_ledger
from training.vocabulary import Vocabulary

Digests = dict[int, str]
Shares = Callable[[Sequence[int], int], list[Digests]]
"""(indices of a global batch, number of ranks) to what each of these ranks reads of it."""


def digests(batch: Batch, indices: Sequence[int]) -> Digests:
    """Sample index to the SHA-256 of all that training gets of it."""
    fields = (batch.tokens, batch.targets, batch.positions, batch.documents, batch.mask)
    return {
        index: hashlib.sha256(b"".join(field[row].tobytes() for field in fields)).hexdigest()
        for row, index in enumerate(indices)
    }


def share_of(loader: Loader, indices: Sequence[int], rank: int, world: int) -> Digests:
    """What one of `world` ranks reads of a global batch."""
    size = len(indices) // world
    own = indices[rank * size : (rank + 1) * size]
    return digests(loader.batch(indices, rank, world), own)


def batch_hash(parts: Sequence[Digests], indices: Sequence[int]) -> str:
    """One hash of a global batch from the shares; TrainingError where they are not all of it."""
    found = [item for part in parts for item in part.items()]
    if sorted(index for index, _ in found) != list(indices):
        message = f"the shares hold samples {sorted(i for i, _ in found)}, not {list(indices)}"
        raise TrainingError(message, hint="this is a bug in training.data")
    return hashlib.sha256("".join(digest for _, digest in sorted(found)).encode()).hexdigest()


def table(
    run: RunConfig, steps: range, worlds: Sequence[int], shares: Shares
) -> list[tuple[int, Sequence[int], list[str]]]:
    """(step, sample indices, hash at each number of ranks) of every step; the same on all ranks."""
    course = Course(run, read_ledger(run.out).left_out)
    rows = []
    for step in steps:
        indices = course.indices(step)
        hashes = [batch_hash(shares(indices, world), indices) for world in worlds]
        rows.append((step, indices, hashes))
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="the run file, runs/<name>.yaml")
    parser.add_argument("--steps", default="1:10", metavar="A:B", help="default: 1:10")
    parser.add_argument("--ranks", default="1,2,4", metavar="N,N", help="default: 1,2,4")
    given = parser.parse_args(arguments)
    try:
        run = load_run(given.run)
        first, _, last = given.steps.partition(":")
        steps = range(int(first), int(last or first) + 1)
        worlds = [int(n) for n in given.ranks.split(",")]
        for world in worlds:
            run.accumulation(world)
        loader = open_data(run, Vocabulary.open(run.tokenizer)).loader
        rank, rows = _rows(run, loader, steps, worlds)
    except (TrainingError, ShardError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return getattr(error, "exit_code", 1)
    if rank == 0:
        heads = "  ".join(f"{f'{n} ranks' if n > 1 else '1 rank':<16}" for n in worlds)
        print(f"{'step':>6}  {'sequences':>9}  {'samples':<17}  {heads}")
        for step, indices, hashes in rows:
            shown = "  ".join(found[:16] for found in hashes)
            samples = f"{indices[0]}..{indices[-1]}"
            print(f"{step:>6}  {len(indices):>9}  {samples:<17}  {shown}", flush=True)
    return int(any(len(set(hashes)) > 1 for _, _, hashes in rows))


def _rows(
    run: RunConfig, loader: Loader, steps: range, worlds: Sequence[int]
) -> tuple[int, list[tuple[int, Sequence[int], list[str]]]]:
    if "WORLD_SIZE" not in os.environ:

        def in_turn(indices: Sequence[int], world: int) -> list[Digests]:
            return [share_of(loader, indices, rank, world) for rank in range(world)]

        return 0, table(run, steps, worlds, in_turn)
    import torch.distributed as dist

    dist.init_process_group("gloo")
    try:
        n, rank = dist.get_world_size(), dist.get_rank()
        if max(worlds) > n:
            message = f"{max(worlds)} ranks are asked for, and {n} processes were started"
            raise RunConfigError(message, hint=f"start --nproc-per-node {max(worlds)}")

        def gathered(indices: Sequence[int], world: int) -> list[Digests]:
            box: list[Digests] = [{}] * n
            own = share_of(loader, indices, rank, world) if rank < world else {}
            dist.all_gather_object(box, own)
            return box

        return rank, table(run, steps, worlds, gathered)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
