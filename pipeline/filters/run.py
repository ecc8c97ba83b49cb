"""The stage `filtered_text`: measure every document, then decide.

Order, as FineWeb published it: URL lists, language, Gopher repetition, Gopher quality, C4 (which
edits the text), FineWeb; between the last two DCLM's rules, which edit it too. Every signal is
measured for every document, also for those an earlier rule drops: the signal table answers what
another threshold would do. Signals of the C4, DCLM and FineWeb rules are those of the edited text,
so they hold for the line rules they were measured under.

The rule sets are imported where they are used: they bring numba and spaCy, and this module is read
by the asset graph for its version.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from pipeline import language
from pipeline.config.filter import FilterConfig
from pipeline.filters import plugins
from pipeline.filters.language_files import resolved
from pipeline.filters.rules import Rule, RuleRow, below, decide, judge
from pipeline.language_table import part_table
from pipeline.part import PartResult

if TYPE_CHECKING:
    from pipeline.filters.edited import Edited
    from pipeline.words import Texts, Words

CODE_VERSION = "3"
LIBRARIES = ("polars", "numpy", "numba", "spacy", "icu4py")
STAGE = "filtered_text"

BATCH_BYTES = 2_000_000
"""Text measured at once: large enough for the kernels, small enough for the caches."""

ENGLISH = "en"
LANGUAGE_COLUMNS = ("language", "language_score")


def rules(config: FilterConfig) -> list[Rule]:
    """Every rule that is on, in order; the last drops an empty text if no other did."""
    from pipeline.filters import c4, dclm, fineweb, gopher_quality, gopher_repetition, urls

    config = resolved(config)
    gopher = {code: rules.gopher for code, rules in config.per_language.items()}
    return [
        *urls.rules(config.urls),
        *(language.rules(config.language) if config.language.enabled else []),
        *gopher_repetition.rules(config.gopher, gopher),
        *gopher_quality.rules(config.gopher, gopher),
        *c4.rules(config.c4),
        *dclm.rules(config.dclm),
        *fineweb.rules(
            config.fineweb, {code: rules.fineweb for code, rules in config.per_language.items()}
        ),
        *plugins.rules(config.plugins),
        *below("extract.empty", "n_chars", 1),
    ]


def filter_documents(frame: pl.DataFrame, config: FilterConfig) -> PartResult:
    """Documents -> `parts` (kept; `text` and `edits` as the C4 rules left them, with `language` and
    `language_score`), `decisions` (one row a document) and `signals` (`doc_id` and one column a
    signal: float32, int32, and `language`; `n_bytes` is the size of the text as it is kept).

    Needs the columns `doc_id, url, text`; `edits` that came in are composed with the new ones.
    """
    config = resolved(config)
    measured = [_measure(batch, config) for batch in _batches(frame)]
    signals = pl.concat([signal for signal, _ in measured])
    edited = pl.concat([text for _, text in measured])
    decided = decide(signals, rules(config))
    decisions = pl.DataFrame(
        [
            frame["doc_id"],
            frame["url"].cast(pl.String),
            pl.Series("stage", [STAGE] * len(frame), pl.String),
            *decided.get_columns(),
            _detail(decided, signals),
        ]
    )
    kept = frame.with_columns(*edited.get_columns(), *signals.select(LANGUAGE_COLUMNS))
    kept = kept.filter(decided["kept"])
    stored = signals.with_columns(pl.selectors.float().cast(pl.Float32))
    tables = {
        "parts": kept,
        "decisions": decisions,
        "signals": pl.DataFrame([frame["doc_id"], *stored.get_columns()]),
    }
    return PartResult(tables, extra={"languages": part_table(signals, decided)})


def explain(text: str, url: str | None, config: FilterConfig) -> list[RuleRow]:
    """Every rule's value and threshold for one page, in the order in which they are asked."""
    schema = {"doc_id": pl.String, "url": pl.String, "text": pl.String}
    frame = pl.DataFrame({"doc_id": ["page"], "url": [url], "text": [text]}, schema=schema)
    config = resolved(config)
    return judge(_measure(frame, config)[0], rules(config))


def _batches(frame: pl.DataFrame) -> list[pl.DataFrame]:
    """Slices of about BATCH_BYTES of text, in order; one empty slice of an empty frame."""
    group = frame["text"].str.len_bytes().fill_null(0).cum_sum() // BATCH_BYTES
    lengths = group.rle().struct.field("len").to_list() if len(frame) else [0]
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    return [frame.slice(start, n) for start, n in zip(starts, lengths, strict=False)]


def _measure(frame: pl.DataFrame, config: FilterConfig) -> tuple[pl.DataFrame, pl.DataFrame]:
    """All signals of a batch, and its columns `text` and `edits` after the C4 rules."""
    from pipeline.filters import c4, dclm, fineweb, gopher_quality, gopher_repetition, urls
    from pipeline.filters.edited import edits_of
    from pipeline.words import series_of, spacing_of, texts_of, tokenizer

    told = language.signals(frame["text"], config.language)
    texts = texts_of(frame["text"])
    spacing = spacing_of(texts)
    # a page of signs that is told to be English is judged as the published filters judge it
    spacing[(told["language"] == ENGLISH).to_numpy()] = 0
    words = tokenizer().words(texts, spacing)
    columns = [
        urls.signals(frame["url"], config.urls),
        told,
        gopher_repetition.signals(texts, words),
        gopher_quality.signals(texts, words, told["language"], config.gopher.stop_words),
    ]
    result = frame.select("text", *(["edits"] if "edits" in frame.columns else []))
    if config.dclm.enabled:
        columns.append(dclm.signals(texts, config.dclm))
    edits = frame["edits"] if "edits" in frame.columns else None
    editors: list[Callable[[Texts, Words], Edited]] = []
    if config.c4.enabled:
        editors.append(partial(c4.edit, config=config.c4, tokenizer=tokenizer()))
    if config.dclm.enabled:
        editors.append(partial(dclm.edit, config=config.dclm, tokenizer=tokenizer()))
    for edit in editors:
        edited = edit(texts, words)
        edits = edits_of(edited.cut, texts, edits)
        texts, words = edited.cut.texts, edited.words
        columns.append(edited.signals)
        result = pl.DataFrame([series_of(texts), edits])
    columns.append(fineweb.signals(texts, words, config.fineweb))
    if config.plugins:
        given = pl.DataFrame([frame["url"], result["text"], told["language"]])
        known = [name for table in columns for name in table.columns]
        columns += plugins.signals(config.plugins, given, known)
    columns.append(
        result.select(pl.col("text").str.len_bytes().fill_null(0).cast(pl.Int32).alias("n_bytes"))
    )
    return pl.concat(columns, how="horizontal"), result


def _detail(decided: pl.DataFrame, signals: pl.DataFrame) -> pl.Series:
    """JSON with the language where it is what a document was dropped for."""
    told = decided["reason"].str.starts_with("language.").fill_null(value=False)
    codes = signals["language"].unique().drop_nulls().to_list()
    quoted = {code: json.dumps({"language": code}) for code in codes}
    detail = signals["language"].replace_strict(quoted, default=None, return_dtype=pl.String)
    return pl.Series("detail", [None] * len(decided), pl.String).zip_with(~told, detail)
