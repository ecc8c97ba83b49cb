"""Train the extractor on labelled pages, and say how good it is on hosts it has not seen.

Pages are divided into five folds by host. Each fold's pages are answered by forests of the other
four: these answers feed the second forest, and make the scores. The shipped forests are then grown
on all pages. One thread and fixed seeds: the same pages give the same bytes. LightGBM (Ke et al.,
NeurIPS 2017) is needed here and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import numpy as np
from selectolax.lexbor import LexborHTMLParser

from pipeline.errors import GristmillError
from pipeline.extractor import context, features, forest, scores, select
from pipeline.extractor.assemble import page_text
from pipeline.extractor.labels import Labels, gold_labels, segment_labels
from pipeline.extractor.page import Page, scan_tree
from pipeline.extractor.script_text import script_text
from pipeline.extractor.tallies import Tally, tally
from pipeline.pages import is_shell, tidy

if TYPE_CHECKING:
    import lightgbm
    from numpy.typing import NDArray

    from pipeline.extractor.labelled import Row

FOLDS = 5
SEEDS = (7, 8, 9)
"""Boosters whose mean is a forest: one alone moves page F1 by up to 0.003 with its seed."""
ROUNDS = (240, 100)
"""Trees of a booster of the first and of the second forest; more of the second is worse."""
PARAMETERS: dict[str, Any] = {
    "objective": "binary", "learning_rate": 0.05, "num_leaves": 24, "min_data_in_leaf": 100,
    "min_sum_hessian_in_leaf": 8, "lambda_l2": 5, "feature_fraction": 0.35,
    "bagging_fraction": 0.7, "bagging_freq": 2, "max_bin": 63, "num_threads": 1,
    "deterministic": True, "force_row_wise": True, "verbose": -1,
}  # fmt: skip
PAGE_BINS, OUTER_BINS = 8, 24
"""Steps of features that are the same all over a page, or over much of it. With all of `max_bin`
they name a page of the training set, and trees learn it by heart (log loss 0.239, so 0.237)."""
OUTER = ("up3_", "up4_", "section_", "densest_share", "kin_words", "kin_links")
MAIN_TEXT = 0.5
"""Share of a block's words under the gold from which it is main text."""
MAX_WORDS, WORD_POWER = 300.0, 0.6
"""A block weighs as the power of its words, up to so many."""
TEXT_WEIGHT, SEGMENT_WEIGHT = 100.0, 40.0
"""What all blocks of a page weigh together: with full gold text, and with segments only."""


@dataclass(frozen=True)
class Example:
    """A labelled page with all that training asks of it."""

    gold: Row
    page: Page
    counts: Tally
    columns: NDArray[np.float32]
    labels: Labels
    scripts: str
    """The text that the page carries in its scripts."""
    fold: int

    def text(self, p: NDArray[np.float32], comments: Literal["keep", "drop"]) -> str:
        """What mode `best` would extract, had the forests answered `p`."""
        text = page_text(self.page, select.kept_of(self.page, p, comments))
        return tidy(self.scripts if is_shell(text, self.scripts) else text)

    @property
    def is_main(self) -> NDArray[np.bool_]:
        """`[blocks]`, true where the block is main text."""
        return self.labels.share > MAIN_TEXT

    @property
    def weight(self) -> NDArray[np.float64]:
        """`[blocks]`, the same sum for all pages of a kind."""
        words = np.minimum(self.labels.words, MAX_WORDS) ** WORD_POWER * self.labels.known
        total = TEXT_WEIGHT if self.gold.get("text") else SEGMENT_WEIGHT
        return total * words / max(words.sum(), 1e-9)


@dataclass(frozen=True)
class Trained:
    """A model, its out-of-fold texts by URL, and their scores."""

    model: bytes
    texts: dict[str, str]
    scores: dict[str, Any]
    blocks: int
    main_blocks: int

    def predictions(self) -> bytes:
        """The texts as JSONL, `url, text`."""
        rows = ({"url": url, "text": text} for url, text in self.texts.items())
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()

    def report(self) -> dict[str, Any]:
        """What was trained, on what, with which result, as JSON."""
        return {
            "pages": len(self.texts),
            "blocks": self.blocks,
            "main_blocks": self.main_blocks,
            "model_bytes": len(self.model),
            "model_sha256": hashlib.sha256(self.model).hexdigest(),
            "scores": self.scores,
        }


def fold_of(url: str) -> int:
    """The fold of a page's host: all pages of a host are held back together."""
    host = (urlsplit(url).hostname or "").lower().removeprefix("www.")
    return int(hashlib.sha256(f"f{host}".encode()).hexdigest()[:8], 16) % FOLDS


