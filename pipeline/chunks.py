"""Tokens of one run of characters between blanks, as spaCy's English tokenizer cuts it.

Three runs in five are a plain word with at most a bracket, a quote or a sentence sign around it.
For those the tokenizer's rules always give the same cuts, which are made here at a twentieth of the
cost. Everything the tokenizer has a special case for, and every other run, goes to spaCy. A test
compares the two on real text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager

from pipeline.segment import segment

PLAIN = re.compile(
    r"""(?P<open>[("'\[]?)
        (?P<word>[^\W\d_]{3,})
        (?:(?P<hyphen>-)(?P<second>[^\W\d_]{3,}))?
        (?P<tail>'s|(?<=[a-z])\.)?
        (?P<close>(?:[,;:?!)\]"]|[,?!]"|\),)?)""",
    re.VERBOSE,
)
"""Shorter words are left out: two letters and a sign can be an emoticon or an abbreviation."""


class ChunkTokenizer:
    """spaCy's tokenizer, without what the words of the filters do not need."""

    def __init__(self) -> None:
        import spacy
        from spacy.pipeline import Sentencizer

        self._nlp = spacy.blank("en")
        # shape, prefix, lower case, ... of each new word: a third of the time, and not needed
        self._nlp.vocab.lex_attr_getters = {}
        self._special = frozenset(self._nlp.tokenizer.rules)
        self.sentence_ends = frozenset(Sentencizer.default_punct_chars)

    def memory_zone(self) -> AbstractContextManager[object]:
        """What spaCy learns inside is forgotten at the end, else it keeps every string."""
        zone: AbstractContextManager[object] = self._nlp.memory_zone()
        return zone

    def tokens(self, chunk: str) -> Iterable[str]:
        """The tokens of a run; joined they are the run."""
        if chunk.isdecimal() and chunk.isascii():
            return (chunk,)
        match = PLAIN.fullmatch(chunk)
        if match and not self._has_special_case(chunk, match):
            opened, word, hyphen, second, tail, closed = match.groups(default="")
            return filter(None, (opened, word, hyphen, second, tail, *closed))
        return [token.text for token in self._nlp.tokenizer(chunk)]

    def _has_special_case(self, chunk: str, match: re.Match[str]) -> bool:
        """Whether any run that is left while signs are taken off has tokens of its own."""
        ends = range(match.end("word"), len(chunk) + 1)
        return any(
            chunk[begin:end] in self._special for begin in {0, match.end("open")} for end in ends
        )

    def segmented(self, chunk: str, *, kana: bool) -> Iterable[str]:
        """The tokens of a run in a script without blanks between words."""
        if chunk.isascii():
            return self.tokens(chunk)
        return (token for piece in segment(chunk, kana=kana) for token in self.tokens(piece))
