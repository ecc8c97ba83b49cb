"""The greedy rule against a loop that is short enough to be believed."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.config.dedup import DedupConfig
from pipeline.dedup.run import DedupDecision, decide, sign_part
from pipeline.errors import ContractError

SMALL = {"threshold": 0.6, "bands": 6, "rows": 2, "ngram": 2}


def frame(documents: list[dict[str, Any]]) -> pl.DataFrame:
    schema = {
        "doc_id": pl.String, "url": pl.String, "text": pl.String, "sequence": pl.Int64,
        "language": pl.String, "quality_score": pl.Float32, "split": pl.String,
    }  # fmt: skip
    return pl.DataFrame(documents, schema=schema)


def reader(documents: pl.DataFrame) -> Callable[[list[str]], pl.DataFrame]:
    texts = documents.select("doc_id", "text")
    return lambda ids: texts.filter(pl.col("doc_id").is_in(ids)).reverse()


def dedup(documents: pl.DataFrame, config: DedupConfig) -> DedupDecision:
    return decide(sign_part(documents, config), None, reader(documents), config)


def jaccard(a: str, b: str, n: int) -> float:
    sets = []
    for text in (a, b):
        words = re.findall(r"\w+", text.lower())
        sets.append({tuple(words[i : i + n]) for i in range(len(words) - n + 1)})
    return len(sets[0] & sets[1]) / max(len(sets[0] | sets[1]), 1)


def loop(
    documents: pl.DataFrame, config: DedupConfig
) -> tuple[dict[str, Any], set[tuple[str, str]]]:
    """The rule of the design, one document after the other: doc_id -> (reason, kept), and pairs."""
    signed = sign_part(documents, config).with_columns(documents["text"])
    order = signed.sort(
        "sequence", "quality_score", "doc_id", descending=[False, True, False], nulls_last=True
    )
    texts: dict[Any, str] = {}
    urls: dict[Any, str] = {}
    kept: defaultdict[Any, list[dict[str, Any]]] = defaultdict(list)
    fates, pairs = {}, set()
    for d in order.iter_rows(named=True):
        scope = {"all": 0, "language": d["language"], "snapshot": d["sequence"]}[config.scope]
        text, url = (scope, d["text_hash"]), (scope, d["url"])
        buckets = [
            (scope, band, tuple(d["signature"][band * config.rows : (band + 1) * config.rows]))
            for band in range(config.bands if d["n_shingles"] else 0)
        ]
        met = {o["doc_id"]: o for key in buckets for o in kept[key][: config.bucket_cap]}
        like = {}
        if text in texts:
            fates[d["doc_id"]] = ("exact.text", texts[text])
        elif config.exact_url and d["url"] and url in urls:
            fates[d["doc_id"]] = ("exact.url", urls[url])
        else:
            like = {i: jaccard(d["text"], o["text"], config.ngram) for i, o in met.items()}
            like = {i: s for i, s in like.items() if s >= config.threshold}
        pairs |= {(d["doc_id"], other) for other in like}
        if like:
            leaks = [i for i in like if d["split"] == "train" and met[i]["split"] == "held_out"]
            best = max(leaks or like, key=lambda i: like[i])  # the earliest of equals, as met is
            fates[d["doc_id"]] = ("near_held_out.minhash" if leaks else "near.minhash", like[best])
        elif d["doc_id"] not in fates:
            fates[d["doc_id"]] = (None, None)
            texts[text], urls[url] = d["doc_id"], d["doc_id"]
            for key in buckets:
                kept[key].append(d)
    return fates, pairs


def fates_of(decision: DedupDecision) -> dict[str, Any]:
    rows = decision.decisions.iter_rows(named=True)
    return {
        r["doc_id"]: (
            r["reason"],
            json.loads(r["detail"])["kept"]
            if (r["reason"] or "").startswith("exact")
            else r["value"],
        )
        for r in rows
    }


WORDS = st.lists(st.sampled_from("abcde"), max_size=9)
DOCUMENT = st.fixed_dictionaries(
    {
        "text": st.tuples(WORDS, st.sampled_from(["", "a b c d e a", "c c b a d e b"])).map(
            lambda parts: f"{parts[1]} {' '.join(parts[0])}"
        ),
        "sequence": st.integers(0, 2),
        "url": st.sampled_from([None, "http://x/1", "http://x/2"]),
        "language": st.sampled_from(["en", "fr", None]),
        "quality_score": st.sampled_from([None, 0.25, 0.5]),
        "split": st.sampled_from(["train", "train", "held_out"]),
    }
)
CONFIG = st.builds(
    DedupConfig,
    scope=st.sampled_from(["all", "language", "snapshot"]),
    bucket_cap=st.sampled_from([1, 2, 64]),
    exact_url=st.booleans(),
    **{key: st.just(value) for key, value in SMALL.items()},
)


@settings(max_examples=80, deadline=None)
@given(st.lists(DOCUMENT, max_size=25), CONFIG, st.randoms(use_true_random=False))
def test_rounds_decide_what_the_loop_decides(documents, config, random):
    documents = [{**d, "doc_id": f"{i:02}"} for i, d in enumerate(documents)]
    random.shuffle(documents)
    given_documents = frame(documents)
    decision = dedup(given_documents, config)
    fates, pairs = loop(given_documents, config)
    assert fates_of(decision) == fates
    assert set(decision.pairs.select("doc_id", "other").iter_rows()) == pairs
    assert decision.decisions["doc_id"].to_list() == given_documents["doc_id"].to_list()
    assert decision.clusters["n"].sum() == sum(reason is not None for reason, _ in fates.values())


@pytest.mark.parametrize("seed", [*range(20), 743, 1185, 1609])
def test_rounds_decide_what_the_loop_decides_in_crowded_buckets(seed):
    # the last three seeds fail when a place that may become free is taken for occupied
    random = Random(seed)
    letters = "abcdefgh"[: random.choice([3, 5, 8])]
    texts = [" ".join(random.choices(letters, k=random.randint(3, 9))) for _ in range(60)]
    config = DedupConfig(
        threshold=random.choice([0.2, 0.3, 0.4]),
        bands=random.choice([2, 3, 6]),
        rows=1,
        ngram=random.choice([1, 2]),
        bucket_cap=random.choice([1, 2, 2, 3]),
    )
    documents = frame([page(f"{i:02}", text) for i, text in enumerate(texts)])
    decision = dedup(documents, config)
    fates, pairs = loop(documents, config)
    assert fates_of(decision) == fates
    assert set(decision.pairs.select("doc_id", "other").iter_rows()) == pairs


@settings(max_examples=40, deadline=None)
@given(st.lists(DOCUMENT, max_size=25), CONFIG)
def test_snapshot_by_snapshot_is_one_run_over_all(documents, config):
    documents = frame([{**d, "doc_id": f"{i:02}"} for i, d in enumerate(documents)])
    whole = dedup(documents, config)
    earlier, tables = None, []
    for sequence in range(3):
        new = documents.filter(pl.col("sequence") == sequence)
        signed = sign_part(new, config)
        decision = decide(signed, earlier, reader(documents), config)
        stays = signed.filter(decision.decisions["kept"])
        earlier = stays if earlier is None else pl.concat([earlier, stays])
        tables.append(decision)
    by_id = pl.concat([t.decisions for t in tables]).sort("doc_id")
    assert by_id.equals(whole.decisions.sort("doc_id"))
    pairs = pl.concat([t.pairs for t in tables]).sort("doc_id", "other")
    assert pairs.equals(whole.pairs.sort("doc_id", "other"))
    increments = pl.concat([t.clusters for t in tables]).group_by("doc_id").sum().sort("doc_id")
    assert increments.equals(whole.clusters)


BASE = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def page(doc_id: str, text: str = BASE, **more: Any) -> dict[str, Any]:
    return {"doc_id": doc_id, "text": text, "split": "train", **more}


def test_just_over_the_threshold_falls_and_just_under_it_stays():
    # 10 shingles; with one word more at the end 10 of 11 are shared, with three 10 of 13
    over, under = page("b", f"{BASE} x"), page("c", f"{BASE} y y y")
    config = DedupConfig(rows=1, bands=64)
    decision = dedup(frame([page("a"), over, under]), config)
    assert decision.decisions["kept"].to_list() == [True, False, True]
    row = decision.decisions.row(1, named=True)
    assert row["reason"] == "near.minhash"
    assert row["value"] == pytest.approx(10 / 11)
    assert row["threshold"] == 0.8
    assert json.loads(row["detail"]) == {"kept": "a", "kept_url": None, "band": 0}


def test_no_chains():
    # b is like a, c is like b but not like a: c stays, since b is gone
    a, b, c = BASE, f"{BASE} x x", f"{BASE} x x y y"
    decision = dedup(
        frame([page("a", a), page("b", b), page("c", c)]), DedupConfig(rows=1, bands=64)
    )
    assert jaccard(b, c, 5) > 0.8 > jaccard(a, c, 5)
    assert decision.decisions["kept"].to_list() == [True, False, True]


def test_quality_decides_before_the_identifier():
    pages = [page("a", quality_score=0.1), page("b", quality_score=0.9), page("c")]
    decision = dedup(frame(pages), DedupConfig())
    assert decision.decisions["kept"].to_list() == [False, True, False]
    assert decision.clusters.rows() == [("b", 2)]


def test_a_training_page_like_a_held_out_one_says_so():
    config = DedupConfig(rows=1, bands=64)
    pages = [
        page("a", split="held_out"),
        page("b", f"{BASE} x"),
        page("c", f"{BASE} y", split="held_out"),
    ]
    decision = dedup(frame(pages), config)
    assert decision.decisions["reason"].to_list() == [None, "near_held_out.minhash", "near.minhash"]


def test_a_copy_of_a_removed_page_names_the_kept_one():
    copies = [page(f"b{i}", f"{BASE} x") for i in range(50)]
    decision = dedup(frame([page("a"), *copies]), DedupConfig(rows=1, bands=64))
    assert decision.decisions["kept"].to_list() == [True] + [False] * 50
    assert {json.loads(d)["kept"] for d in decision.decisions["detail"].drop_nulls()} == {"a"}
    assert decision.stats["rounds"] <= 5


def test_same_url_other_text_is_no_duplicate_unless_asked():
    pages = frame([page("a", url="http://x/"), page("b", "quite another text", url="http://x/")])
    assert dedup(pages, DedupConfig()).decisions["kept"].to_list() == [True, True]
    decision = dedup(pages, DedupConfig(exact_url=True))
    assert decision.decisions["reason"].to_list() == [None, "exact.url"]


def test_a_full_bucket_is_counted():
    pages = frame([page(f"{i}", f"{' '.join(f'w{i}x{k}' for k in range(30))}") for i in range(5)])
    config = DedupConfig(bucket_cap=2, rows=1, bands=1)
    signed = sign_part(pages, config).with_columns(
        pl.Series("signature", np.zeros((5, 1), np.uint32), dtype=pl.Array(pl.UInt32, 1))
    )
    decision = decide(signed, None, reader(pages), config)
    assert decision.decisions["kept"].all()
    assert decision.stats["cap_hits"] == 2  # the fourth and the fifth met three and four


def test_memory_bound_changes_nothing():
    words = [f"w{i}" for i in range(60)]
    pages = frame([page(f"{i:02}", " ".join([*words, *["z"] * (i % 7)])) for i in range(40)])
    config = DedupConfig(bands=32, rows=1)
    signed = sign_part(pages, config)
    tables = []
    for memory in (1.0, 0.05):
        bounded = config.model_copy(update={"memory_gb": memory if memory == 1.0 else 2e-7})
        tables.append(decide(signed, None, reader(pages), bounded))
    assert tables[0].decisions.equals(tables[1].decisions)
    assert tables[0].pairs.equals(tables[1].pairs)
    assert tables[1].stats["texts_read"] >= tables[0].stats["texts_read"]


def test_an_identifier_that_occurs_twice_is_refused():
    with pytest.raises(ContractError, match="document a occurs 2 times"):
        dedup(frame([page("a"), page("a")]), DedupConfig())


def test_signatures_of_another_length_are_refused():
    pages = frame([page("a")])
    signed = sign_part(pages, DedupConfig(bands=7))
    with pytest.raises(ContractError, match="signatures have 56 values"):
        decide(signed, None, reader(pages), DedupConfig())


def test_a_text_that_is_not_there_is_named():
    pages = frame([page("a"), page("b", f"{BASE} x")])
    config = DedupConfig(rows=1, bands=64)
    with pytest.raises(ContractError, match="text of document a was not found"):
        decide(
            sign_part(pages, config), None, reader(pages.filter(pl.col("doc_id") != "a")), config
        )


def test_no_documents():
    decision = dedup(frame([]), DedupConfig())
    assert decision.decisions.height == decision.pairs.height == decision.clusters.height == 0


def cases(path: Path) -> pl.DataFrame:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return frame([{"doc_id": r["id"], "url": r["url"], "text": r["text"]} for r in rows])


@pytest.mark.shared
def test_short_texts_are_nobodys_near_duplicate(shared):
    decision = dedup(cases(shared / "cases/dedup/short.jsonl"), DedupConfig())
    assert decision.decisions["kept"].all()


@pytest.mark.shared
def test_texts_written_down_differently_are_one(shared):
    pages = cases(shared / "cases/dedup/same-after-normalising.jsonl")
    for seed in range(5):
        decision = dedup(pages.sample(fraction=1, shuffle=True, seed=seed), DedupConfig())
        kept = decision.decisions.filter("kept")["doc_id"]
        assert sorted(kept) == ["u1", "u5"]


@pytest.mark.shared
def test_a_hub_is_one_page_in_linear_time(shared):
    pages = cases(shared / "cases/dedup/hub.jsonl.gz")
    dedup(pages.head(100), DedupConfig())  # compiles
    seconds = []
    for part in (pages.head(1000), pages):
        times = []
        for _ in range(3):
            begin = time.process_time()
            decision = dedup(part, DedupConfig())
            times.append(time.process_time() - begin)
        seconds.append(min(times))
    assert sorted(decision.decisions.filter("kept")["doc_id"]) == ["h0000", "other"]
    assert seconds[1] <= 6 * seconds[0]
