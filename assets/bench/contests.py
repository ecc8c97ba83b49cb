"""The contests: for each stage and peer the sides, the comparison, and what they need."""

from dataclasses import dataclass
from importlib.util import find_spec

from pipeline.config import Config
from pipeline.config.extract import MODES
from pipeline.errors import UsageError

CURE = "install it with `make bench`, or pip install -c constraints.txt -e '.[bench]'"


@dataclass(frozen=True)
class Side:
    """One contestant: a function `module:function`, imported by the worker."""

    label: str
    function: str
    sets: tuple[str, ...] = ()
    """Settings laid over the configuration, as `--set` takes them."""


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
    modes: tuple[str, ...] = ()
    """Modes of extraction that ours is also measured in."""
    forms: tuple[Side, ...] = ()
    """Further forms of ours."""
    peers: tuple[Side, ...] = ()
    """Further forms of the peer; the ratio is against the faster one."""
    shared: bool = False
    """Whether the rounds share the input, a part each, rather than repeat it."""
    clock: str = "cpu_seconds"
    """What the ratio is of: `cpu_seconds` or `wall_seconds`."""

    def sides(self, config: Config) -> tuple[list[Side], list[Side]]:
        """Ours (as configured, in the other modes, in other forms), and the forms of the peer."""
        mode = config.extract.mode
        label = f"gristmill, {mode}" if self.modes else "gristmill"
        ours = [Side(label, self.ours)] + [
            Side(f"gristmill, {other}", self.ours, (f"extract.mode={other}",))
            for other in self.modes
            if other != mode
        ]
        return [*ours, *self.forms], [Side(self.peer, self.theirs), *self.peers]


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
    modes: tuple[str, ...] = (),
    forms: dict[str, str] | None = None,
    peers: dict[str, str] | None = None,
    shared: bool = False,
    clock: str = "cpu_seconds",
) -> Contest:
    place = f"assets.bench.{module}"
    return Contest(
        stage,
        peer,
        f"{place}:{ours}",
        f"{place}:{theirs or peer}",
        f"{place}:{compare}",
        needs,
        (peer,) if packages is None else packages,
        says,
        modes,
        tuple(Side(label, f"{place}:{name}") for label, name in (forms or {}).items()),
        tuple(Side(label, f"{place}:{name}") for label, name in (peers or {}).items()),
        shared,
        clock,
    )


CHAIN_OF_PEER = ("datatrove", "warcio", "cchardet", "magic", "orjson")

CONTESTS = (
    _contest(
        "extract", "trafilatura", "pages", ("pages",),
        "extract_page (title and licence marks included) in each mode, and trafilatura.extract "
        "without comments, on decoded HTML",
        modes=MODES,
    ),
    _contest(
        "extract", "resiliparse", "pages", ("pages",),
        "extract_page (title and licence marks included) in each mode, and resiliparse's "
        "extract_plain_text of main content, parsing included, on decoded HTML",
        modes=MODES,
    ),
    _contest(
        "language", "fasttext", "language", ("documents",),
        "identify and the bare predict call on the whole text, both with lid.176",
    ),
    _contest(
        "language", "datatrove", "language", ("documents",),
        "identify and datatrove's FT176LID, with the same lid.176 file",
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
        "batches of 16 x 2,048 tokens in the order of training (rows, positions, documents, mask, "
        "targets, checksum) and plain slices of a memory map",
        packages=("numpy",),
    ),
    _contest(
        "train", "transformers", "training_step", ("shards",),
        "steps of the trainer (loader, document mask, gate, metrics and MLflow on) and of a loop "
        "around transformers' Llama in float32 with AdamW, 6 layers x 384, the same batches",
        forms={"gristmill, bfloat16": "bfloat16", "gristmill, untracked": "untracked"},
    ),
    _contest(
        "curate", "datatrove", "chain", ("warcs",),
        "WARC files to filtered English text on disk: the stages extract and filter, and "
        "datatrove's WarcReader, Trafilatura (in its sandbox, and without), LanguageFilter, "
        "Gopher, C4 and FineWeb filters, JsonlWriter; each round has its own files",
        packages=CHAIN_OF_PEER, modes=MODES[:2], shared=True,
        theirs="sandboxed", peers={"datatrove without sandbox": "in_process"},
    ),
    _contest(
        "scaling", "copies", "scaling", ("warcs",),
        "the stages extract and filter on WARC files with engine.workers=2, and two processes "
        "with one worker, started together, that have half of the bytes each; wall time",
        packages=(), clock="wall_seconds",
    ),
)  # fmt: skip


def find_contest(stage: str, peer: str | None) -> Contest:
    """The contest of a stage; without `peer` its first. UsageError names what there is."""
    known = [contest for contest in CONTESTS if contest.stage == stage]
    if not known:
        stages = ", ".join(dict.fromkeys(contest.stage for contest in CONTESTS))
        message = f"no stage {stage!r} is measured"
        raise UsageError(message, hint=f"one of {stages}; or growth, start")
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
