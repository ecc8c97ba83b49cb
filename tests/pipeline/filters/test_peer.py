"""The rules against datatrove's filters: the same decisions, reasons and texts.

These tests run where the peer is installed (`pip install datatrove[processing]`); the golden
documents in `test_rules_golden.py` say the same, rule by rule, without it.
"""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipeline.config.filter import FilterConfig
from pipeline.config.urls import UrlConfig
from pipeline.filters import urls
from pipeline.filters.rules import decide
from pipeline.filters.run import filter_documents
from tests.pipeline.filters.test_rules_golden import C4, FINEWEB, QUALITY, REPETITION

pytestmark = [pytest.mark.bench]
FAMILIES = ("gopher_repetition", "gopher_quality", "c4", "fineweb")
ENGLISH_WORDS = ["the", "be", "to", "of", "and", "that", "have", "with"]
OFF: dict[str, Any] = {
    "language": {"enabled": False, "min_chars": 0},
    "gopher": {"quality": False, "repetition": False, "stop_words": {"*": ENGLISH_WORDS}},
    "c4": {"enabled": False},
    "fineweb": {"enabled": False},
}
ON: dict[str, dict[str, Any]] = {
    "gopher_repetition": {"gopher": {"repetition": True}},
    "gopher_quality": {"gopher": {"quality": True}},
    "c4": {"c4": {"enabled": True}},
    "fineweb": {"fineweb": {"enabled": True}},
}
ON["chain"] = {"gopher": {"repetition": True, "quality": True}, **ON["c4"], **ON["fineweb"]}


@pytest.fixture(autouse=True)
def installed() -> None:
    """Skips where the peer is not there."""
    pytest.importorskip("datatrove", reason="datatrove is not installed")


@cache
def peers() -> dict[str, Any]:
    """FineWeb's filters, by family."""
    from datatrove.pipeline import filters

    return {
        "gopher_repetition": filters.GopherRepetitionFilter(),
        "gopher_quality": filters.GopherQualityFilter(),
        "c4": filters.C4QualityFilter(filter_no_terminal_punct=False),
        "fineweb": filters.FineWebQualityFilter(),
    }


def judge(families: tuple[str, ...], text: str) -> tuple[str | None, str]:
    """The first failing rule of the peer's filters in this order, and the text they left."""
    from datatrove.data import Document

    document = Document(text=text, id="")
    for family in families:
        verdict = peers()[family].filter(document)
        if verdict is not True:
            return f"{family}.{verdict[1]}", document.text
    return None, document.text


def ours(texts: list[str], which: str) -> pl.DataFrame:
    """Our reasons, and the texts of what is kept."""
    section = {key: {**OFF[key], **ON[which].get(key, {})} for key in OFF}
    frame = pl.DataFrame({"doc_id": map(str, range(len(texts))), "url": None, "text": texts})
    tables = filter_documents(frame, FilterConfig.model_validate(section)).tables
    kept = tables["parts"].select("doc_id", "text")
    return tables["decisions"].join(kept, on="doc_id", how="left", maintain_order="left")


def check(texts: list[str]) -> None:
    """Every filter by itself on every text, and the chain."""
    for which in ON:
        found = ours(texts, which)
        families = FAMILIES if which == "chain" else (which,)
        for text, reason, left in zip(texts, found["reason"], found["text"], strict=True):
            expected, edited = judge(families, text)
            if reason == "extract.empty" and expected is None:
                continue  # an empty text that no rule of the peer's takes; we never keep one
            assert reason == expected, (which, text[:200])
            if reason is None:
                assert left == edited, (which, text[:200])


def test_golden_documents() -> None:
    rules = (*REPETITION, *QUALITY, *C4, *FINEWEB)
    check([text for _, *both in rules for text in both if text])


def english(texts: list[str]) -> list[str]:
    """What an English recipe is given: the filters know no other language."""
    from pipeline.language import identify

    told = identify(pl.Series("text", texts))
    return pl.Series(texts).filter(told["language"] == "en").to_list()


@pytest.mark.slow
@pytest.mark.shared
def test_every_text_of_the_sources(shared: Path) -> None:
    texts = []
    for path in sorted((shared / "data" / "sources").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    assert len(texts) > 7500
    check(texts)


@pytest.mark.slow
@pytest.mark.shared
def test_every_english_page_of_both_snapshots(shared: Path) -> None:
    from pipeline.config.extract import ExtractConfig
    from tests.pipeline import warcs

    texts: list[str] = []
    config = ExtractConfig(mode="resiliparse")  # the fastest; the rules are what is tested
    for path in sorted((shared / "data" / "snapshots").glob("*/*.warc.gz")):
        result = warcs.extracted(path, config, path.parent.name)
        texts += result.tables["parts"]["text"].to_list()
    pages = english(texts)
    assert len(pages) > 2500
    check(pages)


WORDS = {
    "banned_words": ["casino", "Foo-Bar"],
    "banned_substrings": ["xyz", "pqr-s"],
    "soft_words": ["free", "win", "now"],
}
ADDRESSES = [
    "http://a.example/", "http://a.example/casino", "http://a.example/casinos", "http://casino.example",
    "http://a.example/foobar", "http://a.example/foo-bar", "http://a.example/wx-y.z",
    "http://a.example/PQ/RS", "http://a.example/free/free", "http://free.example/win?x=1",
    "http://a.example/free_win", "http://a.example/win#now", "https://u:casino@a.example:80/",
    "http://xn--bcher-kva.example/free", "http://192.0.2.1/now/win", "http://bad.example/x",
    "http://www.bad.example:8080/x", "http://notbad.example/", "http://sub.worse.example/",
    "http://worse.example/", "http://user@bad.example/", "http://listed.example/page?x=1",
    "http://listed.example/page", "ftp://bad.example/", "http://bad.example./",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The 'registered_domain' property:DeprecationWarning")
def test_addresses(tmp_path: Path) -> None:
    pytest.importorskip("ahocorasick", reason="pyahocorasick is not installed")
    from datatrove.data import Document
    from datatrove.pipeline import filters

    domains, whole = ["bad.example", "sub.worse.example"], ["http://listed.example/page?x=1"]
    peer = filters.URLFilter(
        use_integrated_lists=False, extra_domains=domains, extra_urls=whole,
        banned_words=WORDS["banned_words"], banned_subwords=WORDS["banned_substrings"],
        soft_banned_words=WORDS["soft_words"],
    )  # fmt: skip
    suffixes = {"suffix_list_urls": (), "extra_suffixes": ("example",)}  # nothing is fetched
    peer.tldextractor = type(peer.tldextractor)(**suffixes)
    peer.banned_subwords_automaton.make_automaton()
    paths: dict[str, Path] = {}
    for name, entries in {**WORDS, "domains": domains, "urls": whole}.items():
        paths[name] = tmp_path / name
        paths[name].write_text("\n".join(entries))
    config = UrlConfig.model_validate(paths)
    signals = urls.signals(pl.Series("url", ADDRESSES), config)
    reasons = decide(signals, urls.rules(config))["reason"].to_list()
    same = {
        "domain": "url.listed", "subdomain": "url.listed", "url": "url.listed",
        "hard_blacklisted": "url.banned_word", "blacklisted_subword": "url.banned_word",
        "soft_blacklisted": "url.soft_words", None: None,
    }  # fmt: skip
    for address, reason in zip(ADDRESSES, reasons, strict=True):
        verdict = peer.filter(Document(text="", id="", metadata={"url": address}))
        assert same[None if verdict is True else verdict[1]] == reason, address
