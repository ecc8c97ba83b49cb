"""URL lists: hosts and what is below them, words and parts of words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.config.urls import UrlConfig
from pipeline.errors import ConfigError
from pipeline.filters import urls
from pipeline.filters.rules import decide


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
