"""Labels for texts from a larger model behind an OpenAI-compatible endpoint.

What it will cost is said before the first request, and refused where it is over the limit. Every
answer is kept (`label_cache`), so that stopping and starting again, or another hour, pays for
nothing twice. Texts without a label are rows with a reason, never a crash: an answer that cannot be
read is asked for once more by itself.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import Config
from pipeline.config.labeller import LabellerConfig
from pipeline.dataset import Dataset
from pipeline.errors import ConfigError, UsageError
from pipeline.inputs import check_input_path, file_input
from pipeline.quality.answers import question_id, read_prompt, text_id
from resources.label_cache import Answer, LabelCache
from resources.label_client import ChatClient
from resources.label_work import LabelWork, Purse, tokens_of
from resources.storage import open_store

if TYPE_CHECKING:
    import polars as pl

UNPARSABLE = "labeller.unparsable"
CACHE_VARIABLE = "GRISTMILL_CACHE"
PASSED_ON = ("doc_id", "url", "language", "reason", "split")


@dataclass(frozen=True)
class Labelled:
    """One row a distinct text, in order of its hash, and what it took."""

    rows: list[dict[str, Any]]
    figures: dict[str, Any]

    def to_jsonl(self) -> bytes:
        """The rows as `references.quality_labels` and `classifier train` read them."""
        lines = [json.dumps(row, ensure_ascii=False, sort_keys=True) for row in self.rows]
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def api_key(config: LabellerConfig) -> str | None:
    """The key from the environment. ConfigError, without its value, where it cannot be one."""
    if config.api_key_env is None:
        return None
    key = os.environ.get(config.api_key_env, "").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        what = "holds no usable key" if key else "is not set"
        message = f"labeller.api_key_env: the environment variable {config.api_key_env} {what}"
        raise ConfigError(message, hint="set it in the environment; no configuration holds a key")
    return key


def cache_path(config: LabellerConfig) -> Path:
    """Where answers are kept."""
    if config.cache:
        return Path(config.cache)
    folder = os.environ.get(CACHE_VARIABLE)
    home = Path(folder) if folder else Path.home() / ".cache" / "gristmill"
    return home / "labels.sqlite"


def label_documents(
    frame: "pl.DataFrame",
    config: LabellerConfig,
    *,
    say: Callable[[str], None],
    accept_cost: bool = False,
    estimate_only: bool = False,
    client: ChatClient | None = None,
) -> Labelled:
    """Ask about the texts of documents, at most `config.limit` of them.

    Raises UsageError where the estimate is over `max_cost` and not accepted, GristmillError where
    the endpoint refuses the key or is down; answers that came are kept then too.
    """
    prompt = read_prompt(config)
    client = client or ChatClient(config, api_key(config))
    chosen, documents = choose(frame, config)
    question = question_id(prompt, config)
    cache = LabelCache(cache_path(config), str(config.base_url), str(config.model), question)
    try:
        known = cache.find(list(chosen))
        missing = {key: text for key, text in chosen.items() if key not in known}
        accepted = accept_cost or config.accept_cost
        purse = Purse(
            config.price_input or 0.0,
            config.price_output or 0.0,
            None if accepted else config.max_cost,
        )
        figures = estimate(prompt, missing, len(known), config, purse)
        say(told(figures, config))
        if estimate_only:
            return Labelled([], {**figures, "documents": len(frame), "texts": len(chosen)})
        if missing and not accepted:
            check_price(figures, config)
        work = LabelWork(config, client, cache, purse, prompt)
        answered, reasons = work.run(missing)
    finally:
        cache.close()
    rows = _rows(chosen, documents, known | answered, reasons, config)
    return Labelled(rows, {**figures, **_figures(rows, frame.height, purse)})


def label_inputs(settings: Config, *, say: Callable[[str], None]) -> Labelled:
    """Labels of the texts that `labeller.input` names. Raises ConfigError where it names none."""
    places = [Path(place) for place in settings.labeller.input]
    if not places:
        message = "labeller.input names no texts to label"
        raise ConfigError(message, hint="name JSONL or Parquet files, or dataset folders")
    frame = read_inputs(places, settings)
    return label_documents(frame, settings.labeller, say=say)


def read_inputs(places: list[Path], settings: Config) -> "pl.DataFrame":
    """All documents of dataset folders, or else of Parquet and JSONL files."""
    import polars as pl

    kinds = {check_input_path(place) for place in places}
    if "folder" in kinds or ("dataset" in kinds and len(kinds) > 1):
        message = "texts to label are in dataset folders, or else in Parquet and JSONL files"
        raise UsageError(message, hint="give one kind; a dataset folder has a file `current`")
    if kinds == {"dataset"}:
        stores = [open_store(str(place), options=settings.storage) for place in places]
        frames = [Dataset.open(store).load() for store in stores]
    else:
        frames = [source.load().value for source in file_input(places).sources]
    return pl.concat(frames, how="diagonal_relaxed")


def choose(
    frame: "pl.DataFrame", config: LabellerConfig
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Text by its hash, and the first document of each: those with the lowest hashes."""
    import polars as pl

    if "text" not in frame.columns:
        message = f"documents to label have no column 'text'; they have {frame.columns}"
        raise UsageError(message, hint="give documents")
    names = [name for name in PASSED_ON if name in frame.columns]
    ordered = frame.sort("doc_id") if "doc_id" in frame.columns else frame
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for row in ordered.select("text", *names).iter_rows(named=True):
        text = (row.pop("text") or "").strip()[: config.max_chars]
        if text:
            found.setdefault(text_id(text), (text, row))
    keys = sorted(found)[: config.limit]
    assert isinstance(frame, pl.DataFrame)
    return {key: found[key][0] for key in keys}, {key: found[key][1] for key in keys}


