"""How good extracted text is: word 4-shingles against gold text, and segments found or avoided.

Precision and recall are taken a page and averaged (precision over pages with an answer), F1 is
their harmonic mean: the definition of the article-extraction benchmark (Zyte, 2020). `page_f1` is
the mean of the pages' own F1, in which an empty answer costs its full share. Words are runs of word
characters, case kept; in Han, kana and Thai each character is a word.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SHINGLE = 4
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_SPACE = re.compile(r"\s+")
BY = ("page_type", "source", "language")
"""Fields of the gold by which scores are broken down."""

Gold = Mapping[str, Any]
"""A row of the gold: `url, text, with, without` and the fields of `BY`."""


def words(text: str) -> list[str]:
    """The words of a text, as scores and labels count them."""
    return _WORD.findall(text)


def shingles(text: str) -> Counter[tuple[str, ...]]:
    """The multiset of a text's 4-shingles; one shorter shingle for a text of fewer words."""
    found = words(text)
    if not found:
        return Counter()
    return Counter(tuple(found[i : i + SHINGLE]) for i in range(max(1, len(found) - SHINGLE + 1)))


@dataclass
class Score:
    """Sums over pages; `result` makes them numbers."""

    precision: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    page_f1: list[float] = field(default_factory=list)
    empty: int = 0
    found: int = 0
    wrong: int = 0
    missed: int = 0
    segment_pages: int = 0

    def add(self, text: str, gold: Gold) -> float | None:
        """Count one page; its F1, null where its gold has no text."""
        must, must_not = gold.get("with") or [], gold.get("without") or []
        if must or must_not:
            flat = _SPACE.sub(" ", text)
            found = sum(_SPACE.sub(" ", segment).strip() in flat for segment in must)
            self.found += found
            self.missed += len(must) - found
            self.wrong += sum(_SPACE.sub(" ", segment).strip() in flat for segment in must_not)
            self.segment_pages += 1
        return self._add_text(text, gold["text"]) if gold.get("text") else None

    def _add_text(self, text: str, gold: str) -> float:
        answer, wanted = shingles(text), shingles(gold)
        hit = (answer & wanted).total()
        if answer:
            self.precision.append(hit / answer.total())
        if wanted:
            self.recall.append(hit / wanted.total())
        both = answer.total() + wanted.total()
        self.page_f1.append(2 * hit / both if both else 1.0)
        self.empty += not text.strip()
        return self.page_f1[-1]

    def result(self) -> dict[str, dict[str, float]]:
        """`shingles` {pages, empty, precision, recall, f1, page_f1} and `segments` {pages,
        precision, recall, f1}, each where there are such pages; rounded to four places."""
        out: dict[str, dict[str, float]] = {}
        if self.page_f1:
            numbers = _numbers(_mean(self.precision), _mean(self.recall))
            pages = {"pages": len(self.page_f1), "empty": self.empty}
            out["shingles"] = {**pages, **numbers, "page_f1": round(_mean(self.page_f1), 4)}
        if self.segment_pages:
            precision = self.found / (self.found + self.wrong) if self.found + self.wrong else 0.0
            recall = self.found / (self.found + self.missed) if self.found + self.missed else 0.0
            out["segments"] = {"pages": self.segment_pages, **_numbers(precision, recall)}
        return out


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _numbers(precision: float, recall: float) -> dict[str, float]:
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return {"precision": round(precision, 4), "recall": round(recall, 4), "f1": round(f1, 4)}


def score(
    texts: Mapping[str, str], gold: Iterable[Gold], by: Iterable[str] = BY
) -> dict[str, dict[str, dict[str, float]]]:
    """Scores of `texts` (url -> text; an absent url is an empty answer) over all `gold` rows.

    Keys are `all` and `<field>=<value>` for each field of `by`; values as `Score.result`.
    """
    fields = tuple(by)
    scores: dict[str, Score] = defaultdict(Score)
    for row in gold:
        text = texts.get(row["url"]) or ""
        for name in ("all", *(f"{name}={row.get(name)}" for name in fields)):
            scores[name].add(text, row)
    return {name: scores[name].result() for name in sorted(scores, key=lambda n: (n != "all", n))}


def table(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """The scores for a terminal, a line a group."""
    head = f"{'':<26}{'pages':>6}{'empty':>6}{'P':>8}{'R':>8}{'F1':>8}{'pageF1':>8}"
    lines = [f"{head}   segments: pages   P      R      F1"]
    for name, both in scores.items():
        left, right = " " * 44, ""
        if text := both.get("shingles"):
            counts = f"{text['pages']:>6}{text['empty']:>6}"
            names = ("precision", "recall", "f1", "page_f1")
            left = counts + "".join(f"{text[key]:>8.4f}" for key in names)
        if found := both.get("segments"):
            numbers = " ".join(f"{found[key]:.4f}" for key in ("precision", "recall", "f1"))
            right = f"{found['pages']:>18} {numbers}"
        lines.append(f"{name:<26}{left}{right}".rstrip())
    return "\n".join(lines)
