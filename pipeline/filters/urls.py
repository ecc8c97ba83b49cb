"""Rules on the address of a page: listed hosts and URLs, banned words, several soft words.

FineWeb's URL filter (datatrove URLFilter) with lists that the user gives; without lists no rule
applies. A host matches an entry if it is that domain or below it. Words are the runs of ASCII
letters and digits of the URL, in lower case (the peer compares them as they stand in the URL).
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import polars as pl

from pipeline.config.urls import UrlConfig
from pipeline.errors import ConfigError
from pipeline.filters.rules import Rule, above

FAMILY = "url"
SIGNS = re.compile(r"[^a-z0-9]+")
HOST = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#@]*@)?([^/?#:\[]+)"


@lru_cache(maxsize=16)
def _entries(path: Path, stamp: int, size: int) -> tuple[str, ...]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return tuple(sorted({line for line in lines if line and not line.startswith("#")}))


def read_list(key: str, path: Path | None) -> tuple[str, ...]:
    """The entries of a list file, sorted; none without a path. ConfigError if it cannot be read."""
    if path is None:
        return ()
    try:
        status = path.stat()
        return _entries(path, status.st_mtime_ns, status.st_size)
    except (OSError, UnicodeDecodeError) as error:
        message = f"filter.urls.{key}: cannot read {path}: {error}"
        raise ConfigError(message, hint="name a UTF-8 text file with one entry a line") from error


def _plain(entries: tuple[str, ...], replacement: str = "") -> list[str]:
    plain = {SIGNS.sub(replacement, entry.lower()) for entry in entries}
    return sorted(plain - {""})


def signals(urls: pl.Series, config: UrlConfig) -> pl.DataFrame:
    """Columns `url_listed` (0 or 1), `url_banned_words`, `url_soft_words` (how many), int32.

    A null URL is on no list.
    """
    domains = [entry.lower().rstrip(".") for entry in read_list("domains", config.domains)]
    listed = list(read_list("urls", config.urls))
    banned = _plain(read_list("banned_words", config.banned_words))
    substrings = _plain(read_list("banned_substrings", config.banned_substrings))
    soft = _plain(read_list("soft_words", config.soft_words))
    url = pl.col("url")
    lower = url.str.to_lowercase()
    on_list = pl.lit(value=False)
    if listed:
        on_list = on_list | url.is_in(listed)
    if domains:
        on_list = on_list | _suffixes(lower).list.set_intersection(domains).list.len().gt(0)
    words = lower.str.extract_all("[a-z0-9]+").list.unique()
    hits = words.list.set_intersection(banned).list.len() if banned else pl.lit(0)
    if substrings:
        squeezed = lower.str.replace_all("[^a-z0-9]+", "")
        hits = hits + squeezed.str.contains_any(substrings).cast(pl.Int32)
    softly = words.list.set_intersection(soft).list.len() if soft else pl.lit(0)
    frame = pl.DataFrame({"url": urls.fill_null("")}, schema={"url": pl.String})
    return frame.with_columns(
        on_list.cast(pl.Int32).alias("url_listed"),
        hits.cast(pl.Int32).alias("url_banned_words"),
        softly.cast(pl.Int32).alias("url_soft_words"),
    ).drop("url")


def _suffixes(url: pl.Expr) -> pl.Expr:
    """The host of a URL and every domain above it."""
    labels = url.str.extract(HOST, 1).fill_null("").str.strip_chars_end(".").str.split(".")
    tails = [labels.list.tail(n).list.join(".") for n in range(1, 9)]
    whole = labels.list.join(".")
    return pl.concat_list([*tails, whole]).list.unique()


def rules(config: UrlConfig) -> list[Rule]:
    """In the order of the peer: listed, banned words, soft words."""
    return [
        *above(f"{FAMILY}.listed", "url_listed", 0),
        *above(f"{FAMILY}.banned_word", "url_banned_words", 0),
        *above(f"{FAMILY}.soft_words", "url_soft_words", config.soft_threshold - 1),
    ]
