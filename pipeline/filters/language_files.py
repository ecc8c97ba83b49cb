"""Settings by language in the format of FineWeb-2: one YAML file a language, `deu_Latn.yml`.

The files are those of github.com/huggingface/fineweb-2, folder `configs` (Penedo et al.,
arXiv:2506.20920). They were computed from statistics of each language and nobody read them all:
thresholds far outside of any language occur in the wild (a highest mean word length of 3141), so
every value is checked, in every file that is named, whether its language can be told or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from pipeline.config.base import Section
from pipeline.config.filter import FilterConfig
from pipeline.config.languages import code_of
from pipeline.errors import ConfigError

KEY = "filter.language_files"
ENDINGS = (".yml", ".yaml")
Share = Annotated[float, Field(ge=0, le=1)]
TopGrams = list[tuple[Literal[2, 3, 4], Share]]
DuplicatedGrams = list[tuple[Literal[5, 6, 7, 8, 9, 10], Share]]


class LanguageFile(Section):
    """One file, with the keys that FineWeb-2 gives them."""

    language_score: Share | None = None
    dup_line_frac: Share | None = None
    top_n_grams: TopGrams = Field(default_factory=list)
    dup_n_grams: DuplicatedGrams = Field(default_factory=list)
    line_punct_thr: float | None = Field(None, ge=-1, le=1)
    new_line_ratio: float | None = Field(None, ge=0, le=10)
    max_avg_word_length: float | None = Field(None, ge=1, le=100)
    min_avg_word_length: float | None = Field(None, ge=0, le=50)
    max_non_alpha_words_ratio: Share | None = None
    stopwords: list[str] = Field(default_factory=list, max_length=1000)

    @model_validator(mode="after")
    def _in_order(self) -> LanguageFile:
        low, high = self.min_avg_word_length, self.max_avg_word_length
        if low is not None and high is not None and low > high:
            message = f"min_avg_word_length {low:g} is over max_avg_word_length {high:g}"
            raise ValueError(message)
        return self

    def gopher(self) -> dict[str, float]:
        """Thresholds of `filter.gopher`; names there say what the values mean."""
        found = {
            "dup_line_frac": self.dup_line_frac,
            "max_word_length": self.max_avg_word_length,
            "min_word_length": self.min_avg_word_length,
            "min_word_length_unspaced": self.min_avg_word_length,
            "min_alpha_words": self.max_non_alpha_words_ratio,  # a lowest share, despite its name
            **{f"top_{n}_gram": share for n, share in self.top_n_grams},
            **{f"duplicated_{n}_n_grams": share for n, share in self.dup_n_grams},
        }
        return {key: value for key, value in found.items() if value is not None}

    def fineweb(self) -> dict[str, float]:
        """Thresholds of `filter.fineweb`; a share of punctuated lines of -1 is no rule, as 0 is."""
        punctuated = self.line_punct_thr
        found = {
            "line_punct_ratio": None if punctuated is None else max(punctuated, 0.0),
            "list_ratio": self.new_line_ratio,
        }
        return {key: value for key, value in found.items() if value is not None}


def resolved(config: FilterConfig) -> FilterConfig:
    """The configuration with what `language_files` say in the place of their names.

    Raises ConfigError naming file, key, value and range.
    """
    if not config.language_files:
        return config
    data = config.model_dump(mode="json", exclude={"language_files"})
    for code, file in read_language_files(config.language_files).items():
        rules = data["per_language"].setdefault(code, {})
        rules["gopher"] = {**rules.get("gopher", {}), **file.gopher()}
        rules["fineweb"] = {**rules.get("fineweb", {}), **file.fineweb()}
        if file.language_score is not None:
            data["language"]["min_scores"][code] = file.language_score
        if file.stopwords:
            data["gopher"]["stop_words"][code] = file.stopwords
        keep = data["language"]["keep"]
        if keep and code not in keep:
            keep.append(code)
    try:
        return FilterConfig.model_validate(data)
    except ValidationError as error:
        message = f"{KEY}: with its other settings, {error.errors()[0]['msg']}"
        raise ConfigError(message, hint="mend the file, or filter.per_language") from error


def read_language_files(locations: Iterable[str]) -> dict[str, LanguageFile]:
    """Language code -> settings, in order of code; `locations`: files, or folders of them.

    Languages that cannot be told are checked and left out. Where a folder has several files of one
    language (Serbian in two scripts), the first by name counts; a file that is named by itself
    comes before those of folders, and two such of one language are an error.
    """
    named: dict[str, Path] = {}
    found: dict[str, LanguageFile] = {}
    for location in locations:
        path = Path(location)
        for file in _files(path):
            settings, code = read_language_file(file), code_of(file.stem)
            if code is None:
                continue
            if path.is_file():
                if code in named:
                    message = f"{KEY}: {named[code]} and {file} are both of the language {code!r}"
                    raise ConfigError(message, hint="name one of them")
                named[code] = file
                found[code] = settings
            elif code not in found:
                found[code] = settings
    return dict(sorted(found.items()))


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(p for p in path.glob("*") if p.suffix in ENDINGS) if path.is_dir() else []
    if not files:
        what = "holds no .yml files" if path.is_dir() else "is not there"
        message = f"{KEY}: {path} {what}"
        raise ConfigError(message, hint="give files or folders like FineWeb-2's configs/")
    return files


def read_language_file(path: Path) -> LanguageFile:
    """One file, checked. ConfigError naming file, key, value and range."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        message = f"{KEY}: {path} cannot be read: {' '.join(str(error).split())}"
        raise ConfigError(message, hint="give a YAML file in UTF-8") from error
    if not isinstance(values, Mapping):
        message = f"{KEY}: {path} holds {type(values).__name__}, not keys and values"
        raise ConfigError(message, hint="see FineWeb-2's configs/deu_Latn.yml")
    try:
        return LanguageFile.model_validate(values)
    except ValidationError as error:
        raise _explained(path, error) from error


def _explained(path: Path, error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    key = ".".join(map(str, first["loc"])) or "the file"
    if first["type"] == "extra_forbidden":
        message = f"{KEY}: {path}: unknown key {key}"
        return ConfigError(message, hint=f"known: {', '.join(LanguageFile.model_fields)}")
    reason = str(first["msg"]).removeprefix("Value error, ")
    given: Any = first["input"] if first["loc"] else "its values"
    message = f"{KEY}: {path}: {key}: {given!r} is not allowed: {reason}"
    allowed = _range(str(first["loc"][0])) if first["loc"] else ""
    return ConfigError(message, hint=f"mend it or take the file out{allowed}")


def _range(key: str) -> str:
    """The allowed range of a number, as text."""
    field = LanguageFile.model_json_schema()["properties"].get(key, {})
    for kind in field.get("anyOf", [field]):
        if "minimum" in kind and "maximum" in kind:
            return f"; {key} is {kind['minimum']:g} to {kind['maximum']:g}"
    return ""
