"""The spike reports of a run, with the documents looked up: what data hurt it, by URL.

Training writes `spikes/step-N.json` with shards and numbers of documents; here they are joined with
the store (`pipeline.shard_documents`) and shown: as a table of the asset, as a page at MLflow, as a
section of `report.html`. URLs and excerpts are strangers' text: scrubbed, escaped, short, and
excerpts are off with `display.excerpts: false`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline.excerpts import clean, page_name, scrubbed
from pipeline.mill import Mill
from pipeline.shard_documents import documents_of
from pipeline.trace import SHARDS, find_shard
from training.spikes.facts import report_files
from training.watching.early import long_repeat

MOST = 20
"""Spikes that are looked up, the last ones; the others are counted."""
SEQUENCES = 4
"""Sequences of a batch whose documents are looked up, those of the highest loss."""
DOCUMENTS = f"Documents of the {SEQUENCES} sequences with the highest loss"
"""What stands above their table."""


@dataclass(frozen=True)
class Culprit:
    """A document of a batch that was refused."""

    loss: float | None
    """Nats a target of its sequence."""
    suspect: bool
    """Whether that stands out of the batch, or the longest repeat is in its sequence."""
    url: str
    """Scrubbed; the id of a record or the place in a shard where it has none."""
    doc_id: str
    source: str
    language: str
    quality: float | None
    place: str
    """`shard:first token`, as `gristmill trace --token` takes it."""
    excerpt: str = ""


@dataclass(frozen=True)
class Spike:
    """One refused step, as people see it."""

    step: int
    action: str
    reason: str
    loss: str
    grad_norm: str
    median: str
    limit: str
    sequences: int
    culprits: Sequence[Culprit]
    """The highest loss first."""
    signs: Sequence[str]
    """What is odd about the batch: repeats, duplicates, tokens never seen before."""
    name: str = ""
    """That of its file: a step that is refused again after a rewind has one of its own."""


def spikes_of(mill: Mill, out: Path) -> list[Spike]:
    """The last `MOST` spikes of a run with their documents looked up."""
    files = report_files(out)[-MOST:]
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in files]
    facts = look_up(mill, reports)
    spikes = [
        replace(_spike(report, facts), name=path.stem)
        for report, path in zip(reports, files, strict=True)
    ]
    if not mill.config.display.excerpts:
        return spikes
    shown = {s.culprits[0].doc_id: s.culprits[0] for s in spikes if s.culprits}
    texts = excerpts(mill, shown.values())
    return [_with_excerpt(spike, texts) for spike in spikes]


def look_up(
    mill: Mill, reports: Iterable[Mapping[str, Any]]
) -> dict[tuple[str, int], dict[str, Any]]:
    """(shard, document) -> what the store knows of it, for the sequences that are shown."""
    places = [
        (document["shard"], document["document"])
        for report in reports
        for sequence in report["sequences"][:SEQUENCES]
        for document in sequence["documents"]
    ]
    wanted = list(dict.fromkeys(places))
    return dict(zip(wanted, documents_of(mill.root, wanted), strict=True))


def _spike(report: Mapping[str, Any], facts: Mapping[tuple[str, int], dict[str, Any]]) -> Spike:
    suspects = set(report["suspects"])
    if (repeat := long_repeat(report)) is not None:
        suspects.add(repeat["sequence"])
    culprits = [
        _culprit(sequence, document, facts, sequence["index"] in suspects)
        for sequence in report["sequences"][:SEQUENCES]
        for document in _longest_first(sequence["documents"])
    ]
    numbers = {k: _number(report[k]) for k in ("loss", "grad_norm", "median", "limit")}
    return Spike(
        step=report["step"],
        action=report["action"],
        reason=report["reason"],
        sequences=len(report["sequences"]),
        culprits=culprits,
        signs=signs(report),
        **numbers,
    )


def _longest_first(documents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(documents, key=lambda one: -one["tokens"])


def _culprit(
    sequence: Mapping[str, Any],
    document: Mapping[str, Any],
    facts: Mapping[tuple[str, int], dict[str, Any]],
    suspect: bool,
) -> Culprit:
    place = (document["shard"], document["document"])
    fact = facts[place]
    name = page_name(fact["source_id"] or fact["doc_id"], fact["url"])
    loss = sequence["loss"]
    return Culprit(
        loss=loss if isinstance(loss, float) else None,
        suspect=suspect,
        url=name or f"{place[0]}, document {place[1]}",
        doc_id=fact["doc_id"] or "",
        source=clean(fact["source"] or sequence["source"]),
        language=clean(fact["language"] or "und"),
        quality=fact["quality"],
        place=f"{document['shard']}:{document['first_token']}",
    )


def signs(report: Mapping[str, Any]) -> list[str]:
    """Sentences about what is odd in a batch."""
    found = []
    if (repeat := long_repeat(report)) is not None:
        one = "one token" if repeat["period"] == 1 else f"the same {repeat['period']} tokens"
        found.append(f"{repeat['tokens']} tokens on end repeat {one}")
    if new := report["new_tokens"]["number"]:
        found.append(f"{new} kinds of token that no accepted step had before")
    for kind, groups in report["duplicates"].items():
        if groups:
            found.append(f"{sum(map(len, groups))} {kind} are there more than once")
    return found


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def excerpts(mill: Mill, culprits: Iterable[Culprit]) -> dict[str, str]:
    """doc_id -> scrubbed beginning of the text, where the corpus still has it."""
    import polars as pl

    from pipeline.dataset import find_rows

    found: dict[str, str] = {}
    for culprit in culprits:
        if not culprit.doc_id:
            continue
        corpus, _, manifest, shard = find_shard(mill.root, culprit.place.rpartition(":")[0])
        for ref in manifest.content.inputs:
            if ref.asset in (None, SHARDS, "tokenizer") or ref.partition != corpus:
                continue
            made = mill.find(str(ref.asset), corpus)
            for entry in made.content.parts if made else ():
                if entry.group not in (None, shard.group) or not entry.path.endswith(".parquet"):
                    continue
                store = mill.folder(str(ref.asset), corpus)
                rows = find_rows(store, entry, "doc_id", [culprit.doc_id])
                if rows.num_rows:
                    wanted = [
                        name for name in ("doc_id", "url", "text") if name in rows.column_names
                    ]
                    frame = pl.DataFrame(rows.select(wanted))
                    found[culprit.doc_id] = scrubbed(frame, mill.config.display)[0]
                    break
    return found


def _with_excerpt(spike: Spike, texts: Mapping[str, str]) -> Spike:
    if not spike.culprits or spike.culprits[0].doc_id not in texts:
        return spike
    first, *rest = spike.culprits
    return replace(spike, culprits=[replace(first, excerpt=texts[first.doc_id]), *rest])


def rows(spikes: Sequence[Spike]) -> list[dict[str, Any]]:
    """A row a spike: step, the document of the highest loss, what stood out."""
    return [
        {
            "step": spike.step,
            "highest loss": spike.culprits[0].url if spike.culprits else "",
            "its loss": _number(spike.culprits[0].loss) if spike.culprits else "",
            "source": spike.culprits[0].source if spike.culprits else "",
            "reason": spike.reason,
            "signs": "; ".join(spike.signs),
            "action": spike.action,
            "loss": spike.loss,
            "gradient norm": spike.grad_norm,
            "limit": spike.limit,
        }
        for spike in spikes
    ]


def told(spike: Spike) -> list[str]:
    """Sentences about a refused step: its numbers, then what is odd about its batch."""
    what = "gradient norm" if spike.reason.startswith("gradient norm") else "loss"
    return [
        f"loss {spike.loss}, gradient norm {spike.grad_norm}, {spike.sequences} sequences",
        f"the median {what} of the steps before it was {spike.median}, and {spike.limit} the most "
        "that the gate lets by",
        *spike.signs,
    ]


def page(spike: Spike) -> str:
    """One spike as Markdown, for MLflow; in code spans, where no text of strangers is a link."""
    lines = [
        f"# Step {spike.step} was {spike.action}: {spike.reason}",
        "",
        *(f"- {fact}" for fact in told(spike)),
        "",
        f"{DOCUMENTS}:",
        "",
        "| loss | stands out | document | source | language | quality | place |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {_number(c.loss)} | {'yes' if c.suspect else ''} | `{c.url}` | `{c.source}` | "
        f"`{c.language}` | {'' if c.quality is None else _number(c.quality)} | `{c.place}` |"
        for c in spike.culprits
    ]
    if spike.culprits and spike.culprits[0].excerpt:
        lines += ["", "The first of them begins:", "", f"> `{spike.culprits[0].excerpt}`"]
    return "\n".join(lines) + "\n"
