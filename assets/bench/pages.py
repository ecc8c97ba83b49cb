"""extract: main text of decoded pages, against trafilatura and resiliparse.

trafilatura reads without comments, since reading them costs it a third of its speed.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial
from pipeline.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

Judge = Callable[["pl.DataFrame"], dict[str, Any]]

WARM_UP = "<html><head><title>Warm</title></head><body><p>{}</p></body></html>".format(
    "The mill turns slowly while the water runs. " * 20
)


def _trial(material: Material, extract: Any) -> Trial:
    import polars as pl

    frame = material.table("pages")
    pages = list(zip(frame["html"].to_list(), frame["url"].to_list(), strict=True))
    extract(WARM_UP, None)
    return Trial(
        run=lambda: [extract(html, url) for html, url in pages],
        finding=lambda texts: frame.select("url", text=pl.Series(texts, dtype=pl.String)),
        documents=len(pages),
        size=int(frame["html"].str.len_bytes().sum()),
    )


def ours(material: Material) -> Trial:
    """`extract_page` in the configured mode."""
    import logging

    from pipeline.pages import extract_page

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    config = material.config.extract
    return _trial(material, lambda html, url: extract_page(html, url, config).text)


def trafilatura(material: Material) -> Trial:
    """`trafilatura.extract` without comments."""
    import logging

    import trafilatura as peer

    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)
    return _trial(
        material, lambda html, url: peer.extract(html, url=url, include_comments=False) or ""
    )


def resiliparse(material: Material) -> Trial:
    """Resiliparse's main content, with the settings of our mode of that name."""
    from resiliparse.extract.html2text import extract_plain_text

    def extract(html: str, _: str | None) -> str:
        text: str = extract_plain_text(html, main_content=True, alt_texts=False, post_meta=False)
        return text

    return _trial(material, extract)


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Pages with a text on both sides, equal texts, and the mean F1 of words between the two."""
    pairs = list(zip(ours["text"].to_list(), theirs["text"].to_list(), strict=True))
    scores = [word_f1(a, b) for a, b in pairs if a or b]
    return {
        "documents": len(pairs),
        "texts_in_both": sum(bool(a and b) for a, b in pairs),
        "texts_in_ours": sum(bool(a) for a, _ in pairs),
        "texts_in_theirs": sum(bool(b) for _, b in pairs),
        "texts_equal": sum(a == b for a, b in pairs),
        "word_f1": round(sum(scores) / max(len(scores), 1), 4),
    }


def word_f1(a: str, b: str) -> float:
    """F1 of the words of two texts, counted with repeats; 1 where both have none."""
    first, second = Counter(a.split()), Counter(b.split())
    both = 2 * (first & second).total()
    whole = first.total() + second.total()
    return both / whole if whole else 1.0


def judge(gold: Path) -> Judge:
    """Scores of a finding against a JSONL of gold: of all pages read and by the gold's page type.

    UsageError for a file that cannot be read, or that names none of the pages.
    """
    from pipeline.extractor.scores import score

    try:
        lines = gold.read_text(encoding="utf-8").split("\n")  # a text may hold other line ends
        rows = {row["url"]: row for row in map(json.loads, filter(str.strip, lines))}
    except (ValueError, TypeError, KeyError) as error:
        message = f"gold {gold} cannot be read: {error}"
        raise UsageError(message, hint="one JSON object a line: url, text, page_type") from error

    def scores(finding: "pl.DataFrame") -> dict[str, Any]:
        texts = dict(finding.select("url", "text").drop_nulls("url").iter_rows())
        if rows.keys().isdisjoint(texts):
            message = f"gold {gold} names none of the pages that were read"
            raise UsageError(message, hint="give the WARC files of the gold with --input")
        return score(texts, [row for url, row in rows.items() if url in texts], by=("page_type",))

    return scores
