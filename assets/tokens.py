"""Group tokens: a frozen tokenizer, shards of token ids, and the plan of what is trained on."""

import dagster as dg

from assets.automation import first_time
from assets.curation import scrubbed_corpus, source_texts
from assets.materialise import materialise, materialise_whole, options
from assets.millwork import Launch, MillResource
from assets.partitions import CORPORA, corpus_kind
from pipeline.manifest import Manifest
from pipeline.mill import Mill


@dg.asset(
    **options("tokens", "pipeline.tokenizer", "parquet"),
    deps=[scrubbed_corpus, source_texts],
    metadata={"configuration": "tokenizer"},
)
def tokenizer_sample(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """A sample of all corpora, by source and language, that the tokenizer is trained on.

    **In:** the scrubbed text of every snapshot and source there is. **Falls:** what is beyond
    `tokenizer.sample_bytes`; languages get their share to a power below 1, lest small ones drown.
    **Next:** `tokenizer`, once.
    """
    from pipeline.stages.tokens import tokenizer_sample as stage

    return materialise_whole(context, mill, config, stage)


@dg.asset(
    **options("tokens", "pipeline.tokenizer"),
    deps=[tokenizer_sample],
    metadata={"configuration": "tokenizer"},
)
def tokenizer(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Byte-level BPE, frozen once it exists.

    **In:** the sample. **Next:** read bytes per token by language: a language far below the others
    costs that much more compute. Another tokenizer is refused unless `tokenizer.unfreeze: true`,
    and then every token shard, plan and run is stale.
    """
    from pipeline.stages.tokens import tokenizer as stage

    return materialise_whole(context, mill, config, stage)


# The same key on both sides, though the partition sets differ: a corpus is a snapshot or a source.
# A key without a counterpart in one of the two is right for runs, conditions and staleness, but an
# asset backfill of Dagster 1.13 refuses it ("depends on non-existent partitions"). A mapping to all
# partitions would make every old corpus stale with each new one, which is worse; several corpora
# are launched from the job `mill_tokens`.
SAME_KEY = dg.IdentityPartitionMapping()


@dg.asset(
    **options("tokens", "pipeline.tokenize", "numpy", partitions=CORPORA),
    deps=[
        dg.AssetDep(scrubbed_corpus, partition_mapping=SAME_KEY),
        dg.AssetDep(source_texts, partition_mapping=SAME_KEY),
        tokenizer,
    ],
    automation_condition=first_time(
        ("scrubbed_corpus", "tokenizer"), ("source_texts", "tokenizer")
    ),
    metadata={"configuration": "tokenize"},
)
def token_shards(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """Token ids of a snapshot or source in Megatron's `.bin/.idx`, with the document of each.

    **In:** scrubbed text and the frozen tokenizer. **Falls:** empty documents (`tokens.empty`).
    **Next:** `gristmill trace --token SHARD:OFFSET` follows a token back to the bytes of its page;
    `mixture` by hand. Several corpora at once: the job `mill_tokens`.
    """
    from pipeline.stages.tokens import token_shards as stage

    def known(opened: Mill, corpus: str) -> Manifest:
        corpus_kind(context.instance, corpus)
        return stage(opened, corpus)

    return materialise(context, mill, config, known)


@dg.asset(
    **options("tokens", "pipeline.mixture"),
    deps=[token_shards],
    metadata={"configuration": "mixture"},
)
def mixture(
    context: dg.AssetExecutionContext, config: Launch, mill: MillResource
) -> dg.MaterializeResult:
    """The training plan: which share of which source, how often, in which phase.

    **In:** the shards of every corpus, `mixture.weights` or phases, and the cap on repetition.
    **Next:** compare requested with realised shares; then write `runs/<name>.yaml` with
    `plan: mixture/plan.json` and materialise `checkpoints` for that name. Only by hand: a plan that
    changed under a run would be another run.
    """
    from pipeline.stages.mixture import mixture as stage

    return materialise_whole(context, mill, config, stage)
