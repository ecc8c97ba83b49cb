"""Fills the report from a store: manifests for the numbers, a few rows for the examples.

Nothing is computed anew. Of the pages only what is shown is read, scrubbed of personal data first;
`display.excerpts: false` leaves them out.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.checks import CURES
from assets.report.data import Check, ReportData, Stage, TokenRow
from assets.report.examples import Made, pages, traced
from assets.spikes import spikes_of
from pipeline.dataset import read_part
from pipeline.manifest import Manifest
from pipeline.mill import Mill, registered_snapshots
from training.watching.loglines import LINES, some_lines

WEB = (
    "extracted_text",
    "filtered_text",
    "scored_text",
    "deduped_corpus",
    "scrubbed_corpus",
    "token_shards",
)
SINGLE = ("quality_classifier", "tokenizer_sample", "tokenizer", "mixture")
HOSTS = 6
CALLED = {"healthy": "healthy", "watch": "worth a look", "stop": "a reason to stop"}
"""Verdict of the early-run report: what the sentence about it says."""
SHOWN = 4000
"""Steps that curves are drawn of."""


def collect(
    mill: Mill,
    *,
    title: str,
    lead: str,
    run_folder: Path | None = None,
    sources: Sequence[str] = (),
    writing: tuple[str, str] = ("", ""),
    times: Sequence[tuple[str, float]] = (),
    commands: Sequence[tuple[str, str]] = (),
) -> ReportData:
    """What the store of `mill` holds, as the report shows it.

    `run_folder` is that of a training run (`metrics.jsonl`), `writing` its prompt and continuation,
    `sources` the names of sources. Without `times`, the seconds of the manifests are shown.
    """
    made = manifests(mill, sources)
    lines = metrics(run_folder)
    held_out = _curve(lines, "held_out_bits_per_byte")
    unigram = _curve(lines, "unigram_bits_per_byte")
    return ReportData(
        title=title,
        lead=lead,
        facts=facts(made, times, held_out, unigram),
        funnel=[_stage(asset, part or "", m) for (asset, part), m in made.items() if part],
        languages=_languages(made),
        hosts=hosts(mill, made),
        score_counts=_scores(made),
        score_threshold=mill.config.score.min_quality,
        tokens=token_rows(made),
        losses=_curve(lines, "loss"),
        held_out=held_out,
        unigram_bits_per_byte=unigram[-1][1] if unigram else None,
        early=early_sentence(run_folder),
        spikes=spikes_of(mill, run_folder) if run_folder else (),
        token=traced(mill, made),
        prompt=writing[0],
        continuation=writing[1],
        checks=checks(made),
        times=list(times) or _seconds(made),
        commands=commands,
        **pages(mill, made),
    )


def manifests(mill: Mill, sources: Sequence[str] = ()) -> Made:
    """Every current manifest there is, snapshots first, in the order of the stages."""
    wanted: list[tuple[str, str | None]] = [
        (asset, name) for name in registered_snapshots(mill.root) for asset in WEB
    ]
    wanted += [(asset, name) for name in sources for asset in ("source_texts", "token_shards")]
    wanted += [(asset, None) for asset in SINGLE]
    return {key: found for key in wanted if (found := mill.find(*key))}


def metrics(run_folder: Path | None) -> list[dict[str, Any]]:
    """Lines of a run's `metrics.jsonl`, as many as a chart needs."""
    return some_lines(run_folder / LINES, SHOWN) if run_folder else []


def early_sentence(run_folder: Path | None) -> str:
    """What the early-run report of a run says, in one sentence; empty where there is none."""
    path = run_folder / "early_report.json" if run_folder else None
    if path is None or not path.is_file():
        return ""
    found = json.loads(path.read_text(encoding="utf-8"))
    if found["verdict"] is None:
        return f"The early-run report has too few steps for a verdict: {found['steps']}."
    checks = sum(one["verdict"] is not None for one in found["checks"])
    called = f"{found['steps']} steps {CALLED[found['verdict']]}"
    why = f", because of: {'; '.join(found['reasons'])}" if found["reasons"] else ""
    return f"The early-run report calls the first {called} (checks made: {checks}){why}."