def example(gold: Row, html: str) -> Example:
    """A page parsed, described and labelled."""
    tree = LexborHTMLParser(html.encode("utf-8", "replace"))
    page = scan_tree(tree)
    counts, texts = tally(page), page.block_texts()
    if gold.get("text"):
        labels = gold_labels(texts, gold["text"])
    else:
        labels = segment_labels(texts, gold.get("with") or [], gold.get("without") or [])
    columns = features.block_features(page, counts)
    return Example(gold, page, counts, columns, labels, script_text(tree), fold_of(gold["url"]))


def train(pages: Iterable[tuple[Row, str]], comments: Literal["keep", "drop"] = "keep") -> Trained:
    """Train on (gold row, HTML) pairs, in any order; `comments` is for the out-of-fold texts.

    GristmillError where the labelled blocks are all of one class, or all on hosts of one fold.
    """
    examples = sorted((example(*pair) for pair in pages), key=lambda e: e.gold["url"])
    gold = [e.gold for e in examples]
    blocks, main_blocks = check(examples)
    inputs = [e.columns for e in examples]
    seen, first = fit(examples, inputs, features.NAMES, ROUNDS[0])
    inputs = [
        context.context_features(p, e.columns, e.page, e.counts)
        for e, p in zip(examples, seen, strict=True)
    ]
    answers, second = fit(examples, inputs, context.NAMES, ROUNDS[1])
    texts = {}
    for e, p in zip(examples, answers, strict=True):
        texts[e.gold["url"]] = e.text(p, comments)
    model = select.pack(first, second)
    return Trained(model, texts, scores.score(texts, gold), blocks, main_blocks)


def check(examples: Sequence[Example]) -> tuple[int, int]:
    """Labelled blocks, and those of main text. GristmillError where nothing can be learnt."""
    known = sum(int(e.labels.known.sum()) for e in examples)
    main = sum(int((e.is_main & e.labels.known).sum()) for e in examples)
    if main in (0, known):
        what = "no block is main text" if not main else "every block is main text"
        message = f"of {known:,} labelled blocks on {len(examples)} pages {what}"
        hint = "label pages whose gold text is in them, and is not all that is in them"
        raise GristmillError(message, hint=hint)
    folds = {e.fold for e in examples if e.labels.known.any()}
    if len(folds) < 2:
        message = f"{len(examples)} labelled pages lie on too few hosts to hold some back"
        raise GristmillError(message, hint="label pages of at least ten hosts")
    return known, main


def fit(
    examples: Sequence[Example],
    inputs: Sequence[NDArray[np.float32]],
    names: Sequence[str],
    rounds: int,
) -> tuple[list[NDArray[np.float32]], forest.Forest]:
    """Out-of-fold probabilities of every example's blocks, and the forest grown on all examples."""
    data = _dataset(examples, inputs, names)
    folds = np.concatenate([np.full(int(e.labels.known.sum()), e.fold) for e in examples])
    answers: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(examples)
    for fold in range(FOLDS):
        held = [i for i, e in enumerate(examples) if e.fold == fold]
        if held:
            grown = grow(data.subset(np.flatnonzero(folds != fold).tolist()), rounds).compiled()
            for i in held:
                answers[i] = forest.probabilities(inputs[i], *grown)
    return answers, grow(data, rounds)


def bins(name: str) -> int:
    """In how many steps a feature is looked at."""
    if name.startswith(("page_", "hint_")):
        return PAGE_BINS
    return OUTER_BINS if name.startswith(OUTER) else PARAMETERS["max_bin"]


def grow(data: lightgbm.Dataset, rounds: int) -> forest.Forest:
    """A forest: the mean of one booster a seed."""
    import lightgbm

    boosters = [lightgbm.train({**PARAMETERS, "seed": seed}, data, rounds) for seed in SEEDS]
    return forest.flatten(boosters)


def _dataset(
    examples: Sequence[Example], inputs: Sequence[NDArray[np.float32]], names: Sequence[str]
) -> lightgbm.Dataset:
    """The blocks with a known label, binned once for all folds."""
    import lightgbm

    known = [e.labels.known for e in examples]
    rows = np.concatenate([x[:, k].T for x, k in zip(inputs, known, strict=True)])
    is_main = np.concatenate([e.is_main[e.labels.known] for e in examples])
    weight = np.concatenate([e.weight[e.labels.known] for e in examples])
    settings = {**PARAMETERS, "max_bin_by_feature": [bins(name) for name in names]}
    data = lightgbm.Dataset(rows, is_main, weight=weight, params=settings, free_raw_data=False)
    return data.construct()
