"""Asset checks: the gates of the manifests, and questions that only the present can answer.

A gate's verdict was written when the stage ran; its check shows it in the web UI, says what to do
and stops the rest of the run where the gate blocks; the stages refuse such a manifest anyway.
`configuration` asks whether a partition was made with today's configuration, classifier, code and
libraries; `chain` whether what it was compared with is still what it was; `language_accuracy` how
often the configured backend tells the language of labelled texts.
"""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import dagster as dg

from assets.millwork import MillResource
from assets.partitions import CORPORA, SNAPSHOTS, SOURCES
from pipeline.dataset import Dataset, read_manifest
from pipeline.driver import StageSpec
from pipeline.errors import GristmillError
from pipeline.excerpts import clean
from pipeline.inputs import dataset_input
from pipeline.manifest import Content, Gate, Manifest
from pipeline.mill import Mill, PlannedOnly
from pipeline.plan import changed_keys


@dataclass(frozen=True)
class Watched:
    """What is checked on an asset: gates by name (True: blocking); the stage to compare with."""

    stage: str
    """`module:function` below `pipeline.stages`."""
    partitions: dg.DynamicPartitionsDefinition | None
    gates: dict[str, bool]
    asks: tuple[str, ...] = ("configuration",)
    """What no manifest holds, and is found out when the checks run."""


ALWAYS = {"conserved": True, "not_empty": True}
YIELD = {**ALWAYS, "yield": True}
HOSTS = {**YIELD, "host_removal": True}

WATCHED: dict[str, Watched] = {
    "snapshots": Watched("crawl:list_files", SNAPSHOTS, ALWAYS),
    "extracted_text": Watched("crawl:extract_text", SNAPSHOTS, YIELD),
    "filtered_text": Watched(
        "curation:filter_text", SNAPSHOTS, HOSTS, ("configuration", "language_accuracy")
    ),
    "scored_text": Watched("curation:score_text", SNAPSHOTS, YIELD),
    "deduped_corpus": Watched("corpus:dedup_corpus", SNAPSHOTS, {**HOSTS, "chain": True}),
    "scrubbed_corpus": Watched("curation:scrub_text", SNAPSHOTS, {**HOSTS, "non_english": False}),
    "source_texts": Watched("sources:source_texts", SOURCES, HOSTS),
    "quality_labels": Watched("references:quality_labels", None, ALWAYS),
    "quality_classifier": Watched("references:quality_classifier", None, ALWAYS),
    "selection": Watched("selection:selection", None, ALWAYS),
    "benchmark_sets": Watched("references:benchmark_sets", None, ALWAYS),
    "word_lists": Watched("references:word_lists", None, ALWAYS),
    "tokenizer_sample": Watched("tokens:tokenizer_sample", None, ALWAYS),
    "tokenizer": Watched("tokens:tokenizer", None, ALWAYS),
    "token_shards": Watched("tokens:token_shards", CORPORA, YIELD),
    "mixture": Watched("mixture:mixture", None, {**ALWAYS, "mixture": True}),
}

CURES: dict[str, str] = {
    "conserved": "records without a fate are a fault of the program: keep the manifest, report it",
    "not_empty": "nothing is left: read the funnel, then relax the rule that took most",
    "yield": "read the funnel: one reason that took most is a threshold to change (`gristmill try` "
    "shows its values for a page), or widen gates.yields",
    "host_removal": "look up one of the hosts named (`gristmill trace --url`); a rule that empties "
    "whole sites is usually wrong for them",
    "non_english": "the corpus is nearly English only: add languages to filter.language.keep, or "
    "lower filter.language.min_score for those that the funnel loses",
    "chain": "materialise deduped_corpus again for this snapshot and the later ones, in order",
    "mixture": "a source is too small for its weight: lower mixture.weights for it, raise "
    "mixture.max_epochs or lower mixture.total_tokens",
    "language_accuracy": "look at the languages that are confused, in the tables of the check; "
    "filter.language.backend: eldc is better on short texts",
    "configuration": "nothing moves by itself: see `gristmill plan`, then materialise these "
    "partitions, or leave them as they are",
}
ACCEPT = "; or record accept_gate: {name, reason} in the configuration and materialise again"


def verdict(gate: Gate, content: Content) -> dg.AssetCheckResult:
    """A gate as the result of its check."""
    accepted = {one["name"]: one["reason"] for one in content.accepted_gates or ()}
    reason = accepted.get(gate.name)
    passed = gate.verdict != "fail" or reason is not None
    severity = dg.AssetCheckSeverity.ERROR if gate.blocking else dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(
        check_name=gate.name,
        passed=passed,
        severity=severity,
        description=_sentence(gate, reason),
        metadata={
            "verdict": gate.verdict,
            "value": gate.value if gate.value is not None else "none",
            "threshold": str(gate.threshold),
            "sample": gate.sample,
        },
    )


