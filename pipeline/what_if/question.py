"""What is asked: which keys of the section `filter` change, and whether the signals can tell.

Signals are what was measured of every document; thresholds only read them. A key under which
something was measured (the lists of stop words), or that edits the text (the line rules of C4),
needs the texts: it is refused by name, never ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from pipeline.config import Config, merge, parse_setting, section_json, validate
from pipeline.config.filter import FilterConfig
from pipeline.errors import ConfigError, ContractError
from pipeline.filters.language_files import resolved
from pipeline.manifest import Content
from pipeline.stages.files import by_content

STAGE = "filtered_text"
MODEL = "language_model"
"""What the stage adds to its section: the checksum of the model that told the languages."""

TEXT = "it edits the text, which the signals behind it were measured on"
LABEL = "languages were told under it, and words counted by language"
LISTS = "the addresses were looked up in the lists of that time"

MEASURED: dict[str, str] = {
    "language": "languages were told under it",
    "plugins": "a rule set of another package measures under its settings",
    "language_files": "they hold lists of stop words",
    "language.min_chars": LABEL,
    "language.und_score": LABEL,
    MODEL: "another model tells other languages",
    "gopher.stop_words": "stop words were counted with the lists of that time",
    "c4": TEXT,
    "dclm": TEXT,
    "fineweb.short_line_length": "short lines were counted with the length of that time",
    "urls": LISTS,
}
"""Key (or the section it is in) below `filter` -> why the signals cannot tell."""

ANSWERED = frozenset(
    {
        "language.enabled", "language.keep", "language.min_score", "language.min_scores",
        "language.und", "gopher", "fineweb",
        "c4.lorem_ipsum", "c4.curly_bracket", "c4.min_sentences", "urls.soft_threshold",
        "per_language", "dclm.min_words", "dclm.max_words", "dclm.min_word_length",
        "dclm.max_word_length", "dclm.max_symbol_ratio", "dclm.max_bullet_lines",
        "dclm.max_ellipsis_lines", "dclm.max_non_alphabetic_words", "dclm.min_stop_words",
        "dclm.max_removed_words",
    }
)  # fmt: skip
"""Keys, and sections of such keys, that only rules read. Where both fit, the longer one holds."""

BESIDES = ("storage", "engine", "display")
"""Sections that say how the question is worked on, not what it is."""


@dataclass(frozen=True)
class Question:
    """Settings to lay on what each dataset was filtered with, or a whole section in its place."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    whole: FilterConfig | None = None


@dataclass(frozen=True)
class Change:
    """One key that would be another."""

    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Settings:
    """A dataset's section before and after, fit for `rules`, and the keys that differ."""

    before: FilterConfig
    after: FilterConfig
    changes: tuple[Change, ...]


def question(overrides: Mapping[str, Any], given: Config, *, whole: bool = False) -> Question:
    """The question behind nested overrides; `given`: the configuration that holds them already.

    Settings of the filter are laid on what each dataset was filtered with. Where there are none, or
    a preset, or `whole` is asked for, the section of `given` takes its place.
    Raises ConfigError for a key that is neither in `filter` nor about how to work on the question.
    """
    for section, value in overrides.items():
        if section not in ("filter", "preset", *BESIDES):
            key = next(iter(flat({section: value})))
            message = f"{key}: the signals of {STAGE} cannot tell what another value would do"
            raise ConfigError(message, hint=_cure(section))
    changes = overrides.get("filter") or {}
    if whole or not changes or "preset" in overrides:
        return Question(whole=given.filter)
    return Question(changes)


def settings(arguments: Iterable[str]) -> dict[str, Any]:
    """`--set` arguments as nested overrides."""
    laid: dict[str, Any] = {}
    for argument in arguments:
        laid = merge(laid, parse_setting(argument))
    return laid


def _cure(section: str) -> str:
    if section == "score":
        return (
            "what the filter would rescue has no score yet; `gristmill score` into a trial folder "
            "shows what another limit keeps"
        )
    return "try it with `gristmill run` on a trial root; what-if answers keys of the section filter"


def stored_section(content: Content) -> tuple[dict[str, Any], FilterConfig]:
    """What a dataset was filtered with, as stored and typed (lists of addresses left out).

    Raises ContractError where this version cannot read it any more.
    """
    stored = {key: value for key, value in content.config.items() if key != MODEL}
    try:
        return stored, FilterConfig.model_validate(_without_files(stored))
    except ValidationError as error:
        key = ".".join(map(str, error.errors()[0]["loc"]))
        message = f"this version cannot read {key} of the settings that {STAGE} was made with"
        raise ContractError(message, hint=f"materialise {STAGE} again") from error


def settings_of(content: Content, asked: Question) -> Settings:
    """What a dataset was filtered with, and what it would be.

    Raises ContractError where its section cannot be read any more, ConfigError for a value that is
    out of range and for keys that the signals cannot tell about, all named.
    """
    stored, before = stored_section(content)
    wanted = lay(section_json(asked.whole) if asked.whole else stored, asked.changes)
    after = resolved(validate({"filter": _without_files(wanted)}).filter)
    old, new = _comparable(stored, before), _comparable(wanted, after)
    keys = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    _refuse(keys)
    changes = tuple(Change(f"filter.{key}", old.get(key), new.get(key)) for key in keys)
    return Settings(before, after, changes)


def lay(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it; an empty mapping takes the place of what was there."""
    laid = dict(base)
    for key, value in over.items():
        old = laid.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and value:
            value = lay(old, value)
        laid[key] = value
    return laid


def _refuse(keys: Iterable[str]) -> None:
    refused = {key: why for key in keys if (why := refusal(key)) is not None}
    if not refused:
        return
    first, why = next(iter(refused.items()))
    others = f" (and {', '.join(f'filter.{key}' for key in list(refused)[1:])})"
    keys_named = f"filter.{first}{others if len(refused) > 1 else ''}"
    message = f"{keys_named} cannot be told from the signals: {why}"
    hint = (
        "leave it as it was, or try it with `gristmill filter` or `gristmill run` on a trial root"
    )
    raise ConfigError(message, hint=hint)


def refusal(key: str) -> str | None:
    """Why the signals cannot tell about a key below `filter`; None where they can."""
    parts = key.split(".")
    for n in range(len(parts), 0, -1):
        prefix = ".".join(parts[:n])
        if prefix in MEASURED:
            return MEASURED[prefix]
        if prefix in ANSWERED:
            return None
    return "nobody has said that only rules read it"


def flat(section: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted key -> value; an empty mapping is a value."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found


def _comparable(section: Mapping[str, Any], typed: FilterConfig) -> dict[str, Any]:
    """Every key with its typed value, files by their content.

    An empty mapping is no key, but for a rule set of another package that has no settings.
    """
    files = {key: value for key, value in flat(section).items() if _is_files(value)}
    found = flat(by_content(section_json(typed))) | files
    return {key: v for key, v in found.items() if v != {} or key.startswith("plugins.")}


def _without_files(section: Mapping[str, Any]) -> dict[str, Any]:
    """The section with nothing in the place of files that stand there by content."""
    return {
        key: _without_files(value)
        if isinstance(value, Mapping)
        else (None if _is_files(value) else value)
        for key, value in section.items()
    }


def _is_files(value: Any) -> bool:
    """Whether `by_content` put base names and checksums in the place of a path."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(one, list) and len(one) == 2 for one in value)
        and all(str(one[1]).startswith("sha256:") for one in value)
    )
