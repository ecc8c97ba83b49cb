"""The tokenizer: byte-level BPE on a sample of the corpus.

    plan_sample       which documents: by source and language, up to a budget of bytes
    train_tokenizer   texts -> tokenizer.json (Hugging Face format), same texts, same bytes
    check_frozen      a trained tokenizer is replaced only on demand

Text is cut into pieces by a pattern after GPT-4's (cl100k_base; marks count as letters, so that
words in Devanagari or Arabic stay whole). Merges never cross pieces, and no piece is longer than
`tokenizer.max_piece`: merging one run of 200,000 letters costs more than the rest of a corpus
(huggingface/tokenizers#422).

Special tokens are the ids 0 to 7; `<|endoftext|>` is 0 for ever. Text that spells one is text:
always load with `load_tokenizer`, which tells the library so (huggingface/tokenizers#1437); the
setting does not live in the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
import xxhash

from pipeline.config.tokenizer import N_SPECIALS, TokenizerConfig
from pipeline.errors import ConfigError, ContractError
from pipeline.layout import sha256_hex
from pipeline.shares import allot, check_names

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CODE_VERSION = "1"
LIBRARIES = ("tokenizers", "polars", "xxhash")

END_OF_TEXT = "<|endoftext|>"
SPECIALS = (END_OF_TEXT, *(f"<|reserved_{i}|>" for i in range(1, N_SPECIALS)))
WEB = "web"
"""The source of documents that come from a crawl."""


def piece_pattern(digits: int, longest: int) -> str:
    r"""The regular expression whose matches are the pieces; every character is in one match.

    Contractions; letters with one sign or blank before them; groups of `digits`; signs with a blank
    before and line ends behind; blanks up to a line end; blanks but the one before a word.
    """
    run = f"{{1,{longest}}}"
    maybe = f"{{0,{longest}}}"
    return "|".join(
        [
            r"'(?i:[sdmt]|ll|ve|re)",
            rf"[^\r\n\p{{L}}\p{{M}}\p{{N}}]?[\p{{L}}\p{{M}}]{run}",
            rf"\p{{N}}{{1,{digits}}}",
            rf" ?[^\s\p{{L}}\p{{M}}\p{{N}}]{run}[\r\n]{maybe}",
            rf"\s{maybe}[\r\n]{run}",
            rf"\s{run}(?!\S)",
            rf"\s{run}",
        ]
    )


def documents_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with `source` (`web` where null) and `language` (`und`) for every document."""
    names = {"source": WEB, "language": "und"}
    return frame.with_columns(
        pl.col(name).fill_null(instead) if name in frame.columns else pl.lit(instead).alias(name)
        for name, instead in names.items()
    )


def plan_sample(documents: pl.DataFrame, config: TokenizerConfig) -> pl.Series:
    """Which of `documents` (`doc_id, source, language, n_bytes`) the tokenizer is trained on.

    A truth value a row. Sources get `tokenizer.weights` of `tokenizer.sample_bytes` (else by size),
    the languages of a source their size to the power `language_alpha`; what one lacks goes to the
    others. Within a language the order is the hash of the document's id: independent of the order
    of rows, and a larger budget only adds. A document is taken while the budget lasts, the first
    always. Raises ConfigError where `tokenizer.weights` names an unknown source.
    """
    keys = ["source", "language"]
    table = documents_columns(documents).with_row_index("row")
    quotas = _quotas(table.group_by(keys).agg(pl.col("n_bytes").sum()).sort(keys), config)
    ids = documents["doc_id"].to_list()
    ranked = table.with_columns(
        pl.Series("rank", [xxhash.xxh3_64_intdigest(i.encode()) for i in ids], pl.UInt64)
    ).sort("rank", "doc_id")
    up_to = pl.col("n_bytes").cast(pl.Int64).cum_sum().over(keys)
    first = pl.int_range(pl.len()).over(keys) == 0
    chosen = ranked.join(quotas, on=keys, how="left", maintain_order="left").select(
        "row", keep=(pl.col("quota") > 0) & (first | (up_to <= pl.col("quota") + 0.5))
    )
    return chosen.sort("row")["keep"]


