"""Tokens: the sample, the frozen tokenizer, the shards of each corpus.

scrubbed_corpus, source_texts -> tokenizer_sample -> tokenizer
a corpus and the tokenizer -> token_shards
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pipeline.config import Config, section_json
from pipeline.config.tokenize import TokenizeConfig
from pipeline.dataset import Dataset, checksum, read_bytes
from pipeline.driver import Receipt, StageSpec
from pipeline.errors import UsageError
from pipeline.gates import yield_band
from pipeline.inputs import (
    DerivedSource,
    GroupSource,
    Input,
    Loaded,
    Source,
    TableSource,
    as_one,
    dataset_input,
)
from pipeline.manifest import InputRef, Manifest
from pipeline.mill import Mill, registered_snapshots, run_stage
from pipeline.part import PartResult
from pipeline.stages.artifacts import artifact, kept_decisions, mirror, only_extra
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl

TOKENIZER_FILE = "tokenizer.json"
SAMPLED = ("doc_id", "url", "text", "source", "language")
UNFREEZE = "unfreeze"


def corpora(mill: Mill) -> list[Dataset]:
    """Every clean corpus that is there: snapshots in order, then sources by name."""
    names = [("scrubbed_corpus", name) for name in registered_snapshots(mill.root)]
    names += [("source_texts", name) for name in source_partitions(mill)]
    return [mill.open(asset, name) for asset, name in names if mill.find(asset, name)]


def source_partitions(mill: Mill) -> list[str]:
    """Sources that configuration names, by name."""
    from pipeline.stages.sources import source_names

    return source_names(mill.config.sources.location)


def tokenizer_sample(mill: Mill) -> Manifest:
    """`tokenizer_sample`: what the tokenizer is trained on, by source and language."""
    from pipeline import tokenizer

    datasets = corpora(mill)
    if not datasets:
        message = "there is no scrubbed_corpus and no source_texts to sample from"
        raise UsageError(message, hint="materialise a snapshot or a source up to there first")
    config = mill.config.tokenizer
    keep = ("sample_bytes", "weights", "language_alpha")
    section = {k: v for k, v in section_json(config).items() if k in keep}
    spec = StageSpec("tokenizer_sample", tokenizer.CODE_VERSION, tokenizer.LIBRARIES, None, section)
    given = joined(datasets)
    chosen = choose(given.sources, config)
    sources = tuple(ChosenSource(s, c) for s, c in zip(given.sources, chosen, strict=True))
    sampled = Input(sources, given.refs, None, given.locations)
    return run_stage(mill, spec, sampled, _sample, mill.folder("tokenizer_sample"))


def joined(datasets: Sequence[Dataset]) -> Input:
    """Several datasets as one input."""
    inputs = [dataset_input(dataset) for dataset in datasets]
    return Input(
        tuple(source for one in inputs for source in one.sources),
        tuple(ref for one in inputs for ref in one.refs),
        None,
        tuple(place for one in inputs for place in one.locations),
    )


def choose(sources: Sequence[Source], config: Any) -> list[tuple[str, ...]]:
    """For each source, the ids of the documents that are sampled. Held-out ones never are."""
    import polars as pl

    from pipeline.tokenizer import plan_sample

    sizes = [_sizes(source).with_columns(part=pl.lit(i)) for i, source in enumerate(sources)]
    table = pl.concat(sizes)
    taken = table.filter(plan_sample(table.drop("part"), config)).select("part", "doc_id")
    by_part = taken.partition_by("part", as_dict=True, maintain_order=True)
    nothing = taken.clear()
    return [tuple(by_part.get((i,), nothing)["doc_id"].to_list()) for i in range(len(sources))]


def _sizes(source: Source) -> pl.DataFrame:
    import polars as pl

    frame = _with_columns(source.load().value)
    training = frame.filter(pl.col("split").fill_null("train") == "train")
    size = pl.col("text").str.len_bytes().fill_null(0).cast(pl.Int64).alias("n_bytes")
    return training.select("doc_id", "source", "language", size)


def _with_columns(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    absent = [n for n in ("url", "source", "language", "split") if n not in frame.columns]
    return frame.with_columns(pl.lit(None, pl.String).alias(name) for name in absent)


@dataclass(frozen=True)
class ChosenSource(DerivedSource):
    """Some documents of a part."""

    doc_ids: tuple[str, ...]

    @property
    def more(self) -> tuple[str, ...]:
        return (checksum("\n".join(self.doc_ids).encode()),)

    def load(self) -> Loaded:
        import polars as pl

        frame = _with_columns(self.part.load().value)
        chosen = frame.filter(pl.col("doc_id").is_in(self.doc_ids)).select(SAMPLED)
        return Loaded(chosen, chosen.height)


def _sample(frame: pl.DataFrame) -> PartResult:
    return PartResult({"parts": frame, "decisions": kept_decisions(frame, "tokenizer_sample")})


def tokenizer(mill: Mill) -> Manifest:
    """`tokenizer`: byte-level BPE trained on the sample; frozen once it is there."""
    from pipeline import tokenizer as stage

    given = as_one(dataset_input(mill.open("tokenizer_sample")))
    section = {k: v for k, v in section_json(mill.config.tokenizer).items() if k != UNFREEZE}
    spec = StageSpec("tokenizer", stage.CODE_VERSION, stage.LIBRARIES, None, section)
    before = mill.find("tokenizer")
    stage.check_frozen(
        before.content.parts[0].key if before else None,
        spec.key(given.sources[0].checksums),
        unfreeze=mill.config.tokenizer.unfreeze,
        stale=[f"token_shards/{name}" for name in token_corpora(mill)],
    )
    work = partial(_train, config=mill.config)
    out = mill.folder("tokenizer")
    return mirror(
        mill, run_stage(mill, spec, given, work, out, summarise=only_extra), TOKENIZER_FILE
    )


def _train(frame: pl.DataFrame, *, config: Config) -> PartResult:
    text, report = train_on(frame, config)
    decisions = kept_decisions(frame, "tokenizer")
    return artifact(TOKENIZER_FILE, text.encode(), decisions, report=report)


def train_on(frame: pl.DataFrame, config: Config) -> tuple[str, dict[str, Any]]:
    """A tokenizer trained on documents, and what it costs each language and source."""
    from pipeline.token_costs import measure
    from pipeline.tokenizer import train_tokenizer

    text, report = train_tokenizer(frame["text"].fill_null("").to_list(), config.tokenizer)
    return text, {**report, "measured": measure(text, frame)}


def train_on_inputs(mill: Mill, given: Input) -> tuple[str, dict[str, Any]]:
    """A tokenizer and its report from any input, sampled as configuration says."""
    import polars as pl

    chosen = choose(given.sources, mill.config.tokenizer)
    parts = zip(given.sources, chosen, strict=True)
    frames = [ChosenSource(source, ids).load().value for source, ids in parts]
    return train_on(pl.concat(frames), mill.config)


def read_tokenizer(dataset: Dataset) -> str:
    """The tokenizer of a committed dataset, verified."""
    return read_bytes(dataset.store, dataset.entries()[0]).decode()


def token_corpora(mill: Mill) -> list[str]:
    """Corpora that have token shards."""
    names = [*registered_snapshots(mill.root), *source_partitions(mill)]
    return [name for name in names if mill.find("token_shards", name)]


def token_shards(mill: Mill, corpus: str) -> Manifest:
    """`token_shards`: a snapshot or a source as Megatron shards with document ids."""
    web = corpus in registered_snapshots(mill.root)
    dataset = mill.open("scrubbed_corpus" if web else "source_texts", corpus)
    trained = mill.open("tokenizer")
    ref = InputRef(asset="tokenizer", hash=trained.manifest.hash)
    return tokenize_input(
        mill,
        dataset_input(dataset),
        mill.folder("token_shards", corpus),
        corpus,
        read_tokenizer(trained),
        refs=(ref,),
    )


def tokenize_input(
    mill: Mill,
    given: Input,
    out: Store,
    corpus: str,
    tokenizer_json: str,
    refs: tuple[InputRef, ...] = (),
) -> Manifest:
    """Tokenize any input into shards named after `corpus`, one a part group and split."""
    from pipeline import tokenize
    from pipeline.tokenizer import tokenizer_hash

    section = section_json(mill.config.tokenize)
    section |= {"tokenizer": tokenizer_hash(tokenizer_json), "corpus": corpus}
    spec = StageSpec("token_shards", tokenize.CODE_VERSION, tokenize.LIBRARIES, corpus, section)
    gates = mill.config.gates
    grouped = Input(tuple(by_group(given)), given.refs, given.dataset, given.locations)
    work = partial(
        _shards, tokenizer_json=tokenizer_json, config=mill.config.tokenize, corpus=corpus
    )
    rules = [yield_band(gates.yields.token_shards, gates.min_sample)]
    return run_stage(
        mill, spec, grouped, work, out, refs=refs, rules=rules, summarise=_count_tokens
    )


def by_group(given: Input) -> Iterator[Source]:
    """One source a part group; parts without a group stand alone, numbered in order."""
    groups: dict[int, list[TableSource]] = {}
    for i, source in enumerate(given.sources):
        if source.group is None or not isinstance(source, TableSource):
            yield NumberedSource(source, i)
        else:
            groups.setdefault(source.group, []).append(source)
    for number in sorted(groups):
        members = groups[number]
        yield NumberedSource(GroupSource(members[0].store, tuple(s.entry for s in members)), number)


@dataclass(frozen=True)
class NumberedSource(DerivedSource):
    """A source with the number its shard is called by."""

    number: int

    @property
    def more(self) -> tuple[str, ...]:
        return (str(self.number),)

    @property
    def group(self) -> int | None:
        return self.number

    def load(self) -> Loaded:
        loaded = self.part.load()
        loaded.value = (loaded.value, self.number)
        return loaded


def _shards(
    numbered: tuple[pl.DataFrame, int], *, tokenizer_json: str, config: TokenizeConfig, corpus: str
) -> PartResult:
    from pipeline.tokenize import shard_part

    frame, number = numbered
    result = shard_part(
        frame, tokenizer_json=tokenizer_json, config=config, corpus=corpus, group=number
    )
    sidecars = [file.path for file in result.files["parts"] if file.path.suffix == ".json"]
    result.extra["shards"] = [json.loads(path.read_text(encoding="utf-8")) for path in sidecars]
    return result


def _count_tokens(receipts: Sequence[Receipt]) -> dict[str, Any]:
    total: dict[str, Any] = {"tokens": {}, "sources": {}, "languages": {}}
    for receipt in receipts:
        for sidecar in receipt.extra["shards"]:
            split = sidecar["split"]
            total["tokens"][split] = total["tokens"].get(split, 0) + sidecar["tokens"]
            for kind in ("sources", "languages"):
                for name, sums in sidecar[kind].items():
                    into = total[kind].setdefault(name, dict.fromkeys(sums, 0))
                    for key, n in sums.items():
                        into[key] += n
    return total
