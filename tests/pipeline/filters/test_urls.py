"""URL lists: hosts and what is below them, words and parts of words."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipeline.config.urls import UrlConfig
from pipeline.errors import ConfigError
from pipeline.filters import urls
from pipeline.filters.rules import decide
from pipeline.filters.url_files import check_lists
from pipeline.filters.url_lists import HashedSet, lists_of, paths_below


def reason(tmp_path: Path, url: str | None, **lists: list[str]) -> str | None:
    paths: dict[str, Any] = {}
    for name, entries in lists.items():
        paths[name] = tmp_path / name
        paths[name].write_text("# list\n" + "\n".join(entries))
    config = UrlConfig.model_validate(paths)
    signals = urls.signals(pl.Series("url", [url], pl.String), config)
    found: str | None = decide(signals, urls.rules(config))["reason"][0]
    return found


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://bad.example/x", "url.listed"),
        ("https://user@a.b.BAD.example.:80/x", "url.listed"),
        ("http://notbad.example/", None),
        ("http://example/bad.example", None),
        ("http://example/?u=http://bad.example/", None),
        ("http://bad.example.other/", None),
        ("http://bad.example@good.example/", None),
        ("//bad.example?q", "url.listed"),
        ("bad.example/x", None),  # no address of a crawl
        ("", None),
        (None, None),
    ],
)
def test_listed_hosts(tmp_path: Path, url: str | None, expected: str | None) -> None:
    assert reason(tmp_path, url, domains=["bad.example"]) == expected


def test_listed_urls_are_exact(tmp_path: Path) -> None:
    assert reason(tmp_path, "http://a.example/x", urls=["http://a.example/x"]) == "url.listed"
    assert reason(tmp_path, "http://a.example/xy", urls=["http://a.example/x"]) is None


def test_banned_words_are_whole_words(tmp_path: Path) -> None:
    assert reason(tmp_path, "http://a.example/Casino-x", banned_words=["casino"]) is not None
    assert reason(tmp_path, "http://a.example/casinos", banned_words=["casino"]) is None


def test_banned_substrings_are_anywhere(tmp_path: Path) -> None:
    found = reason(tmp_path, "http://a.example/ca-si-nos", banned_substrings=["casino"])
    assert found == "url.banned_word"


def test_two_soft_words(tmp_path: Path) -> None:
    soft = {"soft_words": ["free", "win"]}
    assert reason(tmp_path, "http://free.example/free", **soft) is None
    assert reason(tmp_path, "http://free.example/win", **soft) == "url.soft_words"


def test_no_lists_no_rule(tmp_path: Path) -> None:
    assert reason(tmp_path, "http://casino.example/") is None


def test_an_absent_list_is_named() -> None:
    config = UrlConfig(domains=Path("/nowhere/list"))
    with pytest.raises(ConfigError, match=r"filter\.urls\.domains.*/nowhere/list"):
        urls.signals(pl.Series("url", ["http://a/"]), config)


@pytest.mark.parametrize(
    ("entry", "url", "listed"),
    [
        ("192.0.2.7", "http://192.0.2.7:8080/x", True),
        ("0.2.7", "http://192.0.2.7/", False),  # a number has no domain above it
        ("[2001:db8::1]", "http://[2001:DB8::1]:80/", True),
        ("bücher.example", "http://www.xn--bcher-kva.example/", True),
        ("xn--bcher-kva.example", "http://BÜCHER.example/", True),
        ("www.one.example.", "http://www.one.example", True),
        ("www.one.example", "http://one.example", False),
        ("  Two.Example  ", "http://two.example", True),
        ("x" * 70 + "ü.example", "http://a.example", False),
    ],
)
def test_hosts_in_any_spelling(tmp_path: Path, entry: str, url: str, listed: bool) -> None:
    found = reason(tmp_path, url, domains=["other.example", entry])
    assert (found == "url.listed") is listed


def ut1(folder: Path, **categories: dict[str, str]) -> Path:
    for category, files in categories.items():
        (folder / category).mkdir(parents=True)
        for name, text in files.items():
            data = text.encode()
            packed = gzip.compress(data) if name.endswith(".gz") else data
            (folder / category / name).write_bytes(packed)
    return folder


def listed(config: UrlConfig, *addresses: str | None) -> list[int]:
    column = pl.Series("url", addresses, pl.String)
    return urls.signals(column, config)["url_listed"].to_list()


def test_lists_of_ut1(tmp_path: Path) -> None:
    folder = ut1(
        tmp_path / "blacklists",
        adult={"domains": "bad.example\n198.51.100.4\n", "urls": "good.example/~bad/\n"},
        games={"domains.gz": "play.example\n", "urls.gz": "www.Host.example/Play\n"},
    )  # fmt: skip
    both = UrlConfig(ut1=folder)
    given = (
        "http://a.bad.example/", "http://198.51.100.4/x", "https://user@good.example:80/~bad?x=1",
        "http://www.good.example/~bad/more/deep.html#top", "http://good.example/~badly",
        "http://good.example/", "http://play.example/", "http://host.example/Play/",
        "http://host.example/play/", None,
    )  # fmt: skip
    assert listed(both, *given) == [1, 1, 1, 1, 0, 0, 1, 1, 0, 0]
    adult = UrlConfig(ut1=folder, ut1_categories=["adult"])
    assert listed(adult, *given) == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert listed(UrlConfig(ut1=folder / "games"), *given) == [0, 0, 0, 0, 0, 0, 1, 1, 0, 0]


def test_lists_of_ut1_that_are_not_there_are_named(tmp_path: Path) -> None:
    folder = ut1(tmp_path / "blacklists", adult={"domains": "bad.example"})
    with pytest.raises(ConfigError, match=r"ut1_categories: 'games'.*\nhint: there are adult"):
        lists_of(UrlConfig(ut1=folder, ut1_categories=["games"]))
    with pytest.raises(ConfigError, match=r"filter\.urls\.ut1: .* has no lists"):
        lists_of(UrlConfig(ut1=tmp_path / "nowhere"))
    (folder / "adult" / "urls.gz").write_bytes(gzip.compress(b"a.example/b")[:-9])
    with pytest.raises(ConfigError, match=r"filter\.urls\.ut1: cannot read .*urls\.gz"):
        lists_of(UrlConfig(ut1=folder))


def test_addresses_as_ut1_writes_them() -> None:
    column = pl.Series(["HTTPS://u:p@WWW.A.example:8443/B/?q=1#f", "a.example/", None])
    assert paths_below(column).to_list() == ["a.example/B/?q=1", "a.example", None]


def test_a_list_in_blocks_is_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.filters.url_lists.BLOCK_BYTES", 7)
    path = tmp_path / "domains"
    names = [f"host{k}.example" for k in range(50)]
    path.write_text("\r\n".join([*names, "", "# no", *names]))
    addresses, _ = lists_of(UrlConfig(domains=path))
    assert len(addresses.domains) == 50
    assert (
        addresses.domains.has(pl.Series([*names, "no", None])).tolist() == [True] * 50 + [False] * 2
    )


def test_a_changed_list_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "domains"
    for text, expected in (("a.example", [1, 0]), ("b.example\n# longer", [0, 1])):
        path.write_text(text)
        assert listed(UrlConfig(domains=path), "http://a.example", "http://b.example") == expected


def test_sets_of_nothing() -> None:
    empty = HashedSet(np.zeros(0, np.uint64))
    assert empty.has(pl.Series(["", None], dtype=pl.String)).tolist() == [False, False]
    assert urls.signals(pl.Series([], dtype=pl.String), UrlConfig()).shape == (0, 3)


@pytest.mark.parametrize(
    "key", ["domains", "urls", "banned_words", "banned_substrings", "soft_words", "ut1"]
)
def test_a_list_that_is_not_there_is_found_before_work_starts(key: str) -> None:
    check_lists(UrlConfig())
    with pytest.raises(ConfigError, match=rf"filter\.urls\.{key}: .*/nowhere"):
        check_lists(UrlConfig.model_validate({key: "/nowhere"}))