def _quotas(sizes: pl.DataFrame, config: TokenizerConfig) -> pl.DataFrame:
    by_source: dict[str, dict[str, float]] = {}
    for source, language, size in sizes.iter_rows():
        by_source.setdefault(source, {})[language] = float(size)
    check_names("tokenizer.weights", config.weights, by_source)
    totals = {source: sum(languages.values()) for source, languages in by_source.items()}
    shares = {s: config.weights.get(s, 0.0) if config.weights else totals[s] for s in by_source}
    budgets = allot(config.sample_bytes, shares, totals)
    rows = []
    for source, languages in by_source.items():
        powers = {language: size**config.language_alpha for language, size in languages.items()}
        quotas = allot(budgets[source], powers, languages)
        rows += [(source, language, quota) for language, quota in quotas.items()]
    schema = {"source": pl.String, "language": pl.String, "quota": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> tuple[str, dict[str, Any]]:
    """Train on `texts` and return the bytes of `tokenizer.json` as text, and a report.

    The order of texts does not matter. Raises ConfigError naming `tokenizer.vocab_size` where the
    texts do not support so many entries.
    """
    from tokenizers import AddedToken, trainers
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = _untrained(config)
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in SPECIALS],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    count = {"documents": 0, "bytes": 0}
    tokenizer.train_from_iterator(_counted(texts, count), trainer)
    reached = tokenizer.get_vocab_size()
    if reached < config.vocab_size:
        message = (
            f"tokenizer.vocab_size is {config.vocab_size}, but {count['bytes']} bytes of text in "
            f"{count['documents']} documents support {reached} entries"
        )
        hint = f"set tokenizer.vocab_size to {reached} or less, or train on more text"
        raise ConfigError(message, hint=hint)
    return tokenizer.to_str(pretty=True) + "\n", {"vocab_size": reached, **count}


def _untrained(config: TokenizerConfig) -> Tokenizer:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE())
    pattern = Regex(piece_pattern(config.digits, config.max_piece))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _counted(texts: Iterable[str], count: dict[str, int]) -> Iterator[str]:
    for text in texts:
        count["documents"] += 1
        count["bytes"] += len(text.encode())
        yield text


def load_tokenizer(tokenizer_json: str) -> Tokenizer:
    """The tokenizer of a `tokenizer.json`, for which text that spells a special token is text.

    Raises ContractError where it is none, or has no `<|endoftext|>`.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # the library raises nothing narrower
        message = f"this is no tokenizer.json: {str(error)[:100]}"
        raise ContractError(message, hint="`gristmill tokenizer train` writes one") from error
    if tokenizer.token_to_id(END_OF_TEXT) is None:
        message = f"the tokenizer has no token {END_OF_TEXT}, which ends every document of a shard"
        raise ContractError(message, hint="add it, or use `gristmill tokenizer train`")
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def check_frozen(
    current: str | None, new: str, *, unfreeze: bool, stale: Sequence[str] = ()
) -> None:
    """Refuse to replace a trained tokenizer: `current` and `new` are what identifies them.

    Passes where there is none yet, where they are equal, or with `unfreeze`. Raises ConfigError
    naming `tokenizer.unfreeze` and what would become stale.
    """
    if current is None or current == new or unfreeze:
        return
    what = ", ".join(stale) or "all token_shards, the mixture and every run trained on them"
    message = (
        f"the tokenizer is frozen ({current[:12]}) and would be another one ({new[:12]}); "
        f"{what} would become stale"
    )
    hint = "set tokenizer.unfreeze: true to replace it, then materialise what is stale"
    raise ConfigError(message, hint=hint)


def tokenizer_hash(tokenizer_json: str) -> str:
    """What shards and runs record of a tokenizer: `sha256:<hex>` of the bytes of its file."""
    return f"sha256:{sha256_hex(tokenizer_json.encode())}"


def is_ours(tokenizer_json: str) -> bool:
    """Whether text is cut into pieces by `piece_pattern` and by nothing else before or after."""
    content = json.loads(tokenizer_json)
    split = (content.get("pre_tokenizer") or {}).get("pretokenizers", [{}])[0]
    found = split.get("pattern", {}).get("Regex", "")
    # added tokens that are not special would be found across pieces
    added = tuple(token["content"] for token in content.get("added_tokens", []))
    patterns = (piece_pattern(d, n) for d, n in _numbers(found))
    return content.get("normalizer") is None and added == SPECIALS and found in patterns


def _numbers(pattern: str) -> list[tuple[int, int]]:
    digits = re.search(r"\\p\{N\}\{1,(\d+)\}", pattern)
    longest = re.search(r"\\s\{1,(\d+)\}$", pattern)
    return [(int(digits[1]), int(longest[1]))] if digits and longest else []