def _sentence(gate: Gate, accepted: str | None) -> str:
    numbers = f"{gate.value} against {gate.threshold}, over {gate.sample:,}"
    detail = f" ({clean(gate.detail)})" if gate.detail else ""
    if gate.verdict == "not_enough_sample":
        return f"not enough sample for a verdict: {numbers}{detail}"
    if gate.verdict == "pass":
        return f"{numbers}{detail}"
    if accepted is not None:
        return f"failed and accepted ({clean(accepted)}): {numbers}{detail}"
    cure = CURES.get(gate.name, "see the funnel of this partition")
    return f"failed: {numbers}{detail}. Cure: {cure}{ACCEPT if gate.blocking else ''}"


def absent(name: str, why: str) -> dg.AssetCheckResult:
    """The result for a gate that the manifest does not hold: a warning, since nothing was shown."""
    return dg.AssetCheckResult(
        check_name=name, passed=False, severity=dg.AssetCheckSeverity.WARN, description=why
    )


def configuration(mill: Mill, asset: str, partitions: Sequence[str | None]) -> dg.AssetCheckResult:
    """Whether partitions were made the way they would be made now; names those that were not."""
    behind: dict[str, str] = {}
    for partition in partitions:
        manifest = mill.find(asset, partition)
        difference = manifest and differences(mill, asset, partition, manifest)
        if difference:
            behind[partition or asset] = difference
    listed = "; ".join(f"{name}: {why}" for name, why in list(behind.items())[:10])
    return dg.AssetCheckResult(
        check_name="configuration",
        passed=not behind,
        severity=dg.AssetCheckSeverity.WARN,
        description=f"made differently: {listed}. Cure: {CURES['configuration']}"
        if behind
        else "made with today's configuration, classifier, code and libraries",
        metadata={"behind": len(behind), "partitions": ", ".join(behind) or "none"},
    )


def differences(mill: Mill, asset: str, partition: str | None, manifest: Manifest) -> str | None:
    """What differs between how a partition was made and how it would be made; None if nothing."""
    try:
        plans = list(planned(mill, asset, partition, manifest))
    except GristmillError as error:
        return f"cannot be made now ({error.message})"
    found = [one for spec, content in plans for one in compare(spec, content)]
    return ", ".join(dict.fromkeys(found)) or None


def planned(
    mill: Mill, asset: str, partition: str | None, manifest: Manifest
) -> Iterator[tuple[StageSpec, Content]]:
    """What a stage would do now, beside what it did; a source has two steps before its last."""
    if asset != "source_texts":
        spec = ask(mill, stage_function(asset), *([partition] if partition else []))
        if spec:
            yield spec, manifest.content
        return
    from pipeline.stages.corpus import dedup_input
    from pipeline.stages.curation import scrub_input

    out = mill.folder(asset, partition)
    scored, deduped = (Dataset.open(out.child(f"steps/{name}")) for name in ("scored", "deduped"))
    first, second = dataset_input(scored), dataset_input(deduped)
    name = f"{asset}.deduped"
    for spec, made in (
        (ask(mill, stage_function(asset), partition), scored.manifest),
        (ask(mill, dedup_input, first, [], deduped.store, partition, stage=name), deduped.manifest),
        (ask(mill, scrub_input, second, out, partition, stage=asset), manifest),
    ):
        if spec:
            yield spec, made.content


def ask(
    mill: Mill, function: Callable[..., Manifest], *given: Any, **more: Any
) -> StageSpec | None:
    """The configuration, code and libraries that a stage would run with now; nothing is run."""
    asked: list[StageSpec] = []
    planning = replace(mill, planning=lambda spec, tasks: asked.append(spec))
    with contextlib.suppress(PlannedOnly):
        function(planning, *given, **more)
    return asked[0] if asked else None


def compare(spec: StageSpec, content: Content) -> list[str]:
    """Configuration keys, code version and libraries that differ."""
    found = [f"{key} changed" for key in changed_keys(content.config, dict(spec.config))]
    if content.code_version != spec.code_version:
        found.append(f"code version {content.code_version}, now {spec.code_version}")
    for name, version in spec.library_versions.items():
        made_with = content.libraries.get(name)
        if made_with is not None and made_with != version:
            found.append(f"{name} {made_with}, now {version}")
    return found


def stage_function(asset: str) -> Callable[..., Manifest]:
    """The stage behind an asset, imported now."""
    module, _, name = WATCHED[asset].stage.partition(":")
    function: Callable[..., Manifest] = getattr(import_module(f"pipeline.stages.{module}"), name)
    return function


