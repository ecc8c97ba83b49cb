"""load: training samples of one pass, against plain slices of a memory map.

The peer is the floor: tokens in the order of the file, cut anywhere, no targets or documents.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

BATCH = 16


def ours(material: Material) -> Trial:
    """`Loader.batch` over one pass of the rows, in the order of training."""
    import numpy as np

    from training.data import Batch, Loader, open_source
    from training.order import Order
    from training.recipes import tiny_cpu

    source = open_source("web", [material.path("bench")], tiny_cpu().context)
    steps = source.n_rows // BATCH
    order = Order(["web"], [source.n_rows], [(source.n_rows, [1.0])], seed=0)
    loader = Loader([source], order)
    loader.batch(range(BATCH))

    def finding(batches: list[Batch]) -> "pl.DataFrame":
        counts = sum(
            np.bincount(b.tokens[b.documents >= 0].ravel(), minlength=1 << 16) for b in batches
        )
        return _counts(counts)

    size = int(steps * BATCH * tiny_cpu().context * source.shards[0].tokens.itemsize)
    return Trial(
        run=lambda: [loader.batch(range(n, n + BATCH)) for n in range(0, steps * BATCH, BATCH)],
        finding=finding,
        documents=steps * BATCH,
        size=size,
    )


def memmap(material: Material) -> Trial:
    """Batches of `context` tokens one behind the other, as int64."""
    import numpy as np

    from training.recipes import tiny_cpu
    from training.shards import Shard

    context = tiny_cpu().context
    tokens = Shard.open(material.path("bench")).tokens
    steps = len(tokens) // (BATCH * context)

    def batch(step: int) -> Any:
        begin = step * BATCH * context
        return tokens[begin : begin + BATCH * context].reshape(BATCH, context).astype(np.int64)

    batch(0)

    def finding(batches: list[Any]) -> "pl.DataFrame":
        return _counts(sum(np.bincount(b.ravel(), minlength=1 << 16) for b in batches))

    return Trial(
        run=lambda: [batch(step) for step in range(steps)],
        finding=finding,
        documents=steps * BATCH,
        size=steps * BATCH * context * tokens.itemsize,
    )


def _counts(counts: Any) -> "pl.DataFrame":
    import numpy as np
    import polars as pl

    return pl.DataFrame({"count": np.asarray(counts, np.int64)})


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """How often each token was read: the same but for the last, unfilled batch of either side."""
    differ = int((ours["count"] - theirs["count"]).abs().sum())
    return {
        "tokens_ours": int(ours["count"].sum()),
        "tokens_theirs": int(theirs["count"].sum()),
        "tokens_differ": differ,
    }
