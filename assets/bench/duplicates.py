"""dedup: one copy of each document, against datatrove's four MinHash steps.

The two do not decide alike: the peer removes whatever hangs together by shared bands, ours what is
measured to be similar to a document that is kept. So verdicts are reported, not expected equal.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.signing import WARM_UP, peer_settings, peer_signer
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl


def ours(material: Material) -> Trial:
    """`sign_part`, `decide`, survivors."""
    import polars as pl

    from pipeline.dedup.run import decide, sign_part

    frame = material.table("documents")
    config = material.config.dedup

    def dedup(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
        def text_of(ids: list[str]) -> pl.DataFrame:
            wanted = pl.Series("doc_id", ids)
            return frame.select("doc_id", "text").join(wanted.to_frame(), on="doc_id", how="semi")

        decisions = decide(sign_part(frame, config), None, text_of, config).decisions
        return decisions, frame.filter(decisions["kept"])

    lines = [f"{WARM_UP} 水車は回る {'again ' * (i > 1)}" for i in range(3)]
    dedup(pl.DataFrame({"doc_id": ["a", "b", "c"], "text": lines}))
    return Trial(
        run=lambda: dedup(frame),
        finding=lambda found: found[0].select("doc_id", "kept", "value"),
        documents=len(frame),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def datatrove(material: Material) -> Trial:
    """Signatures, buckets, clusters, filter: one task each (14 for the buckets), on disk."""
    import tempfile
    from collections.abc import Iterator
    from pathlib import Path

    import polars as pl
    from datatrove.data import Document
    from datatrove.pipeline.dedup.minhash import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
    )
    from datatrove.utils.logging import logger

    logger.disable("datatrove")
    frame = material.table("documents")
    config = material.config.dedup
    settings = peer_settings(config)

    def documents(texts: list[str], ids: list[str]) -> Iterator[Document]:
        for text, doc_id in zip(texts, ids, strict=True):
            yield Document(text=text, id=doc_id)

    def dedup(texts: list[str], ids: list[str]) -> list[str]:
        with tempfile.TemporaryDirectory() as name:
            places = [str(Path(name, step)) for step in ("signatures", "buckets", "removals")]
            peer_signer(places[0], config).run(documents(texts, ids))
            for rank in range(config.bands):
                step = MinhashDedupBuckets(places[0], places[1], config=settings)
                step.run(None, rank, config.bands)
            MinhashDedupCluster(places[1], places[2], config=settings).run(None, 0, 1)
            kept = MinhashDedupFilter(places[2]).run(documents(texts, ids))
            return [document.id for document in kept]

    dedup([WARM_UP, WARM_UP], ["a", "b"])
    texts, ids = frame["text"].to_list(), frame["doc_id"].to_list()

    def finding(kept: list[str]) -> pl.DataFrame:
        return frame.select("doc_id", kept=pl.col("doc_id").is_in(kept))

    return Trial(
        run=lambda: dedup(texts, ids),
        finding=finding,
        documents=len(texts),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """How many each keeps, and how many verdicts are the same.

    Which member of a group stays is a matter of order, so `kept_*` says more than equal verdicts.
    """
    both = ours.join(theirs, on="doc_id", suffix="_theirs")
    return {
        "documents": len(both),
        "kept_ours": int(both["kept"].sum()),
        "kept_theirs": int(both["kept_theirs"].sum()),
        "verdicts_equal": int((both["kept"] == both["kept_theirs"]).sum()),
    }
