"""A stage and a peer that count words: two real sides, small enough for a test."""

from __future__ import annotations

import os
from typing import Any

import polars as pl

from assets.bench.material import Material
from assets.bench.worker import Trial


def ours(material: Material) -> Trial:
    frame = material.table("documents")
    return Trial(
        run=lambda: frame["text"].str.split(" ").list.len(),
        finding=lambda counts: pl.DataFrame({"n": counts.cast(pl.Int64)}),
        documents=len(frame),
        size=10,
        again=True,
        extra=lambda: {"threads": float(os.environ["POLARS_MAX_THREADS"])},
    )


def peer(material: Material) -> Trial:
    texts = material.table("documents")["text"].to_list()
    return Trial(
        run=lambda: [len(text.split(" ")) for text in texts],
        finding=lambda counts: pl.DataFrame({"n": counts}),
        documents=len(texts),
        size=10,
    )


def broken(material: Material) -> Trial:
    message = "the peer is out of order"
    raise RuntimeError(message)


def compare(ours: pl.DataFrame, theirs: pl.DataFrame) -> dict[str, Any]:
    return {"documents": len(ours), "equal": int((ours["n"] == theirs["n"]).sum())}
