"""A stage and a peer that count words: two real sides, small enough for a test."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import polars as pl

from assets.bench.material import Material
from assets.bench.worker import Trial
from pipeline.config.extract import MODES


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


def moded(material: Material) -> Trial:
    """Ours, telling which mode it was run in."""
    mode = MODES.index(material.config.extract.mode)
    return replace(ours(material), extra=lambda: {"mode": float(mode)})


def files(material: Material) -> Trial:
    """A side whose documents are the files of its round."""
    pages = [warc.pages for warc in material.warcs]
    return Trial(
        run=lambda: sum(pages),
        finding=lambda _: pl.DataFrame({"n": pages}),
        documents=sum(pages),
        size=10,
        extra=lambda: {"files": float(len(pages))},
    )


def slow_peer(material: Material) -> Trial:
    """The peer, after half a second of work."""

    def run() -> list[int]:
        begin = time.process_time()
        while time.process_time() - begin < 0.5:
            pass
        counts: list[int] = trial.run()
        return counts

    trial = peer(material)
    return replace(trial, run=run)


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
