"""The section `filter`: language identification and the published heuristic rules.

Thresholds carry the names of the rules they belong to; null switches a rule off, `enabled: false`
(or `quality`, `repetition`) a rule set. Defaults are FineWeb's published settings
(arXiv:2406.17557; datatrove `examples/fineweb.py`), with every language kept.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pipeline.config.base import Section
from pipeline.config.language import Code, LanguageConfig, norwegian
from pipeline.config.languages import check_code
from pipeline.config.partial import partial
from pipeline.config.urls import UrlConfig


def _share(default: float | None, description: str) -> float | None:
    field: float | None = Field(default, ge=0, le=1, description=description)
    return field


REPETITION = "Gopher, arXiv:2112.11446, table A1: most {} "
MASSIVE_TEXT = "Gopher, arXiv:2112.11446, appendix A: "
C4 = "C4, arXiv:1910.10683, section 2.2: "
FINEWEB = "FineWeb, arXiv:2406.17557, section 3.6: "
DCLM = "DCLM, arXiv:2406.11794, github.com/mlfoundations/dclm, baselines: "

ORDERED = (("min_words", "max_words"), ("min_word_length", "max_word_length"))
"""Keys of which the first must not be over the second: nothing would be kept."""


def in_order(section: Section, general: Section | None = None) -> None:
    """ValueError where a lowest value is over its highest.

    `general`: the section for all, of which `section` changes some keys for one language. Its
    lowest word length is not the one that languages without blanks are held against.
    """
    for low, high in ORDERED:
        named = section.model_fields_set & {low, high}
        if general is not None and (not named or named == {"max_word_length"}):
            continue
        values = [
            getattr(general if general and key not in named else section, key)
            for key in (low, high)
        ]
        if None not in values and values[0] > values[1]:
            message = f"{low} {values[0]:g} is over {high} {values[1]:g}: nothing would be kept"
            raise ValueError(message)


def _code_or_rest(code: str) -> str:
    return code if code == "*" else check_code(code)


Words = Annotated[list[str], Field(min_length=1)]
"""A list of none would be found in no document, and so drop them all."""
StopWords = Annotated[
    dict[Annotated[str, AfterValidator(_code_or_rest)], Words], BeforeValidator(norwegian)
]


class GopherConfig(Section):
    """Quality and repetition rules of Gopher, as datatrove implements them."""

    quality: bool = Field(True, description="whether the quality rules apply")
    repetition: bool = Field(True, description="whether the repetition rules apply")

    min_words: int | None = Field(50, ge=0, description=MASSIVE_TEXT + "fewest words")
    max_words: int | None = Field(100_000, ge=1, description=MASSIVE_TEXT + "most words")
    min_word_length: float | None = Field(
        3, ge=0, le=100, description=MASSIVE_TEXT + "lowest mean word length"
    )
    max_word_length: float | None = Field(
        10, ge=0, le=100, description=MASSIVE_TEXT + "highest mean word length"
    )
    min_word_length_unspaced: float | None = Field(
        1, ge=0, le=100,
        description="lowest mean word length where the script has no blanks between words: "
        "FineWeb-2 has 1 for Chinese and Japanese (github.com/huggingface/fineweb-2, configs)",
    )  # fmt: skip
    max_symbol_ratio: float | None = Field(
        0.1, ge=0, le=100, description=MASSIVE_TEXT + "most '#' per word, and ellipses per word"
    )
    max_bullet_lines: float | None = _share(0.9, MASSIVE_TEXT + "most lines that start as a bullet")
    max_ellipsis_lines: float | None = _share(
        0.3, MASSIVE_TEXT + "most lines ending in an ellipsis"
    )
    min_alpha_words: float | None = _share(0.8, MASSIVE_TEXT + "fewest words with a letter")
    min_stop_words: int | None = Field(
        2, ge=0, le=1000, description=MASSIVE_TEXT + "fewest distinct stop words, English only"
    )
    stop_words: StopWords = Field(
        {"en": ["the", "be", "to", "of", "and", "that", "have", "with"]},
        description=MASSIVE_TEXT + "stop words by language; '*' is the list of every language that "
        "has none of its own, without it there is no rule for those",
    )

    dup_para_frac: float | None = _share(0.3, REPETITION.format("repeated paragraphs"))
    dup_para_char_frac: float | None = _share(0.2, REPETITION.format("characters in those"))
    dup_line_frac: float | None = _share(0.3, REPETITION.format("repeated lines"))
    dup_line_char_frac: float | None = _share(0.2, REPETITION.format("characters in those"))
    top_2_gram: float | None = _share(0.20, REPETITION.format("characters in the top 2-gram"))
    top_3_gram: float | None = _share(0.18, REPETITION.format("characters in the top 3-gram"))
    top_4_gram: float | None = _share(0.16, REPETITION.format("characters in the top 4-gram"))
    duplicated_5_n_grams: float | None = _share(0.15, REPETITION.format("repeated 5-grams"))
    duplicated_6_n_grams: float | None = _share(0.14, REPETITION.format("repeated 6-grams"))
    duplicated_7_n_grams: float | None = _share(0.13, REPETITION.format("repeated 7-grams"))
    duplicated_8_n_grams: float | None = _share(0.12, REPETITION.format("repeated 8-grams"))
    duplicated_9_n_grams: float | None = _share(0.11, REPETITION.format("repeated 9-grams"))
    duplicated_10_n_grams: float | None = _share(0.10, REPETITION.format("repeated 10-grams"))

    @model_validator(mode="after")
    def _in_order(self) -> GopherConfig:
        in_order(self)
        return self


class C4Config(Section):
    """Line and page rules of C4. They edit the text: lines and citation marks go."""

    enabled: bool = Field(True, description="whether lines are edited and pages judged")
    terminal_punctuation: bool = Field(
        False, description=C4 + "lines must end in . ? ! \" or '; off in FineWeb, section 3.3"
    )
    remove_citations: bool = Field(
        True,
        description="[1], [edit], [citation needed] go, as in the C4 code of TensorFlow Datasets",
    )
    min_line_words: int = Field(3, ge=0, description=C4 + "fewest words of a line")
    max_word_length: int = Field(
        1000, ge=1, description="longest word of a line, as in the C4 code of TensorFlow Datasets"
    )
    javascript: bool = Field(True, description=C4 + 'lines with "javascript" go')
    policy: bool = Field(True, description="lines with a phrase of cookie and privacy notices go")
    lorem_ipsum: bool = Field(True, description=C4 + 'pages with "lorem ipsum" are dropped')
    curly_bracket: bool = Field(True, description=C4 + 'pages with "{" are dropped')
    min_sentences: int | None = Field(
        5, ge=0, description=C4 + "fewest sentences of the lines that stay; 5 in the code"
    )


class FineWebConfig(Section):
    """FineWeb's own quality rules, on the text that the C4 rules left."""

    enabled: bool = Field(True, description="whether the rules apply")
    line_punct_ratio: float | None = _share(
        0.12, FINEWEB + "fewest lines that end in terminal punctuation"
    )
    short_line_ratio: float | None = _share(0.67, FINEWEB + "most short lines")
    short_line_length: int = Field(30, ge=0, description=FINEWEB + "characters of a short line")
    char_dup_ratio: float | None = _share(0.01, FINEWEB + "most characters in repeated lines")
    list_ratio: float | None = Field(
        0.3, ge=0, le=100, description="datatrove FineWebQualityFilter: most line ends per word"
    )


