"""load: training samples of some passes, against plain slices of a memory map.

The peer is the floor: tokens in the order of the file, cut anywhere, without targets, positions,
documents, mask and checksum. Ours are whole batches as a rank of training gets them.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

BATCH, CONTEXT, PASSES = 16, 2048, 4


def ours(material: Material) -> Trial:
    """`Loader.batch` over the rows of a shard, in the order of training."""
    import numpy as np

    from training.data import Batch, Loader, open_source
    from training.samples.order import Order

    source = open_source("web", [material.path("bench")], CONTEXT)
    steps = PASSES * source.n_rows // BATCH
    order = Order(["web"], [source.n_rows], [(source.n_rows, [1.0])], seed=0)
    loader = Loader([source], order)
    loader.batch(range(BATCH))

    def finding(batches: list[Batch]) -> "pl.DataFrame":
        counts = sum(
            np.bincount(b.tokens[b.documents >= 0].ravel(), minlength=1 << 16) for b in batches
        )
        return _counts(counts)

    size = int(steps * BATCH * CONTEXT * source.shards[0].tokens.itemsize)
    return Trial(
        run=lambda: [loader.batch(range(n, n + BATCH)) for n in range(0, steps * BATCH, BATCH)],
        finding=finding,
        documents=steps * BATCH,
        size=size,
    )


def memmap(material: Material) -> Trial:
    """Batches of `context` tokens one behind the other, as int32."""
    import numpy as np

    from training.shards import Shard

    tokens = Shard.open(material.path("bench")).tokens
    a_pass = len(tokens) // (BATCH * CONTEXT)
    steps = PASSES * a_pass

    def batch(step: int) -> Any:
        begin = step % a_pass * BATCH * CONTEXT
        return tokens[begin : begin + BATCH * CONTEXT].reshape(BATCH, CONTEXT).astype(np.int32)

    batch(0)

    def finding(batches: list[Any]) -> "pl.DataFrame":
        return _counts(sum(np.bincount(b.ravel(), minlength=1 << 16) for b in batches))

    return Trial(
        run=lambda: [batch(step) for step in range(steps)],
        finding=finding,
        documents=steps * BATCH,
        size=steps * BATCH * CONTEXT * tokens.itemsize,
    )


def _counts(counts: Any) -> "pl.DataFrame":
    import numpy as np
    import polars as pl

    return pl.DataFrame({"count": np.asarray(counts, np.int64)})


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """How often each token was read: the same but for unfilled batches of either side."""
    differ = int((ours["count"] - theirs["count"]).abs().sum())
    return {
        "tokens_ours": int(ours["count"].sum()),
        "tokens_theirs": int(theirs["count"].sum()),
        "tokens_differ": differ,
    }
