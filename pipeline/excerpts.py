"""What may be shown of strangers' pages: scrubbed of personal data, without markup, short.

Tables of the web UI, the report and the command line all show pages through these functions.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from pipeline.config.display import DisplayConfig

if TYPE_CHECKING:
    import polars as pl

LOOK_ALIKE = str.maketrans({"<": "‹", ">": "›", "`": "'", "|": "¦"})
TEXT_CHARS = 2_000
"""Characters of a page that are scrubbed to show 200 of them."""


def scrubbed(frame: pl.DataFrame, config: DisplayConfig) -> list[str]:
    """The beginnings of texts (columns `doc_id, url, text`), without personal data or markup."""
    import polars as pl

    from pipeline.config.scrub import ScrubConfig
    from pipeline.scrub.run import scrub_documents

    heads = frame.with_columns(pl.col("text").fill_null("").str.slice(0, TEXT_CHARS))
    result = scrub_documents(heads, ScrubConfig())
    texts = dict(result.tables["parts"].select("doc_id", "text").iter_rows())
    return [clean(texts.get(doc) or "", config.excerpt_chars) for doc in frame["doc_id"]]


def clean(text: str, limit: int = 200) -> str:
    """Text of strangers made safe to show: one line, no markup, no control characters, short."""
    visible = "".join(c if c.isspace() or unicodedata.category(c)[0] != "C" else "" for c in text)
    line = " ".join(visible.split()).translate(LOOK_ALIKE)
    return line if len(line) <= limit else line[: limit - 1] + "…"


def page_name(doc_id: str | None, url: str | None) -> str:
    """A page by its URL, without addresses and keys that a query may carry; digits stay, since the
    URL is what `gristmill trace` is asked with.
    """
    if not url:
        return clean(doc_id or "")
    import polars as pl

    from pipeline.config.scrub import ScrubConfig
    from pipeline.scrub.run import scrub_documents

    config = ScrubConfig(phone=False, ip=False, card=False, iban=False)
    frame = pl.DataFrame({"doc_id": [doc_id], "text": [url]})
    return clean(scrub_documents(frame, config).tables["parts"]["text"][0])