def _curve(lines: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    points = [(line["step"], line.get(name)) for line in lines]
    return [(x, float(y)) for x, y in points if isinstance(y, int | float) and math.isfinite(y)]


def _stage(asset: str, partition: str, manifest: Manifest) -> Stage:
    counts = manifest.content.counts
    unit = "records" if asset in ("extracted_text", "source_texts") else "documents"
    return Stage(partition, asset, counts.records_in, counts.kept, counts.reasons, unit)


def _of(made: Made, asset: str) -> list[Manifest]:
    return [manifest for (name, _), manifest in made.items() if name == asset]


def facts(
    made: Made,
    times: Sequence[tuple[str, float]],
    held_out: Sequence[tuple[int, float]],
    unigram: Sequence[tuple[int, float]],
) -> list[tuple[str, str, str]]:
    """The headline numbers that the store can give."""
    filtered = _of(made, "filtered_text")
    came = sum(m.content.counts.records_in for m in filtered)
    kept = sum(m.content.counts.kept for m in filtered)
    reasons = {r for (_, part), m in made.items() if part for r in m.content.counts.reasons}
    shown = [
        ("pages", f"{came:,}", f"in {len(filtered)} snapshots"),
        ("kept by filters", f"{kept / max(came, 1):.0%}", f"{len(reasons)} reasons to drop"),
    ]
    for row in token_rows(made):
        if not row.name.startswith("language "):
            note = f"{row.documents:,} documents, {row.tokens:,} tokens"
            shown.append((f"text from {row.name}", f"{row.text_bytes / 1e6:.1f} MB", note))
    if held_out:
        note = "bits per byte" + (f", unigram {unigram[-1][1]:.2f}" if unigram else "")
        shown.append(("held-out text", f"{held_out[-1][1]:.2f}", note))
    if times:
        seconds = sum(value for _, value in times)
        shown.append(("time", f"{seconds // 60:.0f} min {seconds % 60:02.0f} s", "all steps"))
    return shown


def _languages(made: Made) -> list[tuple[str, int, int]]:
    total: dict[str, list[int]] = {}
    for manifest in _of(made, "scrubbed_corpus"):
        for name, (count, size) in manifest.content.summary.get("language", {}).items():
            into = total.setdefault(name, [0, 0])
            into[0] += count
            into[1] += size
    ordered = sorted(total.items(), key=lambda item: (-item[1][1], item[0]))
    return [(name, count, size) for name, (count, size) in ordered]


def hosts(mill: Mill, made: Made) -> list[tuple[str, int, int]]:
    """The largest hosts before the filters: documents in, documents kept by them."""
    import polars as pl

    frames = [
        read_part(mill.folder(asset, part), entry, ["url", "kept"])
        for (asset, part), manifest in made.items()
        if asset == "filtered_text"
        for entry in manifest.content.decisions
    ]
    if not frames:
        return []
    host = pl.col("url").str.extract(r"://([^/?#]+)").alias("host")
    table = (
        pl.concat(frames)
        .group_by(host)
        .agg(pl.len().alias("came"), pl.col("kept").sum())
        .drop_nulls("host")
        .sort(["came", "host"], descending=[True, False])
    )
    return [(name, came, kept) for name, came, kept in table.head(HOSTS).iter_rows()]


def _scores(made: Made) -> list[int]:
    found = [m.content.summary.get("quality_histogram") for m in _of(made, "scored_text")]
    return [sum(bins) for bins in zip(*filter(None, found), strict=True)]


def token_rows(made: Made) -> list[TokenRow]:
    """Tokens by source, then by natural language of the web text, largest first."""
    sums: dict[str, dict[str, dict[str, int]]] = {"sources": {}, "languages": {}}
    for manifest in _of(made, "token_shards"):
        summary = manifest.content.summary
        for kind in ["sources", *(["languages"] if "web" in summary["sources"] else [])]:
            for name, counts in summary[kind].items():
                into = sums[kind].setdefault(name, dict.fromkeys(counts, 0))
                for key, value in counts.items():
                    into[key] += value
    rows = [
        TokenRow(f"{prefix}{name}", c["documents"], c["tokens"], c["bytes"])
        for kind, prefix in (("sources", ""), ("languages", "language "))
        for name, c in sums[kind].items()
    ]
    return sorted(rows, key=lambda row: (row.name.startswith("language "), -row.text_bytes))


def checks(made: Made) -> list[Check]:
    """Every gate that failed, with its cure, then how many passed or could not be judged."""
    gates = [(key, gate) for key, m in made.items() for gate in m.content.gates]
    shown = [
        Check(
            f"{asset}/{part} {gate.name}" if part else f"{asset} {gate.name}",
            "fail" if gate.blocking else "warn",
            f"{gate.value} against {gate.threshold}, over {gate.sample:,}"
            + (f" ({gate.detail})" if gate.detail else "")
            + f". Cure: {CURES.get(gate.name, 'read the funnel of this partition')}.",
        )
        for (asset, part), gate in gates
        if gate.verdict == "fail"
    ]
    counted = Counter(gate.verdict for _, gate in gates)
    if counted["pass"]:
        shown.append(Check(f"{counted['pass']} gates passed", "pass", ""))
    if few := counted["not_enough_sample"]:
        shown.append(Check(f"{few} had too few records for a verdict", "pass", ""))
    return shown


def _seconds(made: Made) -> list[tuple[str, float]]:
    total: dict[str, float] = {}
    for (asset, _), manifest in made.items():
        total[asset] = total.get(asset, 0.0) + float(manifest.run.get("seconds", 0.0))
    return list(total.items())
