"""Scrubbing of one part: evaluation sets out, personal data replaced, edits recorded.

Documents that hold an item of a benchmark are dropped (`contamination.ngram`). In the others
personal data is replaced; nothing is dropped for it. Every edited document says in its decision how
many replacements of which kind it got; the values themselves are written nowhere.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from pipeline.config.scrub import ScrubConfig
from pipeline.edits import Edits, compose
from pipeline.part import PartResult

if TYPE_CHECKING:
    from pipeline.scrub.decontaminate import BenchmarkIndex

CODE_VERSION = "2"
LIBRARIES = ("numpy", "phonenumbers", "polars")

KINDS = ("secret", "email", "iban", "card", "ip", "phone")
SPANS = pl.List(pl.Struct({"out": pl.UInt32, "in": pl.UInt32, "length": pl.UInt32}))
CONTAMINATED = "contamination.ngram"
STAGE = "scrubbed_corpus"


def scrub_documents(
    frame: pl.DataFrame,
    config: ScrubConfig,
    benchmarks: BenchmarkIndex | None = None,
    *,
    stage: str = STAGE,
) -> PartResult:
    """Scrub the documents of one part.

    `parts`: what is kept, `text` edited and `edits` composed with those of earlier stages.
    `decisions`: one row a document; `detail` is `{"replaced": {kind: n}}` where something was
    replaced, `{"item", "file"}` where a benchmark item was found, with the n-grams shared in
    `value`. `extra.findings`: replacements by kind, `extra.documents_edited`.
    Without `benchmarks` the files of `config.benchmarks` are read, once a process.
    """
    if benchmarks is None and config.benchmarks:
        from pipeline.scrub.decontaminate import index_of

        benchmarks = index_of(config)
    decisions = decide_contamination(frame, benchmarks)
    kept = frame.filter(decisions["kept"])
    decisions = decisions.with_columns(stage=pl.lit(stage))
    texts, edits, counts = replace_all(kept, config)
    old = kept["edits"].to_list() if "edits" in kept.columns else [None] * kept.height
    composed = [
        earlier if new is None else compose(new, earlier)
        for new, earlier in zip(edits, old, strict=True)
    ]
    parts = kept.with_columns(
        pl.Series("text", texts, dtype=pl.String), pl.Series("edits", composed, dtype=SPANS)
    )
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return PartResult(
        {"parts": parts, "decisions": with_counts(decisions, counts)},
        extra={
            "findings": dict(sorted(total.items())),
            "documents_edited": sum(map(bool, counts)),
        },
    )


def decide_contamination(frame: pl.DataFrame, benchmarks: BenchmarkIndex | None) -> pl.DataFrame:
    """A decision a document: dropped where it holds a benchmark item."""
    url = pl.col("url") if "url" in frame.columns else pl.lit(None, pl.String)
    decisions = frame.select(
        "doc_id",
        url=url,
        kept=pl.lit(True),
        reason=pl.lit(None, pl.String),
        value=pl.lit(None, pl.Float64),
        threshold=pl.lit(None, pl.Float64),
        detail=pl.lit(None, pl.String),
    )
    if benchmarks is None:
        return decisions
    hits, items = benchmarks.match(frame["text"])
    found = pl.Series(hits > 0)
    details = [
        json.dumps(benchmarks.origin(item), ensure_ascii=False) if item >= 0 else None
        for item in items.tolist()
    ]
    return decisions.with_columns(
        kept=~found,
        reason=pl.when(found).then(pl.lit(CONTAMINATED)),
        value=pl.when(found).then(pl.Series(hits, dtype=pl.Float64)),
        threshold=pl.when(found).then(1.0),
        detail=pl.Series(details, dtype=pl.String),
    )


def with_counts(decisions: pl.DataFrame, counts: Sequence[dict[str, int]]) -> pl.DataFrame:
    """Decisions with what was replaced in the kept documents, in their order."""
    details = iter(
        json.dumps({"replaced": dict(sorted(count.items()))}) if count else None for count in counts
    )
    merged = [
        next(details) if kept else detail
        for kept, detail in decisions.select("kept", "detail").iter_rows()
    ]
    return decisions.with_columns(detail=pl.Series(merged, dtype=pl.String))


def replace_all(
    frame: pl.DataFrame, config: ScrubConfig
) -> tuple[list[str | None], list[Edits | None], list[dict[str, int]]]:
    """New texts, their span maps (None: untouched) and counts by kind, one a document."""
    from pipeline.scrub.kinds import find, hot
    from pipeline.scrub.replace import PEER_GATES, Peer, faker, placeholder, replace

    kinds = [kind for kind in KINDS if getattr(config, kind)]
    peer = Peer() if config.mode == "fineweb" else None
    if peer:
        kinds = [kind for kind in kinds if kind in PEER_GATES]
        gates = [
            pl.col("text").str.contains(PEER_GATES[k]).fill_null(False).alias(k) for k in kinds
        ]
    else:
        gates = hot("text", kinds)
    substitute = faker(config.seed) if config.mode == "fake" else placeholder
    texts: list[str | None] = frame["text"].to_list()
    edits: list[Edits | None] = [None] * frame.height
    counts: list[dict[str, int]] = [{} for _ in texts]
    passed = frame.select(*gates, *context(frame)).with_row_index("row")
    passed = passed.filter(pl.any_horizontal(kinds)) if kinds else passed.clear()
    for gate in passed.iter_rows(named=True):
        row, text = gate["row"], texts[gate["row"]]
        spared = config.keep_in_sources.get(gate["source"], [])
        spared = [*spared, *config.keep_in_languages.get(gate["language"], [])]
        wanted = [kind for kind in kinds if gate[kind] and kind not in spared]
        if text is None or not wanted:
            continue
        if peer:
            texts[row], edits[row], counts[row] = peer(text, wanted)
        elif found := find(text, wanted, gate["language"]):
            texts[row], edits[row] = replace(text, found, substitute)
            counts[row] = dict(Counter(each.kind for each in found))
    return texts, edits, counts


def context(frame: pl.DataFrame) -> list[pl.Expr]:
    """The columns that exceptions look at, null where the documents lack them."""
    return [
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(pl.String).alias(name)
        for name in ("source", "language")
    ]
