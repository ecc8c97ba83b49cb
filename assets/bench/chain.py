"""curate: decoded pages to filtered text, against the same chain of datatrove's blocks.

Both sides read English, with the published thresholds. The peer's extractor runs in this process,
without its sandbox, whose deadline of one second of wall time makes results depend on the machine;
its language is told by the same model, on the whole text, as its own block does.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.filtering import WARM_UP as TEXT
from assets.bench.filtering import chain
from assets.bench.material import ENGLISH, Material
from assets.bench.pages import word_f1
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

MIN_SCORE = 0.65
PAGE = f"<html><body><article><p>{TEXT}</p></article></body></html>"


def _trial(material: Material, curate: Any) -> Trial:
    """`curate`: pages as (url, html) -> {number of the page: text that is kept}."""
    import polars as pl

    frame = material.table("pages")
    pages = list(frame.select("url", "html").iter_rows())
    curate([(None, PAGE)])

    def finding(kept: dict[int, str]) -> pl.DataFrame:
        texts = [kept.get(number) for number in range(len(pages))]
        return pl.DataFrame({"text": texts}, schema={"text": pl.String})

    return Trial(
        run=lambda: curate(pages),
        finding=finding,
        documents=len(pages),
        size=int(frame["html"].str.len_bytes().sum()),
    )


def ours(material: Material) -> Trial:
    """`extract_page`, then `filter_documents`."""
    import logging

    import polars as pl

    from pipeline.config.filter import FilterConfig
    from pipeline.filters.run import filter_documents
    from pipeline.pages import extract_page
    from pipeline.words import tokenizer

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    config = FilterConfig.model_validate({"language": {"keep": [ENGLISH], "min_score": MIN_SCORE}})

    def curate(pages: list[tuple[str | None, str]]) -> dict[int, str]:
        tokenizer().clear()
        texts = [extract_page(html, url, material.config.extract).text for url, html in pages]
        numbers = [str(number) for number in range(len(pages))]
        frame = pl.DataFrame(
            {"doc_id": numbers, "url": [url for url, _ in pages], "text": texts},
            schema={"doc_id": pl.String, "url": pl.String, "text": pl.String},
        )
        kept = filter_documents(frame, config).tables["parts"]
        return {int(number): text for number, text in kept.select("doc_id", "text").iter_rows()}

    return _trial(material, curate)


def datatrove(material: Material) -> Trial:
    """The peer's `Trafilatura`, the language model, its four filters."""
    import logging

    import fasttext as model_library
    from datatrove.pipeline.extractors import Trafilatura

    from pipeline.language import model_path

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    extractor, judge = Trafilatura(), chain()
    model = model_library.load_model(str(model_path()))

    def curate(pages: list[tuple[str | None, str]]) -> dict[int, str]:
        kept = {}
        for number, (_, html) in enumerate(pages):
            text = extractor.extract(html)
            if not text:
                continue
            labels, scores = model.predict([text.replace("\n", " ")])
            if labels[0][0] != f"__label__{ENGLISH}" or scores[0][0] < MIN_SCORE:
                continue
            reason, left = judge(text)
            if reason is None:
                kept[number] = left
        return kept

    return _trial(material, curate)


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Pages kept by each and by both, and the mean F1 of words of the latter's texts."""
    pairs = list(zip(ours["text"].to_list(), theirs["text"].to_list(), strict=True))
    scores = [word_f1(a, b) for a, b in pairs if a is not None and b is not None]
    return {
        "documents": len(pairs),
        "kept_ours": sum(a is not None for a, _ in pairs),
        "kept_theirs": sum(b is not None for _, b in pairs),
        "kept_by_both": len(scores),
        "word_f1": round(sum(scores) / max(len(scores), 1), 4),
    }
