"""scrub: e-mail and IP addresses as datatrove replaces them; the peer's own rules, texts equal.

`details.configured_docs_per_s` is the speed of the configured mode, with all kinds of personal data
and validation, which the peer has no counterpart for.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial, timed

if TYPE_CHECKING:
    import polars as pl

WARM_UP = "Write to a.miller@mill.example, or to 8.8.8.8; card 4111 1111 1111 1111."


def ours(material: Material) -> Trial:
    """`scrub_documents` in mode `fineweb`, without benchmarks."""
    import polars as pl

    from pipeline.config.scrub import ScrubConfig
    from pipeline.scrub.run import scrub_documents

    frame = material.table("documents").drop("edits", strict=False)
    peers = ScrubConfig(mode="fineweb", benchmarks=[])
    own = material.config.scrub.model_copy(update={"benchmarks": []})
    warm = frame.head(1).with_columns(text=pl.lit(WARM_UP))
    for config in (peers, own):
        scrub_documents(warm, config)

    def extra() -> dict[str, float]:
        _, cpu, _ = timed(lambda: scrub_documents(frame, own))
        return {"configured_docs_per_s": len(frame) / max(cpu, 1e-9)}

    return Trial(
        run=lambda: scrub_documents(frame, peers),
        finding=lambda result: result.tables["parts"].select("text"),
        documents=len(frame),
        size=int(frame["text"].str.len_bytes().sum()),
        extra=extra,
    )


def datatrove(material: Material) -> Trial:
    """`PIIFormatter.format` of every text."""
    import polars as pl
    from datatrove.pipeline.formatters.pii import PIIFormatter

    series = material.table("documents")["text"]
    texts: list[str] = series.to_list()
    PIIFormatter().format(WARM_UP)
    formatter = PIIFormatter()  # replacements are taken in turn, from the first
    return Trial(
        run=lambda: [formatter.format(text) for text in texts],
        finding=lambda found: pl.DataFrame({"text": found}, schema={"text": pl.String}),
        documents=len(texts),
        size=int(series.str.len_bytes().sum()),
    )


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Texts that are equal, byte for byte."""
    return {
        "documents": len(ours),
        "texts_equal": int((ours["text"] == theirs["text"]).sum()),
    }
