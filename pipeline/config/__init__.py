"""The configuration: one typed tree, one section a stage, presets as YAML.

The truth is `gristmill.yaml` in the storage root (or `--config FILE`). Later beats earlier:

    defaults  <  preset  <  file  <  `--set section.key=value` or the launchpad's overrides

Unknown keys and absurd values are ConfigErrors that name the key, the value and the fix. Nothing
here imports more than pydantic and YAML.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import yaml
from pydantic import Field, ValidationError

from pipeline.config.base import Section
from pipeline.config.dedup import DedupConfig
from pipeline.config.display import DisplayConfig
from pipeline.config.engine import EngineConfig
from pipeline.config.evaluation import EvaluationConfig
from pipeline.config.extract import ExtractConfig
from pipeline.config.filter import FilterConfig
from pipeline.config.gates import AcceptGate, GatesConfig
from pipeline.config.labeller import LabellerConfig
from pipeline.config.mixture import MixtureConfig
from pipeline.config.references import ReferencesConfig
from pipeline.config.score import ScoreConfig
from pipeline.config.scrub import ScrubConfig
from pipeline.config.snapshots import SnapshotsConfig
from pipeline.config.sources import SourcesConfig
from pipeline.config.storage import StorageConfig
from pipeline.config.tokenize import TokenizeConfig
from pipeline.config.tokenizer import TokenizerConfig
from pipeline.errors import ConfigError

FILE_NAME = "gristmill.yaml"
PRESETS = Path(__file__).parent / "presets"


class Config(Section):
    """Everything that can be set."""

    preset: str | None = Field(None, description="a preset to start from: see `presets()`")
    storage: StorageConfig = StorageConfig()
    engine: EngineConfig = EngineConfig()
    snapshots: SnapshotsConfig = SnapshotsConfig()
    sources: SourcesConfig = SourcesConfig()
    references: ReferencesConfig = ReferencesConfig()
    labeller: LabellerConfig = LabellerConfig()
    extract: ExtractConfig = ExtractConfig()
    filter: FilterConfig = FilterConfig()
    score: ScoreConfig = ScoreConfig()
    dedup: DedupConfig = DedupConfig()
    scrub: ScrubConfig = ScrubConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    tokenize: TokenizeConfig = TokenizeConfig()
    mixture: MixtureConfig = MixtureConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    gates: GatesConfig = GatesConfig()
    display: DisplayConfig = DisplayConfig()
    accept_gate: AcceptGate | None = Field(
        None, description="a failed blocking gate to read past, with the reason on record"
    )


def presets() -> list[str]:
    """Names of the shipped presets."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_config(
    path: Path | None = None,
    *,
    preset: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    sets: Iterable[str] = (),
) -> Config:
    """The configuration from a file, a preset, nested overrides and `key=value` settings.

    Raises ConfigError for a file that is absent or no mapping, an unknown preset or key, a value
    that is out of range.
    """
    layers = [read_yaml(path) if path else {}, overrides or {}, *map(parse_setting, sets)]
    named = [layer["preset"] for layer in layers if layer.get("preset") is not None]
    chosen = named[-1] if preset is None and named else preset
    merged = {} if chosen is None else read_preset(str(chosen))
    for layer in layers:
        merged = merge(merged, layer)
    if chosen is not None:
        merged["preset"] = chosen
    return validate(merged)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping from a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        message = f"configuration file {path} cannot be read: {why}"
        raise ConfigError(message, hint="give an existing YAML file with --config") from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """A YAML mapping from text; `where` names it in messages."""
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        message = f"{where} is not valid YAML: {' '.join(str(error).split())}"
        raise ConfigError(message, hint="mend the line it names") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        message = f"{where} holds {type(value).__name__}, not sections"
        raise ConfigError(message, hint="write `section:` and its keys indented below it")
    return value


def read_preset(name: str) -> dict[str, Any]:
    """The sections of a shipped preset."""
    if name not in presets():
        message = f"preset: {name!r} is not known"
        raise ConfigError(message, hint=f"one of {', '.join(presets())}")
    return read_yaml(PRESETS / f"{name}.yaml")


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it, mapping by mapping; lists and values are replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merge(old, value)
        merged[key] = value
    return merged


def parse_setting(setting: str) -> dict[str, Any]:
    """`section.key=value` as a nested mapping; the value is read as YAML."""
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        message = f"--set {setting!r} is no setting"
        raise ConfigError(message, hint="write it as section.key=value")
    nested: Any = value
    if value.strip():
        try:
            nested = yaml.safe_load(value)
        except yaml.YAMLError as error:
            message = f"--set {setting!r}: the value is not valid YAML"
            raise ConfigError(message, hint=f"quote it: {key}='\"...\"'; lists: [a, b]") from error
    for part in reversed(key.strip().split(".")):
        nested = {part: nested}
    return dict(nested)


def validate(values: Mapping[str, Any]) -> Config:
    """The typed tree, or one ConfigError that names the first offending key."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise explain(error) from error


def explain(error: ValidationError, model: type[Section] = Config) -> ConfigError:
    """A validation error as one sentence naming key, value and fix."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        known = known_keys(model, first["loc"][:-1])
        close = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
        return ConfigError(f"{key}: unknown key{more}", hint=hint)
    reason = str(first["msg"]).removeprefix("Value error, ")
    given = repr(first["input"])
    if "password" in reason:
        given = "what stands there"  # it is not shown again
    message = f"{key}: {given} is not allowed: {reason}{more}"
    return ConfigError(message, hint=f"change {key}" if key else None)


def known_keys(model: type[Section], path: Iterable[int | str]) -> list[str]:
    """The keys of the section at `path`."""
    here: Any = model
    for part in path:
        if get_origin(here) is dict:  # by name, as languages
            here = get_args(here)[1]
            continue
        field = getattr(here, "model_fields", {}).get(part)
        here = field.annotation if field else None
    return sorted(getattr(here, "model_fields", {}))


def section_json(section: Section) -> dict[str, Any]:
    """A section as JSON, as it stands in manifests and keys."""
    return section.model_dump(mode="json")
