"""`deduped_corpus`: one copy of each document, over all snapshots registered so far.

Three steps, each addressed by content: sign the parts in parallel; decide over all of them at once;
write the survivors of each part. Of earlier snapshots only the manifests, the signatures and the
texts of candidates are read, and nothing of theirs is ever changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.commit import Clock
from pipeline.config import section_json
from pipeline.config.dedup import DedupConfig
from pipeline.dataset import Dataset, checksum, encode_parquet, read_part
from pipeline.driver import PartTask, Receipt, StageSpec, plan_tasks
from pipeline.errors import ConfigError, ContractError, GateError, UsageError
from pipeline.gates import host_removal, yield_band
from pipeline.inputs import AtOnce, DerivedSource, Input, Loaded, Source
from pipeline.manifest import Gate, InputRef, Manifest
from pipeline.mill import Mill, commit_stage, registered_snapshots, run_parts, upstream
from pipeline.part import PartResult
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl

STAGE = "deduped_corpus"
SHAPELESS = ("skip_missing", "memory_gb")
"""Keys of the section that do not shape the output."""


def dedup_corpus(mill: Mill, snapshot: str) -> Manifest:
    """Deduplicate a snapshot against all that were registered before it."""
    given = upstream(mill, "scored_text", snapshot)
    names, skipped = earlier_snapshots(mill, snapshot)
    earlier = [mill.open(STAGE, name) for name in names]
    return dedup_input(mill, given, earlier, mill.folder(STAGE, snapshot), snapshot, skipped)


def earlier_snapshots(mill: Mill, snapshot: str) -> tuple[list[str], list[str]]:
    """Snapshots to compare with, in order, and those that are left out on purpose.

    Raises UsageError where a registered earlier one is not there and not in `dedup.skip_missing`.
    """
    order = registered_snapshots(mill.root)
    if snapshot not in order:
        message = f"snapshot {snapshot} is not registered"
        raise UsageError(message, hint=f"materialise snapshots/{snapshot} first")
    if mill.config.dedup.scope == "snapshot":
        return [], []
    present, skipped = [], []
    for name in order[: order.index(snapshot)]:
        made = mill.find(STAGE, name)
        good = made is not None and not made.failed_gates()
        if not good and name in mill.config.dedup.skip_missing:
            skipped.append(name)
        elif made is not None:
            present.append(name)
        else:
            message = f"{STAGE}/{snapshot} comes after {STAGE}/{name}, which is not there yet"
            hint = f"materialise {STAGE}/{name}, or set dedup.skip_missing: [{name}]"
            raise UsageError(message, hint=hint)
    return present, skipped


def dedup_input(
    mill: Mill,
    given: Input,
    earlier: Sequence[Dataset],
    out: Store,
    partition: str | None,
    skipped: Sequence[str] = (),
    *,
    stage: str = STAGE,
) -> Manifest:
    """Deduplicate any input, against datasets that this stage made, into a dataset folder."""
    from pipeline.dedup import run

    clock = Clock()
    config = mill.config.dedup
    check_scope(config, earlier)
    section = {k: v for k, v in section_json(config).items() if k not in SHAPELESS}
    section |= {"quality_model": classifier_of(given, earlier)}
    sign = StageSpec(f"{stage}.sign", run.CODE_VERSION, run.LIBRARIES, partition, section)
    signing = plan_tasks(sign, given.sources, partial(_sign, config=config), out)
    signed_parts = run_parts(mill, sign, signing, clock)
    signed = load_signed(out, signed_parts, order_of(mill), first=len(earlier))
    known = load_earlier(earlier)
    again = repeated(signed, known)
    fresh = signed.filter(~again)
    texts = Texts(given.sources, tuple(earlier), fresh, known)
    before = known.drop("part") if earlier else None
    decision = run.decide(fresh.drop("part"), before, texts, config)

    spec = StageSpec(stage, run.CODE_VERSION, run.LIBRARIES, partition, section)
    verdicts = with_repeats(decision.decisions, signed, again)
    by_part = verdicts.partition_by("part", as_dict=True, maintain_order=True, include_key=False)
    nothing = verdicts.drop("part").clear()
    tasks = [
        select_task(spec, source, by_part.get((i,), nothing), out, signed_parts[i])
        for i, source in enumerate(given.sources)
    ]
    receipts = run_parts(mill, spec, tasks, clock)
    whole = whole_task(spec, out, pairs=decision.pairs, clusters=decision.clusters)
    receipts += run_parts(mill, spec, [whole], clock)
    gates = mill.config.gates
    bands = gates.yields
    band = bands.deduped_corpus if stage == STAGE else bands.source_texts
    refs = [_ref(dataset) for dataset in earlier]
    return commit_stage(
        mill,
        spec,
        out,
        receipts,
        refs=[*given.refs, *refs],
        locations=given.locations,
        rules=[yield_band(band, gates.min_sample), host_removal(gates), _chain(earlier)],
        summary={
            "dedup": decision.stats,
            "chain": [[d.manifest.content.partition, d.manifest.content.output] for d in earlier],
            "skipped": list(skipped),
        },
        clock=clock,
    )


def _ref(dataset: Dataset) -> InputRef:
    content = dataset.manifest.content
    return InputRef(asset=content.stage, partition=content.partition, hash=dataset.manifest.hash)


def _chain(earlier: Sequence[Dataset]) -> Any:
    def rule(_: Sequence[Receipt], __: Any) -> Gate:
        return Gate(
            name="chain",
            verdict="pass",
            value=float(len(earlier)),
            threshold=None,
            sample=len(earlier),
            blocking=True,
            detail="earlier snapshots compared with, at the outputs recorded in summary.chain",
        )

    return rule


def check_chain(mill: Mill, snapshot: str) -> None:
    """Refuse a snapshot that was compared with earlier ones as they are no longer.

    An earlier snapshot that was made again with equal output changes nothing. Raises GateError
    unless the gate `chain` is accepted.
    """
    content = mill.open(STAGE, snapshot).manifest.content
    moved = [
        name
        for name, output in content.summary.get("chain", ())
        if (now := mill.find(STAGE, name)) and now.content.output != output
    ]
    accepted = mill.config.accept_gate
    if moved and not (accepted and accepted.name == "chain"):
        message = f"{STAGE}/{snapshot} was compared with {', '.join(moved)}, which changed since"
        hint = f"materialise {STAGE}/{snapshot} again, or set accept_gate: {{name: chain, reason}}"
        raise GateError(message, hint=hint)


def classifier_of(given: Input, earlier: Sequence[Dataset]) -> str | None:
    """Checksum of the one classifier behind all quality scores. Raises ContractError on a mixture.

    Ties fall by quality, so scores of two classifiers would make the order meaningless.
    """
    mine = given.dataset.manifest.content.config.get("quality_model") if given.dataset else None
    for dataset in earlier:
        content = dataset.manifest.content
        theirs = content.config.get("quality_model")
        if given.dataset and theirs != mine:
            message = (
                f"{content.stage}/{content.partition} was scored by classifier {theirs}, "
                f"this snapshot by {mine}"
            )
            hint = "promote one classifier and backfill scored_text of every snapshot with it"
            raise ContractError(message, hint=hint)
    return mine


def _sign(frame: pl.DataFrame, *, config: DedupConfig) -> PartResult:
    from pipeline.dedup.run import sign_part

    return PartResult({"signed": sign_part(frame, config)})


def order_of(mill: Mill) -> dict[str, int]:
    """Snapshot -> sequence number, for inputs that hold several."""
    return {name: i for i, name in enumerate(registered_snapshots(mill.root))}


def load_signed(
    out: Store, receipts: Sequence[Receipt], order: dict[str, int], *, first: int
) -> pl.DataFrame:
    """Signed documents of all parts, with the number of their part and their sequence.

    One snapshot is one sequence; several in one input follow registration, else their names.
    """
    import polars as pl

    frames = [
        read_part(out, entry).with_columns(part=pl.lit(i, pl.Int32))
        for i, receipt in enumerate(receipts)
        for entry in receipt.entries["signed"]
    ]
    signed = pl.concat(frames)
    names = signed["snapshot"].unique().drop_nulls().to_list()
    names.sort(key=lambda name: (order.get(name, len(order)), name))
    sequence = {name: first + i for i, name in enumerate(names)}
    numbers = pl.col("snapshot").replace_strict(sequence, default=first, return_dtype=pl.Int64)
    return signed.with_columns(sequence=numbers if sequence else pl.lit(first, pl.Int64))


def load_earlier(earlier: Sequence[Dataset]) -> pl.DataFrame:
    """Signed documents that earlier datasets kept; `part` counts through all their parts."""
    import polars as pl

    frames, place = [], 0
    for i, dataset in enumerate(earlier):
        for entry in dataset.entries("signatures"):
            kept = dataset.read(entry).filter(pl.col("kept")).drop("kept")
            part, sequence = pl.lit(place, pl.Int32), pl.lit(i, pl.Int64)
            frames.append(kept.with_columns(part=part, sequence=sequence))
            place += 1
    schema = {"doc_id": pl.String, "part": pl.Int32}
    return pl.concat(frames) if frames else pl.DataFrame(schema=schema)


def repeated(signed: pl.DataFrame, known: pl.DataFrame) -> pl.Series:
    """Which documents are there already under their very id: in an earlier dataset, or above.

    An id is an address: the same record given again, or two files of one name in two folders.
    """
    ids = signed["doc_id"]
    return ids.is_in(known["doc_id"].implode()) | ~ids.is_first_distinct()


def with_repeats(decided: pl.DataFrame, signed: pl.DataFrame, again: pl.Series) -> pl.DataFrame:
    """Decisions on all of `signed` in order, with their part; the repeated ones are dropped."""
    import polars as pl

    rows = signed.select("doc_id", "url", "part").with_row_index("row")
    dropped = rows.filter(again).with_columns(
        kept=pl.lit(False), reason=pl.lit("input.duplicate_id")
    )
    told = decided.with_columns(rows.filter(~again).select("row", "part"))
    return pl.concat([told, dropped], how="diagonal_relaxed").sort("row").drop("row")


class Texts:
    """Texts of candidates by doc_id, read part by part, from this snapshot and earlier ones."""

    def __init__(
        self,
        sources: Sequence[Source],
        earlier: Sequence[Dataset],
        signed: pl.DataFrame,
        known: pl.DataFrame,
    ) -> None:
        self.readers: list[Any] = [partial(_source_texts, source) for source in sources]
        new = signed.select("doc_id", "part")
        for dataset in earlier:
            for entry in dataset.entries("parts"):
                self.readers.append(partial(dataset.read, entry, ["doc_id", "text"]))
        old = known.select("doc_id", part=known["part"] + len(sources))
        self.places = new.vstack(old)

    def __call__(self, doc_ids: list[str]) -> pl.DataFrame:
        """`doc_id, text` of documents; each part is read once a call."""
        import polars as pl

        wanted = self.places.filter(pl.col("doc_id").is_in(doc_ids))
        found = [pl.DataFrame(schema={"doc_id": pl.String, "text": pl.String})]
        for (part,), rows in wanted.group_by(["part"], maintain_order=True):
            frame = self.readers[int(str(part))]()
            chosen = frame.filter(pl.col("doc_id").is_in(rows["doc_id"].implode()))
            found.append(chosen.select("doc_id", "text"))
        return pl.concat(found)


def _source_texts(source: Source) -> pl.DataFrame:
    frame: pl.DataFrame = source.load().value
    return frame.select("doc_id", "text")


@dataclass(frozen=True)
class SelectSource(DerivedSource):
    """A part, with the verdicts on its documents: survivors are a function of both."""

    verdicts: str

    @property
    def more(self) -> tuple[str, ...]:
        return (self.verdicts,)


def select_task(
    spec: StageSpec, source: Source, verdicts: pl.DataFrame, out: Store, signed: Receipt
) -> PartTask:
    """The task that writes the survivors of one part, with their decisions and signatures."""
    import polars as pl

    decisions = verdicts.with_columns(stage=pl.lit(spec.name))
    chosen = SelectSource(source, checksum(encode_parquet(decisions.to_arrow())))
    work = partial(_select, decisions=decisions, signed=signed, out=out)
    return PartTask(spec, spec.key(chosen.checksums), chosen, work, out)


def _select(
    frame: pl.DataFrame, *, decisions: pl.DataFrame, signed: Receipt, out: Store
) -> PartResult:
    signatures = read_part(out, signed.entries["signed"][0]).with_columns(decisions["kept"])
    return PartResult(
        {
            "parts": frame.filter(decisions["kept"]),
            "decisions": decisions,
            "signatures": signatures.drop("sequence"),
        }
    )


@dataclass(frozen=True)
class WholeSource(AtOnce):
    """What is decided over all parts at once; it is in memory already."""

    checksum: str
    label: str = "all parts"
    origin: str | None = None
    group: int | None = None
    size_bytes: int = 0

    @property
    def checksums(self) -> tuple[str, ...]:
        return (self.checksum,)

    def load(self) -> Loaded:
        return Loaded(None)


def whole_task(spec: StageSpec, out: Store, **tables: pl.DataFrame) -> PartTask:
    """The task that writes tables which belong to no single part."""
    digests = "".join(checksum(encode_parquet(table.to_arrow())) for table in tables.values())
    source = WholeSource(checksum(digests.encode()))
    work = partial(_given, tables=dict(tables))
    return PartTask(spec, spec.key(source.checksums), source, work, out)


def _given(_: object, *, tables: dict[str, pl.DataFrame]) -> PartResult:
    return PartResult(tables)


def check_scope(config: DedupConfig, earlier: Sequence[Dataset]) -> None:
    """Refuse earlier datasets where the scope says that none are looked at."""
    if earlier and config.scope == "snapshot":
        message = "dedup.scope: 'snapshot' compares with no earlier dataset, --against names some"
        raise ConfigError(
            message, hint="set dedup.scope to all or language, or leave --against out"
        )