class DclmConfig(Section):
    """Page and line rules of DCLM. They edit the text: lines go. Off unless a preset says so."""

    enabled: bool = Field(False, description="whether pages are judged and lines go")
    min_words: int | None = Field(50, ge=0, description=DCLM + "fewest words")
    max_words: int | None = Field(100_000, ge=1, description=DCLM + "most words")
    min_word_length: float | None = Field(
        3, ge=0, le=100, description=DCLM + "lowest mean length of what stands between blanks"
    )
    max_word_length: float | None = Field(10, ge=0, le=100, description=DCLM + "highest of that")
    max_symbol_ratio: float | None = Field(
        0.1, ge=0, le=100, description=DCLM + "most '#' and ellipses together, per word"
    )
    max_bullet_lines: float | None = _share(0.9, DCLM + "most lines that start as a bullet")
    max_ellipsis_lines: float | None = _share(0.3, DCLM + "most lines ending in an ellipsis")
    max_non_alphabetic_words: float | None = _share(0.2, DCLM + "most words without a letter")
    min_stop_words: int | None = Field(
        2, ge=0, description=DCLM + "fewest stop words, also the same one again; English only"
    )
    stop_words: Words = Field(
        ["the", "be", "to", "of", "and", "that", "have", "with"],
        description=DCLM + "in lower case; compared with words in any case",
    )
    max_uppercase: float | None = _share(0.5, DCLM + "lines with more capital letters go")
    max_numeric: float | None = _share(0.999999, DCLM + "lines with more digits go")
    min_line_words: int = Field(2, ge=0, description=DCLM + "lines with fewer words go")
    max_removed_words: float | None = _share(
        0.05, DCLM + "most words of a page that may go with its lines"
    )

    @model_validator(mode="after")
    def _in_order(self) -> DclmConfig:
        in_order(self)
        return self


GopherThresholds = partial(
    "GopherThresholds", GopherConfig, {"quality", "repetition", "stop_words"}
)
FineWebThresholds = partial("FineWebThresholds", FineWebConfig, {"enabled", "short_line_length"})


class LanguageRules(Section):
    """Thresholds of one language; what is not set is as for all."""

    gopher: GopherThresholds = Field(  # type: ignore[valid-type]
        default_factory=GopherThresholds, description="thresholds of filter.gopher"
    )
    fineweb: FineWebThresholds = Field(  # type: ignore[valid-type]
        default_factory=FineWebThresholds, description="thresholds of filter.fineweb"
    )


class FilterConfig(Section):
    """Which documents `filtered_text` keeps."""

    urls: UrlConfig = Field(default_factory=UrlConfig)
    language: LanguageConfig = Field(default_factory=LanguageConfig)
    gopher: GopherConfig = Field(default_factory=GopherConfig)
    c4: C4Config = Field(default_factory=C4Config)
    fineweb: FineWebConfig = Field(default_factory=FineWebConfig)
    dclm: DclmConfig = Field(default_factory=DclmConfig)
    per_language: Annotated[dict[Code, LanguageRules], BeforeValidator(norwegian)] = Field(
        default_factory=dict,
        description="thresholds by language: {de: {gopher: {max_word_length: 15}}}. Score floors "
        "stand in language.min_scores, stop words in gopher.stop_words",
    )
    plugins: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="rule sets of other packages (entry points in gristmill.filters), by name with "
        "their settings: {shouting: {limit: 0.5}}",
    )
    language_files: list[str] = Field(
        default_factory=list,
        description="settings by language in the format of FineWeb-2 (configs/deu_Latn.yml): files "
        "or folders of them. They come before per_language and language.min_scores, and their "
        "languages join language.keep where that is not empty",
    )

    @model_validator(mode="after")
    def _languages_in_order(self) -> FilterConfig:
        for code, rules in self.per_language.items():
            try:
                in_order(rules.gopher, self.gopher)
            except ValueError as error:
                message = f"per_language.{code}.gopher: {error}"
                raise ValueError(message) from error
        return self
