"""The contests: for each stage and peer the two sides, the comparison, and what they need."""

from dataclasses import dataclass
from importlib.util import find_spec

from pipeline.errors import UsageError

CURE = "install it with `make bench`, or pip install -c constraints.txt -e '.[bench]'"


@dataclass(frozen=True)
class Contest:
    """A stage against a peer. Functions are named `module:function`, and imported by the worker."""

    stage: str
    peer: str
    ours: str
    theirs: str
    compare: str
    needs: tuple[str, ...]
    """What `material.make` has to prepare."""
    packages: tuple[str, ...]
    """Modules of the peer that must be installed."""
    says: str
    """What is compared with what."""


def _contest(
    stage: str,
    peer: str,
    module: str,
    needs: tuple[str, ...],
    says: str,
    *,
    packages: tuple[str, ...] | None = None,
    ours: str = "ours",
    theirs: str | None = None,
    compare: str = "compare",
) -> Contest:
    place = f"assets.bench.{module}"
    return Contest(
        stage,
        peer,
        f"{place}:{ours}",
        f"{place}:{theirs or peer}",
        f"{place}:{compare}",
        needs,
        packages or (peer,),
        says,
    )


CONTESTS = (
    _contest(
        "extract", "trafilatura", "pages", ("pages",),
        "extract_page (mode of the configuration, title and licence marks included) and "
        "trafilatura.extract, on decoded HTML",
    ),
    _contest(
        "language", "fasttext", "language", ("documents",),
        "identify and the bare predict call on the whole text, both with lid.176",
    ),
    _contest(
        "filter", "datatrove", "filtering", ("english",),
        "filter_documents (all signals kept) and datatrove's Gopher, C4 and FineWeb filters, "
        "published thresholds, English pages",
    ),
    _contest(
        "signatures", "datatrove", "signing", ("documents",),
        "sign_part (exact key included) and MinhashDedupSignature in memory, 14 x 8, 5-grams",
        compare="compare_flags",
    ),
    _contest(
        "signatures", "datasketch", "signing", ("documents",),
        "sign_part (exact key included) and MinHash.generator over Python shingles, 14 x 8",
        compare="compare_hashes",
    ),
    _contest(
        "banding", "datasketch", "signing", ("signed",),
        "buckets of all bands and MinHashLSH query + insert, on the same signatures",
        ours="our_buckets", theirs="datasketch_lsh", compare="compare_flags",
    ),
    _contest(
        "dedup", "datatrove", "duplicates", ("documents",),
        "signatures, decision, survivors, verified on text, and datatrove's four MinHash steps "
        "(on disk, in a temporary folder)",
    ),
    _contest(
        "score", "fasttext", "scoring", ("documents", "classifier"),
        "score_texts, normalisation included, and the bare predict call on normalised texts",
    ),
    _contest(
        "scrub", "datatrove", "scrubbing", ("documents",),
        "scrub_documents in mode fineweb (span maps included) and PIIFormatter",
    ),
    _contest(
        "tokenize", "tokenizers", "tokens", ("documents", "tokenizer"),
        "tokenize_documents and Tokenizer.encode_batch, with the same tokenizer",
    ),
    _contest(
        "load", "memmap", "loading", ("shards",),
        "Loader over one pass (packed rows, positions, documents, targets) and plain slices of "
        "a memory map",
        packages=("numpy",),
    ),
    _contest(
        "train", "transformers", "training_step", ("shards",),
        "steps of the trainer (loader, guard and metrics on) and of transformers with AdamW, "
        "the same shape and weights",
    ),
    _contest(
        "curate", "datatrove", "chain", ("pages",),
        "decoded pages to filtered English text (extract_page, filter_documents), and datatrove's "
        "Trafilatura and filters with the same language model",
    ),
)  # fmt: skip


def find_contest(stage: str, peer: str | None) -> Contest:
    """The contest of a stage; without `peer` its first. UsageError names what there is."""
    known = [contest for contest in CONTESTS if contest.stage == stage]
    if not known:
        stages = ", ".join(dict.fromkeys(contest.stage for contest in CONTESTS))
        message = f"no stage {stage!r} is measured"
        raise UsageError(message, hint=f"one of {stages}")
    if peer is None:
        return known[0]
    for contest in known:
        if contest.peer == peer:
            return contest
    message = f"stage {stage} is not measured against {peer!r}"
    raise UsageError(message, hint=f"against {', '.join(contest.peer for contest in known)}")


def check_peer(contest: Contest) -> None:
    """UsageError with the cure where the peer is not installed."""
    missing = [name for name in contest.packages if find_spec(name) is None]
    if missing:
        message = f"the peer {', '.join(missing)} is not installed"
        raise UsageError(message, hint=CURE)
