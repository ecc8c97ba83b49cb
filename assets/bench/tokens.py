"""tokenize: documents to ids, against the library's own batch call."""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

WARM_UP = "The mill turns slowly."


def ours(material: Material) -> Trial:
    """`tokenize_documents`, end tokens and the table of documents included."""
    import numpy as np
    import polars as pl

    from pipeline.tokenize import TokenizedPart, tokenize_documents

    frame = material.table("documents").drop("split", strict=False)
    text = material.path("tokenizer.json").read_text(encoding="utf-8")
    config = material.config.tokenize
    tokenize_documents(frame.head(1).with_columns(text=pl.lit(WARM_UP)), text, config)

    def finding(part: TokenizedPart) -> pl.DataFrame:
        ends = np.cumsum(part.lengths)
        ids = [
            part.tokens[end - length : end - 1].astype(np.int64)
            for end, length in zip(ends.tolist(), part.lengths.tolist(), strict=True)
        ]
        return _table(part.documents["doc_id"].to_list(), ids)

    return Trial(
        run=lambda: tokenize_documents(frame, text, config),
        finding=finding,
        documents=len(frame),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def tokenizers(material: Material) -> Trial:
    """`encode_batch` of all texts."""
    import numpy as np

    from pipeline.tokenizer import load_tokenizer

    frame = material.table("documents")
    texts: list[str] = frame["text"].to_list()
    tokenizer = load_tokenizer(material.path("tokenizer.json").read_text(encoding="utf-8"))
    tokenizer.encode_batch([WARM_UP], add_special_tokens=False)

    def finding(found: list[Any]) -> "pl.DataFrame":
        ids = [np.array(each.ids, np.int64) for each in found]
        named = [(doc, part) for doc, part in zip(frame["doc_id"], ids, strict=True) if len(part)]
        return _table([doc for doc, _ in named], [part for _, part in named])

    return Trial(
        run=lambda: tokenizer.encode_batch(texts, add_special_tokens=False),
        finding=finding,
        documents=len(texts),
        size=int(frame["text"].str.len_bytes().sum()),
    )


def _table(doc_ids: list[str], ids: list[Any]) -> "pl.DataFrame":
    import polars as pl
    import xxhash

    digests = [xxhash.xxh3_64_intdigest(each.tobytes()) for each in ids]
    return pl.DataFrame(
        {
            "doc_id": pl.Series(doc_ids, dtype=pl.String),
            "tokens": pl.Series([len(each) for each in ids], dtype=pl.Int64),
            "digest": pl.Series(digests, dtype=pl.UInt64),
        }
    )


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Documents with the same ids."""
    both = ours.join(theirs, on="doc_id", suffix="_theirs")
    return {
        "documents": max(len(ours), len(theirs)),
        "ids_equal": int((both["digest"] == both["digest_theirs"]).sum()),
        "tokens": int(ours["tokens"].sum()),
    }
