"""filter: the published rules, against datatrove's filters in FineWeb's order.

Both sides have the published thresholds and English pages. Ours also tells the language and keeps
every signal of every document; the peer stops at the first rule that fails. Cold is the first run
over the input, warm the second, with the table of words filled; the peer keeps none.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

FAMILIES = ("gopher_repetition", "gopher_quality", "c4", "fineweb")
WARM_UP = "\n".join(
    f"- The {n}th miller said (to nobody, in the end): “grind it, don't sell it!” ... [1]"
    for n in range(12)
)


def ours(material: Material) -> Trial:
    """`filter_documents` with FineWeb's published settings."""
    import polars as pl

    from pipeline.config.filter import FilterConfig
    from pipeline.filters.run import filter_documents
    from pipeline.words import tokenizer

    frame = material.table("english").select("doc_id", "url", "text")
    config = FilterConfig()
    warm = pl.DataFrame({"doc_id": ["a"], "url": [None], "text": [WARM_UP]}, schema=frame.schema)
    filter_documents(warm, config)
    tokenizer().clear()
    return Trial(
        run=lambda: filter_documents(frame, config),
        finding=_our_finding,
        documents=len(frame),
        size=int(frame["text"].str.len_bytes().sum()),
        again=True,
    )


def _our_finding(result: Any) -> "pl.DataFrame":
    import polars as pl

    kept = result.tables["parts"].select("doc_id", digest=_digests(result.tables["parts"]["text"]))
    return (
        result.tables["decisions"]
        .select("doc_id", "kept", "reason")
        .join(kept, on="doc_id", how="left", maintain_order="left")
        .select("doc_id", "kept", pl.col("reason").cast(pl.String), "digest")
    )


def _digests(texts: "pl.Series") -> "pl.Series":
    import polars as pl
    import xxhash

    values = [xxhash.xxh3_64_intdigest(text.encode()) for text in texts]
    return pl.Series("digest", values, pl.UInt64)


def filters() -> list[Any]:
    """datatrove's filters in FineWeb's order, with the published thresholds."""
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    return [
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=False),
        FineWebQualityFilter(),
    ]


def chain() -> Any:
    """datatrove's chain: a function from a text to (reason or None, text as C4 left it)."""
    from datatrove.data import Document

    rules = filters()

    def judge(text: str) -> tuple[str | None, str]:
        document = Document(text=text, id="")
        for family, rule in zip(FAMILIES, rules, strict=True):
            verdict = rule.filter(document)
            if verdict is not True:
                return f"{family}.{verdict[1]}", document.text
        return None, document.text

    return judge


def datatrove(material: Material) -> Trial:
    """The peer's filters, document by document, as its pipeline runs them."""
    import polars as pl
    from datatrove.utils.text import split_into_parts

    frame = material.table("english")
    judge = chain()
    judge(WARM_UP)
    split_into_parts.cache_clear()
    texts: list[str] = frame["text"].to_list()

    def finding(verdicts: list[tuple[str | None, str]]) -> pl.DataFrame:
        digests = _digests(pl.Series([text for _, text in verdicts], dtype=pl.String))
        table = pl.DataFrame(
            {
                "doc_id": frame["doc_id"],
                "reason": pl.Series([reason for reason, _ in verdicts], dtype=pl.String),
            }
        ).with_columns(kept=pl.col("reason").is_null())
        return table.select("doc_id", "kept", "reason", digest=pl.when(table["kept"]).then(digests))

    return Trial(
        run=lambda: [judge(text) for text in texts],
        finding=finding,
        documents=len(texts),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Equal decisions, equal first failing reasons, equal texts of what both keep."""
    import polars as pl

    both = ours.join(theirs, on="doc_id", suffix="_theirs", maintain_order="left")
    decisions = both["kept"] == both["kept_theirs"]
    reasons = both["reason"].eq_missing(both["reason_theirs"])
    kept = both.filter(pl.col("kept") & pl.col("kept_theirs"))
    differ = both.filter(~(decisions & reasons))
    return {
        "documents": len(both),
        "decisions_equal": int(decisions.sum()),
        "reasons_equal": int(reasons.sum()),
        "differing": len(differ),
        "kept": int(both["kept"].sum()),
        "texts_compared": len(kept),
        "texts_equal": int((kept["digest"] == kept["digest_theirs"]).sum()),
        "differ": [
            {"doc_id": doc, "ours": mine, "theirs": peer}
            for doc, mine, peer in differ.select("doc_id", "reason", "reason_theirs")
            .head(5)
            .iter_rows()
        ],
    }