def chain(mill: Mill, content: Content) -> dg.AssetCheckResult:
    """Whether the earlier snapshots still hold the output that this one was compared with."""
    moved = []
    for ref in content.inputs:
        if ref.asset != "deduped_corpus" or not ref.partition or not ref.hash:
            continue
        folder = mill.folder("deduped_corpus", ref.partition)
        then = read_manifest(folder, ref.hash).content.output
        now = mill.find("deduped_corpus", ref.partition)
        if now is None or now.content.output != then:
            moved.append(ref.partition)
    skipped = content.summary.get("skipped") or []
    note = f"; left out on purpose: {', '.join(skipped)}" if skipped else ""
    return dg.AssetCheckResult(
        check_name="chain",
        passed=not moved,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"compared with another output of {', '.join(moved)} than there is now. Cure: "
        f"{CURES['chain']}{note}"
        if moved
        else f"every earlier snapshot is what it was compared with{note}",
        metadata={"moved": ", ".join(moved) or "none"},
    )


def results(
    mill: Mill, asset: str, partitions: Sequence[str | None], names: set[str]
) -> Iterator[dg.AssetCheckResult]:
    """The results of the checks called `names`, over one partition, or the worst of several."""
    found = {p: m for p in partitions if (m := mill.find(asset, p)) is not None}
    for name in sorted(names - {"configuration", "language_accuracy"}):
        each = [_gate(mill, name, manifest.content) for manifest in found.values()]
        yield _worst(each, list(found)) if each else absent(name, f"{asset} is not there yet")
    if "configuration" in names:
        yield configuration(mill, asset, list(found))
    if "language_accuracy" in names:
        from assets.languages import language_accuracy

        yield language_accuracy(mill)


def _gate(mill: Mill, name: str, content: Content) -> dg.AssetCheckResult:
    gate = next((one for one in content.gates if one.name == name), None)
    if gate is None:
        return absent(name, f"the manifest of {content.stage} has no gate {name!r}")
    recorded = verdict(gate, content)
    return chain(mill, content) if name == "chain" and recorded.passed else recorded


def _worst(
    each: Sequence[dg.AssetCheckResult], partitions: Sequence[str | None]
) -> dg.AssetCheckResult:
    if len(each) == 1:
        return each[0]
    failed = [p or "" for p, one in zip(partitions, each, strict=True) if not one.passed]
    order = {dg.AssetCheckSeverity.ERROR: 0, dg.AssetCheckSeverity.WARN: 1}
    worst = min(each, key=lambda one: (one.passed, order[one.severity]))
    where = f"{', '.join(failed)}: " if failed else f"{len(each)} partitions; the last: "
    return dg.AssetCheckResult(
        check_name=worst.check_name,
        passed=worst.passed,
        severity=worst.severity,
        description=where + (worst.description or ""),
        metadata=dict(worst.metadata or {}),
    )


def checks_of(asset: str, watched: Watched) -> dg.AssetChecksDefinition:
    """The checks of one asset, in one step; each can be run alone from the web UI.

    Run without a partition they look at every partition that is there.
    """
    specs = [_spec(asset, name, blocking, watched) for name, blocking in watched.gates.items()]
    specs += [_spec(asset, name, False, watched) for name in watched.asks]

    @dg.multi_asset_check(name=f"{asset}_checks", specs=specs, can_subset=True)
    def checks(
        context: dg.AssetCheckExecutionContext, mill: MillResource
    ) -> Iterator[dg.AssetCheckResult]:
        names = {key.name for key in context.selected_asset_check_keys}
        with mill.open() as opened:
            yield from results(opened, asset, _partitions(context, watched), names)

    return checks


def _partitions(context: Any, watched: Watched) -> list[str | None]:
    if watched.partitions is None:
        return [None]
    step = context.op_execution_context
    if step.has_partition_key or step.has_partition_key_range:
        return list(step.partition_keys)
    assert watched.partitions.name is not None
    return list(context.instance.get_dynamic_partitions(watched.partitions.name))


def _spec(asset: str, name: str, blocking: bool, watched: Watched) -> dg.AssetCheckSpec:
    with warnings.catch_warnings():
        # checks by partition are a preview in Dagster 1.13; without them the failed check of one
        # snapshot would stop every other
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(
            name,
            asset=asset,
            blocking=blocking,
            description=DESCRIPTIONS[name],
            partitions_def=watched.partitions,
        )


DESCRIPTIONS: dict[str, str] = {
    "conserved": "Records in = kept + dropped; every record has a fate.",
    "not_empty": "At least one record is kept.",
    "yield": "The kept share lies within its band (gates.yields).",
    "host_removal": "Few of the larger hosts are wiped out (gates.host_removal).",
    "non_english": "Enough of the text is in other languages (gates.non_english).",
    "chain": "The earlier snapshots are what this one was compared with.",
    "mixture": "The realised shares are the requested ones (mixture.tolerance).",
    "configuration": "Made with today's configuration, classifier, code and libraries.",
    "language_accuracy": "Languages of labelled texts are told right (references.language_labels).",
}

CHECKS = [checks_of(asset, watched) for asset, watched in WATCHED.items()]
