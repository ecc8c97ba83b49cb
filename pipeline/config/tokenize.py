"""Section `tokenize`: documents to token shards."""

from __future__ import annotations

from pydantic import Field

from pipeline.config.base import Section


class TokenizeConfig(Section):
    """Shards are shaped by the tokenizer and the documents alone; this is their safety net."""

    verify_documents: int = Field(
        16,
        ge=0,
        description="Documents of each part that are decoded again and compared with their text, "
        "evenly spread; a difference stops the stage.",
    )