def estimate(
    prompt: str, missing: dict[str, str], known: int, config: LabellerConfig, purse: Purse
) -> dict[str, Any]:
    """What asking about the missing texts may use and cost; `cost` is null without prices."""
    tokens_in = sum(tokens_of(prompt, [text]) for text in missing.values())
    tokens_out = len(missing) * config.max_tokens
    priced = config.price_input is not None and config.price_output is not None
    cost = round(purse.cost(tokens_in, tokens_out), 6) if priced else None
    return {
        "answers_kept": known,
        "to_ask": len(missing),
        "estimate": {"tokens_in": tokens_in, "tokens_out": tokens_out, "cost": cost},
    }


def told(figures: dict[str, Any], config: LabellerConfig) -> str:
    """The estimate as a sentence."""
    guess = figures["estimate"]
    cost = guess["cost"]
    price = "at prices that are not set" if cost is None else f"at most {cost:.4f}"
    return (
        f"labels of {config.model}: {figures['to_ask']:,} texts to ask about, "
        f"{figures['answers_kept']:,} answered before; {guess['tokens_in']:,} tokens there, "
        f"{guess['tokens_out']:,} back, {price} (labeller.max_cost {config.max_cost})"
    )


def check_price(figures: dict[str, Any], config: LabellerConfig) -> None:
    """Refuse an estimate over the limit, or without prices. Raises UsageError."""
    cost = figures["estimate"]["cost"]
    hint = "set labeller.limit lower or labeller.max_cost higher, or accept it: --accept-cost or "
    hint += "labeller.accept_cost"
    if cost is None:
        message = "labeller.price_input and price_output are not set, so its price is not known"
        raise UsageError(message, hint=f"set both (0 for a model of your own); or {hint}")
    if cost > config.max_cost:
        message = f"the estimate {cost:.4f} is over labeller.max_cost {config.max_cost}"
        raise UsageError(message, hint=hint)


def _rows(
    chosen: dict[str, str],
    documents: dict[str, dict[str, Any]],
    answers: dict[str, Answer],
    reasons: dict[str, str],
    config: LabellerConfig,
) -> list[dict[str, Any]]:
    rows = []
    for key, text in chosen.items():
        passed = {name: value for name, value in documents[key].items() if value is not None}
        label = answers[key].label if key in answers else None
        row = {**passed, "id": key, "text": text, "labeller": config.model}
        row["label"] = None if label is None else int(label)
        if label is None:
            row["label_error"] = reasons.get(key, UNPARSABLE)
        rows.append(row)
    return rows


def _figures(rows: list[dict[str, Any]], documents: int, purse: Purse) -> dict[str, Any]:
    reasons = [row["label_error"] for row in rows if row["label"] is None]
    labels = [row["label"] for row in rows if row["label"] is not None]
    return {
        "documents": documents,
        "texts": len(rows),
        "labelled": len(labels),
        "labels": {str(name): labels.count(name) for name in sorted(set(labels))},
        "reasons": {name: reasons.count(name) for name in sorted(set(reasons))},
        "tokens": {"in": purse.tokens[0], "out": purse.tokens[1]},
        "spent": round(purse.spent, 6),
    }
