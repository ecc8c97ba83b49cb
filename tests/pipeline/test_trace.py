"""Trace: the way back goes by the manifests that were read, also when stages were made again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config import Config, merge, validate
from pipeline.dataset import Dataset
from pipeline.errors import UsageError
from pipeline.mill import Mill
from pipeline.shard_documents import FACTS, documents_of
from pipeline.stages import curation, tokens
from pipeline.tokenize import read_documents
from pipeline.trace import trace_doc, trace_token, trace_url
from resources.mill import open_mill
from tests import miniature, miniature_input
from tests.miniature_input import FIRST, SOURCE

UNTIL_SHARDS = miniature.STEPS[: miniature.STEPS.index(f"token_shards/{SOURCE}") + 1]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return miniature_input.build(tmp_path_factory.mktemp("input"))


@pytest.fixture(scope="module")
def mill(given: Path, tmp_path_factory: pytest.TempPathFactory) -> Mill:
    root = str(tmp_path_factory.mktemp("root"))
    opened = open_mill(miniature.config(root, given))
    miniature.perform(opened, UNTIL_SHARDS)
    return opened


def shard(mill: Mill, corpus: str) -> str:
    found = mill.find("token_shards", corpus)
    assert found is not None
    paths = [entry.path for entry in found.content.parts]
    return next(p.removesuffix(".bin") for p in paths if p.endswith(".bin"))


def changed(mill: Mill, **sections: object) -> Mill:
    config: Config = validate(merge(mill.config.model_dump(), sections))
    return replace(mill, config=config)


def test_a_token_leads_to_its_record(mill: Mill) -> None:
    story = trace_token(mill.root, f"{shard(mill, FIRST)}:0")
    assert story["corpus"] == FIRST
    assert story["warc_file"]
    assert all(fate["kept"] and "since" not in fate for fate in story["fates"])
    assert [fate["stage"] for fate in story["fates"]][-1] == "token_shards"
    assert story["shards"][0]["shard"] == shard(mill, FIRST)
    assert trace_doc(mill.root, story["doc_id"])["fates"] == story["fates"]


def test_a_token_of_a_source_leads_to_its_line(mill: Mill) -> None:
    story = trace_token(mill.root, f"{shard(mill, SOURCE)}:0")
    assert (story["corpus"], story["source"]) == (SOURCE, SOURCE)
    assert story["source_id"]
    assert [fate["stage"] for fate in story["fates"]] == ["source_texts", "token_shards"]


def test_a_stage_made_again_does_not_change_what_shards_were_made_of(mill: Mill) -> None:
    before = trace_token(mill.root, f"{shard(mill, FIRST)}:0")
    try:
        curation.filter_text(changed(mill, filter={"gopher": {"min_words": 5000}}), FIRST)
        after = trace_token(mill.root, f"{shard(mill, FIRST)}:0")
        by_url = trace_url(mill.root, before["url"])
    finally:
        curation.filter_text(mill, FIRST)
    since = {fate["stage"]: fate.pop("since", None) for fate in after["fates"]}
    assert after["fates"] == before["fates"]
    told = since.pop("filtered_text")
    assert told is not None
    assert (told["kept"], told["threshold"]) == (False, 5000)
    assert not any(since.values())
    assert by_url[0]["shards"] == before["shards"]
    assert by_url[0]["fates"][1]["since"] == told


def test_a_page_that_the_filter_dropped_tells_all_the_rules_it_fails(mill: Mill) -> None:
    filtered = Dataset.open(mill.folder("filtered_text", FIRST))
    decisions = filtered.load("decisions")
    dropped = decisions.filter(~decisions["kept"]).head(3)
    assert len(dropped)
    for doc_id, reason in dropped.select("doc_id", "reason").iter_rows():
        [fate] = [f for f in trace_doc(mill.root, doc_id)["fates"] if f["stage"] == "filtered_text"]
        first = fate["fails"][0]
        assert (first["rule"], reason) == (fate["reason"], fate["reason"])
        assert first["value"] == pytest.approx(fate["value"], rel=1e-6)
        assert first["threshold"] == pytest.approx(fate["threshold"], rel=1e-6)
        assert len({rule["rule"] for rule in fate["fails"]}) == len(fate["fails"])


def test_a_shard_of_an_earlier_tokenizer_is_still_found(mill: Mill) -> None:
    old = shard(mill, FIRST)
    before = trace_token(mill.root, f"{old}:0")
    smaller = changed(mill, tokenizer={"vocab_size": 400, "unfreeze": True})
    try:
        tokens.tokenizer(smaller)
        tokens.token_shards(smaller, FIRST)
        assert shard(mill, FIRST) != old
        assert trace_token(mill.root, f"{old}:0") == before
    finally:
        tokens.tokenizer(changed(mill, tokenizer={"unfreeze": True}))
        tokens.token_shards(mill, FIRST)


@pytest.mark.parametrize("place", ["", ":", "x", "x:-1", "x:1.5", "x:²", "nowhere:0", "../x:0"])
def test_no_place_of_a_token(mill: Mill, place: str) -> None:
    with pytest.raises(UsageError):
        trace_token(mill.root, place)


def test_a_token_behind_the_end(mill: Mill) -> None:
    with pytest.raises(UsageError, match="has no token 99,999,999"):
        trace_token(mill.root, f"{shard(mill, FIRST)}:99999999")


def test_an_unknown_url_and_document(mill: Mill) -> None:
    with pytest.raises(UsageError, match="is in no snapshot"):
        trace_url(mill.root, "https://nowhere.example/")
    with pytest.raises(UsageError, match="is in no corpus"):
        trace_doc(mill.root, "0" * 32)


def test_every_document_of_a_batch_is_named(mill: Mill) -> None:
    names = {c: shard(mill, c) for c in (FIRST, SOURCE)}
    places = [(names[SOURCE], 1), (names[FIRST], 2), (names[FIRST], 0)]
    places += places[:1]
    found = documents_of(mill.root, places)
    assert [(row["shard"], row["document"]) for row in found] == places
    for row in found:
        story = trace_token(mill.root, f"{row['shard']}:{row['first_token']}")
        assert row["doc_id"] == story["doc_id"]
        assert row["corpus"] == story["corpus"]
        assert row["url"] == story["url"]
        assert row["source_id"] == story.get("source_id")
        told = story["tokens"]
        assert row["quality"] == told["quality_score"]
        for name in ("source", "language", "licence", "n_tokens"):
            assert row[name] == told[name]
    assert found[1]["url"]
    assert found[0]["source_id"]
    assert found[0] == found[3]


def test_a_shard_of_elsewhere_is_unknown_and_a_number_too_high_is_refused(mill: Mill) -> None:
    [row] = documents_of(mill.root, [("elsewhere", 3)])
    assert row == {"shard": "elsewhere", "document": 3} | dict.fromkeys(FACTS)
    name = shard(mill, FIRST)
    n = len(read_documents(Path(mill.root.url, "token_shards", FIRST, name)))
    with pytest.raises(UsageError, match=f"has no document {n}: it holds {n}"):
        documents_of(mill.root, [(name, n)])
