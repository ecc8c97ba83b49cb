"""Quality gates: verdicts over a finished stage, written into its manifest.

Every gate says what it measured, against what, over how many records, and whether a failure blocks.
A share over fewer than `gates.min_sample` records is `not_enough_sample`: it supports no claim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipeline.config.gates import Band, GatesConfig
from pipeline.driver import Receipt
from pipeline.manifest import Counts, Gate, Verdict

GateRule = Callable[[Sequence[Receipt], Counts], Gate]


def conserved(receipts: Sequence[Receipt], counts: Counts) -> Gate:
    """Records in = kept + dropped; every row that came in has a decision, every kept one a row."""
    lost = 0
    for receipt in receipts:
        rows = {kind: sum(e.rows for e in entries) for kind, entries in receipt.entries.items()}
        lost += abs(rows["parts"] - receipt.counts.kept) if "parts" in rows else 0
        lost += abs(rows.get("decisions", 0) - receipt.counts.records_in)
        if receipt.rows_in is not None:
            lost += abs(receipt.rows_in - receipt.counts.records_in)
    lost += abs(counts.records_in - counts.kept - counts.dropped)
    return Gate(
        name="conserved",
        verdict="pass" if lost == 0 else "fail",
        value=float(lost),
        threshold=0.0,
        sample=counts.records_in,
        blocking=True,
        detail="records without a fate, or kept ones without a row",
    )


def not_empty(_: Sequence[Receipt], counts: Counts) -> Gate:
    """At least one record is kept."""
    return Gate(
        name="not_empty",
        verdict="pass" if counts.kept else "fail",
        value=float(counts.kept),
        threshold=1.0,
        sample=counts.records_in,
        blocking=True,
    )


def yield_band(band: Band, min_sample: int) -> GateRule:
    """Kept / in lies within a band."""

    def rule(_: Sequence[Receipt], counts: Counts) -> Gate:
        share = counts.kept / counts.records_in if counts.records_in else 0.0
        inside = band.low <= share <= band.high
        enough = counts.records_in >= min_sample
        return Gate(
            name="yield",
            verdict=("pass" if inside else "fail") if enough else "not_enough_sample",
            value=round(share, 6),
            threshold=[band.low, band.high],
            sample=counts.records_in,
            blocking=True,
            detail="kept share of what came in; see the reasons for what took the rest",
        )

    return rule


def host_removal(config: GatesConfig) -> GateRule:
    """Few of the larger hosts are wiped out: a rule that empties whole sites is a fault."""

    def rule(receipts: Sequence[Receipt], _: Counts) -> Gate:
        hosts: dict[str, list[int]] = {}
        for receipt in receipts:
            for host, (n, kept) in receipt.hosts.items():
                total = hosts.setdefault(host, [0, 0])
                total[0] += n
                total[1] += kept
        large = {h: 1 - kept / n for h, (n, kept) in hosts.items() if n >= config.host_documents}
        wiped = sorted(h for h, removed in large.items() if removed > config.host_removal)
        share = len(wiped) / len(large) if large else 0.0
        verdict: Verdict = "pass" if share <= config.hosts_wiped_out else "fail"
        return Gate(
            name="host_removal",
            verdict=verdict if large else "not_enough_sample",
            value=round(share, 6),
            threshold=config.hosts_wiped_out,
            sample=len(large),
            blocking=True,
            detail=f"wiped out: {', '.join(wiped[:5]) or 'none'}",
        )

    return rule


def non_english(config: GatesConfig) -> GateRule:
    """Enough of the text is in other languages than English; reported, it blocks nothing."""

    def rule(receipts: Sequence[Receipt], counts: Counts) -> Gate:
        total = other = 0
        for receipt in receipts:
            for language, (_, size) in receipt.figures.get("language", {}).items():
                total += size
                other += size if language != "en" else 0
        share = other / total if total else 0.0
        enough = counts.kept >= config.min_sample
        verdict: Verdict = "pass" if share >= config.non_english else "fail"
        return Gate(
            name="non_english",
            verdict=verdict if enough else "not_enough_sample",
            value=round(share, 6),
            threshold=config.non_english,
            sample=counts.kept,
            blocking=False,
            detail="share of the text, in bytes, that is not English",
        )

    return rule


def all_of(*rules: GateRule) -> Callable[[Sequence[Receipt], Counts], list[Gate]]:
    """The gates of a stage, in order."""
    return lambda receipts, counts: [rule(receipts, counts) for rule in rules]
