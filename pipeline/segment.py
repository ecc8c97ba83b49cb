"""Words in scripts that put no blanks between them.

Japanese, Chinese and Thai: budoux (Google, Apache-2.0), whose models ship in its wheel. Its pieces
are phrases in Japanese (mean about four characters) and words in Chinese and Thai. Khmer, Lao and
Myanmar have no model there; their runs are cut into pieces of about five characters, the mean word
length of these languages, never before a combining mark. That is an approximation: good enough to
count words, not to compare them.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

THAI = re.compile("[\u0e00-\u0e7f]+")
UNMODELLED = re.compile("([\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff]+)")
CLUSTERS = re.compile(r"(?:\w[^\w\s]*){1,5}|[^\w\s]+")
"""Five characters with the marks that follow each; `\\w` has letters but not combining marks."""

LONGEST = 2000
"""Characters given to the segmenter at once; longer runs are cut there, to bound its memory."""


@lru_cache(maxsize=3)
def _parser(language: str) -> Any:
    import budoux

    load = {
        "ja": budoux.load_default_japanese_parser,
        "th": budoux.load_default_thai_parser,
        "zh": budoux.load_default_simplified_chinese_parser,
    }
    return load[language]()


def segment(chunk: str, *, kana: bool) -> list[str]:
    """The words of a run of characters without blanks; joined they are the run.

    `kana`: whether the document is Japanese, so that its Han characters are read that way.
    """
    pieces: list[str] = []
    for start in range(0, len(chunk), LONGEST):
        for part in UNMODELLED.split(chunk[start : start + LONGEST]):
            pieces += _segment(part, kana=kana)
    return pieces


def _segment(part: str, *, kana: bool) -> list[str]:
    if not part:
        return []
    if UNMODELLED.fullmatch(part):
        return CLUSTERS.findall(part)
    if part.isascii():
        return [part]
    return list(_parser("th" if THAI.search(part) else "ja" if kana else "zh").parse(part))
