"""Compiles every kernel once: `python -m pipeline.warm`, when an image is built or by `make setup`.

Two small documents go through each stage that has kernels. These are cached in `NUMBA_CACHE_DIR`,
else beside the code, per kind of CPU: another kind compiles again, once. Later processes read them
in a fraction of a second. A test runs every stage afterwards and finds nothing left to compile.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.config import Config, load_config

if TYPE_CHECKING:
    import polars as pl

LINES = (
    "The miller opens the gate, and the water turns the wheel until the evening comes.",
    "- “Grind it,” he said (to nobody) in 1897 ... [1]",
    "水車は川の水で回り、粉屋は麦を粉にする。",
    "Write to a.miller@mill.example, or to 8.8.8.8.",
)
QUESTION = "Which of the wheels of the old mill turns first when the miller opens the upper gate?"
PAGE = """<html><head><title>Mill</title><meta property="og:type" content="article"></head>
<body><article>{}</article></body></html>"""


def warm() -> None:
    """Send documents through extraction, filters, scores, deduplication and scrub."""
    texts = extract()
    frame = documents([*texts, QUESTION * 3])
    filter_all(frame)
    deduplicate(frame)
    score(frame)
    scrub(frame)


def extract() -> list[str]:
    """Texts of pages, one as configured and one in mode `best`."""
    from pipeline.pages import extract_page

    body = "".join(f"<p>{line}</p>" for line in LINES * 4)
    body += "<pre>int main() {\n  return 0;\n}</pre><table><tr><td>a</td><td>b</td></tr></table>"
    html = PAGE.format(body)
    best = load_config(sets=["extract.mode=best", "extract.comments=drop"]).extract
    sections = [best, Config().extract]
    return [extract_page(html, "https://mill.example/", section).text for section in sections]


def documents(texts: list[str]) -> pl.DataFrame:
    """Documents as the stages read them."""
    import polars as pl

    names = [f"{number:032x}" for number in range(len(texts))]
    return pl.DataFrame(
        {"doc_id": names, "url": "https://mill.example/", "snapshot": "warm", "text": texts}
    )


def filter_all(frame: pl.DataFrame) -> None:
    """Filters of the default rules and of each preset."""
    from pipeline.config import presets
    from pipeline.filters.run import filter_documents

    for preset in (None, *presets()):
        filter_documents(frame, load_config(preset=preset).filter)


def deduplicate(frame: pl.DataFrame) -> None:
    """Signatures and decisions, the second time against documents kept before."""
    import polars as pl

    from pipeline.dedup.run import decide, sign_part

    near = frame.with_columns(pl.lit("f").add(pl.col("doc_id").str.slice(1)).alias("doc_id"))
    near = near.with_columns(pl.col("text") + " And once more.")
    both = pl.concat([frame, near])
    config = Config().dedup

    def text_of(ids: list[str]) -> pl.DataFrame:
        return both.filter(pl.col("doc_id").is_in(ids)).select("doc_id", "text")

    signed = sign_part(both, config).with_columns(sequence=pl.lit(0, pl.Int64))
    decide(signed, None, text_of, config)
    decide(signed[len(frame) :], signed[: len(frame)], text_of, config)


def score(frame: pl.DataFrame) -> None:
    """Scores by a classifier of two documents."""
    import polars as pl

    from pipeline.quality import QUALITY_LABELS, score_texts, train_classifier

    rows = frame.select("text", label=(pl.col("doc_id").str.tail(1) == "0").cast(pl.Int64))
    config = Config().score.classifier.model_copy(update={"bucket": 1000, "epochs": 1})
    with tempfile.TemporaryDirectory(prefix="gristmill-warm-") as folder:
        model = Path(folder) / "model.bin"
        model.write_bytes(train_classifier(rows, config, "1").model)
        score_texts(frame["text"], model, QUALITY_LABELS)


def scrub(frame: pl.DataFrame) -> None:
    """Personal data, and a benchmark that one document holds."""
    from pipeline.scrub.run import scrub_documents

    with tempfile.TemporaryDirectory(prefix="gristmill-warm-") as folder:
        items = Path(folder) / "items.jsonl"
        items.write_text(json.dumps({"question": QUESTION}) + "\n")
        config = Config().scrub.model_copy(update={"benchmarks": [str(items)]})
        scrub_documents(frame, config)


def main() -> None:
    """Compile, and say how long it took."""
    begin = time.perf_counter()
    warm()
    print(f"kernels are compiled and cached ({time.perf_counter() - begin:.0f} s)")


if __name__ == "__main__":
    main()
