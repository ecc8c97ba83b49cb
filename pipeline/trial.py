"""One page through extraction and the rules: what `gristmill try` shows.

Every rule says its value and threshold, in the order in which they are asked; the first that does
not pass is what the page would be dropped for.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.errors import UsageError


def try_page(html: bytes | str, url: str | None, config: Config) -> dict[str, Any]:
    """Text, title, language and every rule's value for one page."""
    import polars as pl

    from pipeline.filters.run import explain
    from pipeline.language import identify
    from pipeline.pages import extract_page

    page = extract_page(html, url, config.extract)
    language = identify(pl.Series("text", [page.text])).row(0, named=True)
    rows = [] if page.reason else explain(page.text, url, config.filter)
    failed = next((row.rule for row in rows if not row.passes), None)
    return {
        "url": url,
        "title": page.title,
        "text": page.text,
        "extractor": page.extractor,
        "charset": page.charset,
        "licence": page.marks.licence,
        **language,
        "kept": not page.reason and failed is None,
        "reason": page.reason or failed,
        "rules": [
            {
                "rule": row.rule,
                "value": row.value,
                "threshold": row.threshold,
                "passes": row.passes,
            }
            for row in rows
        ],
    }


def page_of_record(raw: bytes, name: str, config: Config) -> tuple[str, str | None]:
    """HTML and URL of the first page in the bytes of a WARC record or member."""
    from pipeline.bodies import decode_body, parse_http
    from pipeline.charset import decode
    from pipeline.warc import read_records

    with tempfile.NamedTemporaryFile(suffix=".warc.gz") as file:
        file.write(raw)
        file.flush()
        for record in read_records(Path(file.name), name):
            http = parse_http(record.block) if record.kind == "response" else None
            if http:
                body = decode_body(http, config.extract.max_bytes)
                return decode(body, http.charset)[0], record.url
    message = f"the record in {name} is no page"
    raise UsageError(message, hint="try another URL; `gristmill trace --url` tells its fate")
