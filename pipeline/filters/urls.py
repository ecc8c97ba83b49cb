"""Rules on the address of a page: listed hosts and URLs, banned words, several soft words.

FineWeb's URL filter (datatrove URLFilter) with lists that the user gives; without lists no rule
applies. Where it differs from the peer it drops more, as lists of hosts are meant: a host matches
an entry if it is that domain or anything below it (the peer: the registered domain, or the host
itself), whatever the case and the script it is written in; and words, the runs of ASCII letters and
digits of the URL, match in any case (the peer: as they stand in the URL).
"""

from __future__ import annotations

import polars as pl

from pipeline.config.urls import UrlConfig
from pipeline.filters.rules import Rule, above
from pipeline.filters.url_lists import HashedSet, ascii_hosts, lists_of, paths_below

FAMILY = "url"
HOST = r"^(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^/?#@]*@)?(\[[^/?#\]]*\]|[^/?#:\[]+)"
DEEPEST = 16
"""Labels of a host, and parts of a path, that are tried as an entry of a list."""


def signals(urls: pl.Series, config: UrlConfig) -> pl.DataFrame:
    """Columns `url_listed` (0 or 1), `url_banned_words`, `url_soft_words` (how many), int32.

    A null URL is on no list. Raises ConfigError for a list that cannot be read.
    """
    addresses, words = lists_of(config)
    urls = urls.cast(pl.String).fill_null("").alias("url")
    listed = pl.Series("url_listed", addresses.urls.has(urls))
    if len(addresses.domains):
        hosts = ascii_hosts(urls.str.extract(HOST, 1).fill_null(""))
        listed |= _any_of(_domains_above(hosts), addresses.domains)
    if len(addresses.below):
        listed |= _any_of(_paths_above(paths_below(urls)), addresses.below)
    lower = pl.col("url").str.to_lowercase()
    distinct = lower.str.extract_all("[a-z0-9]+").list.unique()
    hits, soft = (
        distinct.list.set_intersection(list(chosen)).list.len() if chosen else pl.lit(0)
        for chosen in (words.banned, words.soft)
    )
    if words.substrings:
        squeezed = lower.str.replace_all("[^a-z0-9]+", "")
        hits = hits + squeezed.str.contains_any(list(words.substrings)).cast(pl.Int32)
    frame = pl.DataFrame([listed.cast(pl.Int32), urls]).with_columns(
        hits.cast(pl.Int32).alias("url_banned_words"), soft.cast(pl.Int32).alias("url_soft_words")
    )
    return frame.drop("url")


def _domains_above(hosts: pl.Series) -> pl.Series:
    """Each host and every domain above it; of a number only itself."""
    host = pl.col(hosts.name)
    labels = host.str.split(".")
    tails = [labels.list.tail(n).list.join(".") for n in range(1, DEEPEST)]
    number = host.str.contains(r"^[0-9.]+$|^\[")
    every = pl.when(number).then(pl.concat_list(host)).otherwise(pl.concat_list([*tails, host]))
    return pl.DataFrame(hosts).select(every.list.unique()).to_series()


def _paths_above(paths: pl.Series) -> pl.Series:
    """Each address, that without its query, and every address above it."""
    path = pl.col(paths.name)
    parts = path.str.replace(r"\?.*$", "").str.split("/")
    heads = [parts.list.head(n).list.join("/") for n in range(1, DEEPEST)]
    every = pl.concat_list([*heads, parts.list.join("/"), path])
    return pl.DataFrame(paths).select(every.list.unique()).to_series()


def _any_of(candidates: pl.Series, known: HashedSet) -> pl.Series:
    """Per row whether one of its candidates is in the set."""
    frame = pl.DataFrame({"row": range(len(candidates)), "one": candidates}).explode("one")
    rows = frame["row"].filter(pl.Series(known.has(frame["one"])))
    return pl.Series(range(len(candidates)), dtype=pl.Int64).is_in(rows.unique().implode())


def rules(config: UrlConfig) -> list[Rule]:
    """In the order of the peer: listed, banned words, soft words."""
    return [
        *above(f"{FAMILY}.listed", "url_listed", 0),
        *above(f"{FAMILY}.banned_word", "url_banned_words", 0),
        *above(f"{FAMILY}.soft_words", "url_soft_words", config.soft_threshold - 1),
    ]
