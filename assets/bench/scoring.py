"""score: the classifier with its normalisation, against the bare call on normalised texts."""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

TOLERANCE = 1e-5


def ours(material: Material) -> Trial:
    """`score_texts` from the texts as they are."""
    import polars as pl

    from pipeline.quality import QUALITY_LABELS, score_texts

    texts = material.table("documents")["text"]
    model = material.path("classifier.bin")
    score_texts(pl.Series(["A line of text to begin with."]), model, QUALITY_LABELS)
    return Trial(
        run=lambda: score_texts(texts, model, QUALITY_LABELS),
        finding=lambda scores: pl.DataFrame({"score": scores}),
        documents=len(texts),
        size=int(texts.str.len_bytes().sum()),
    )


def fasttext(material: Material) -> Trial:
    """`predict` on the list of all normalised texts; normalising is not on the clock."""
    import fasttext as peer
    import polars as pl

    from pipeline.quality import POSITIVE, normalise

    series = material.table("documents")["text"]
    texts: list[str] = normalise(series).to_list()
    model = peer.load_model(str(material.path("classifier.bin")))
    model.predict(["A line of text to begin with."], k=2)

    def finding(found: Any) -> pl.DataFrame:
        scores = [
            float(values[labels.index(f"__label__{POSITIVE}")]) if text else None
            for text, labels, values in zip(texts, *found, strict=True)
        ]
        return pl.DataFrame({"score": pl.Series(scores, dtype=pl.Float32)})

    return Trial(
        run=lambda: model.predict(texts, k=2),
        finding=finding,
        documents=len(texts),
        size=int(series.str.len_bytes().sum()),
    )


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Scores that are equal to 1e-5, or null on both sides."""
    differences = (ours["score"] - theirs["score"]).abs()
    nulls = ours["score"].is_null() & theirs["score"].is_null()
    equal = (differences <= TOLERANCE).fill_null(value=False) | nulls
    largest = differences.max()
    return {
        "documents": len(ours),
        "scores_equal": int(equal.sum()),
        "largest_difference": round(float(str(largest)), 7) if largest is not None else None,
    }
