"""Gates: what just passes, what just fails, what supports no verdict."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from pipeline.config.gates import Band, GatesConfig
from pipeline.driver import Receipt
from pipeline.figures import part_figures, total_figures
from pipeline.gates import conserved, host_removal, non_english, not_empty, yield_band
from pipeline.manifest import Counts, Entry
from pipeline.part_sums import HOST_FLOOR, count, count_hosts


def receipt(n: int = 10, kept: int = 6, **changes: Any) -> Receipt:
    entry = {"key": "k", "path": "p", "bytes": 1, "checksum": "sha256:0"}
    values: dict[str, Any] = {
        "key": "k",
        "entries": {
            "parts": [Entry(**entry, rows=kept)],
            "decisions": [Entry(**entry, rows=n)],
        },
        "rows_in": n,
        "counts": Counts(records_in=n, kept=kept, dropped=n - kept, reasons={"c4.x": n - kept}),
        "damaged": [],
        "hosts": {},
        "figures": {},
        "extra": {},
    }
    return Receipt(**{**values, **changes})


def test_conserved_counts_every_lost_record() -> None:
    whole = receipt()
    assert conserved([whole], whole.counts).verdict == "pass"
    more_in = receipt(rows_in=11)
    unwritten = receipt(entries={**whole.entries, "parts": []})
    undecided = receipt(entries={"parts": whole.entries["parts"], "decisions": []})
    for broken, lost in ((more_in, 1), (unwritten, 6), (undecided, 10)):
        gate = conserved([whole, broken], Counts.total([whole.counts, broken.counts]))
        assert (gate.verdict, gate.value, gate.blocking) == ("fail", float(lost), True)


@pytest.mark.parametrize(("kept", "verdict"), [(1, "pass"), (0, "fail")])
def test_not_empty(kept: int, verdict: str) -> None:
    assert not_empty([], receipt(kept=kept).counts).verdict == verdict


@pytest.mark.parametrize(
    ("n", "kept", "verdict"),
    [(100, 20, "pass"), (100, 19, "fail"), (100, 80, "pass"), (100, 81, "fail"),
     (99, 0, "not_enough_sample")],
)  # fmt: skip
def test_yield(n: int, kept: int, verdict: str) -> None:
    rule = yield_band(Band(low=0.2, high=0.8), 100)
    assert rule([], receipt(n, kept).counts).verdict == verdict


@pytest.mark.parametrize(
    ("wiped", "verdict"), [(1, "pass"), (2, "fail")], ids=["half of the hosts", "all of them"]
)
def test_hosts_are_added_up_over_parts(wiped: int, verdict: str) -> None:
    config = GatesConfig(host_documents=20, host_removal=0.9, hosts_wiped_out=0.5)
    kept = {"a.example": 5 * (wiped < 2), "b.example": 0}
    parts = [receipt(hosts={host: [10, k] for host, k in kept.items()}) for _ in range(2)]
    gate = host_removal(config)(parts, parts[0].counts)
    assert (gate.verdict, gate.sample) == (verdict, 2)
    assert "b.example" in (gate.detail or "")
    assert host_removal(config)(parts[:1], parts[0].counts).verdict == "not_enough_sample"


def test_a_thinly_spread_host_is_counted_in_every_part_if_it_is_sampled() -> None:
    hosts = [f"h{i}.example" for i in range(2000)]
    urls = [f"https://{host}/" for host in hosts] + ["https://often.example/"] * HOST_FLOOR
    decisions = pl.DataFrame({"url": urls, "kept": [True] * len(urls)})
    first, again = count_hosts(decisions), count_hosts(decisions)
    assert first == again
    assert first["often.example"] == [HOST_FLOOR, HOST_FLOOR]
    assert 10 <= len(first) - 1 <= 60  # one in 64


@pytest.mark.parametrize(("other", "verdict"), [(20, "pass"), (19, "fail")])
def test_non_english_is_reported_and_blocks_nothing(other: int, verdict: str) -> None:
    figures = {"language": {"en": [50, 100 - other], "de": [10, other]}}
    part = receipt(100, 60, figures=figures)
    gate = non_english(GatesConfig(min_sample=60))([part], part.counts)
    assert (gate.verdict, gate.blocking) == (verdict, False)
    few = non_english(GatesConfig(min_sample=61))([part], part.counts)
    assert few.verdict == "not_enough_sample"


def test_counts_of_a_decisions_table() -> None:
    table = pl.DataFrame({"kept": [True, False, False], "reason": [None, "c4.x", "c4.x"]})
    assert count(table) == Counts(records_in=3, kept=1, dropped=2, reasons={"c4.x": 2})


def test_figures_add_up_and_do_not_grow_with_what_pages_claim() -> None:
    licences = ["CC-BY-4.0", None, "https://claims.example/1", "https://claims.example/2"]
    frame = pl.DataFrame(
        {"text": ["abc", "ü", "", "d"], "language": ["en", "de", "en", "en"], "licence": licences,
         "quality_score": [0.0, 0.5, 1.0, None]},
    )  # fmt: skip
    total = total_figures([part_figures(frame), part_figures(frame.head(1))])
    assert (total["documents"], total["text_bytes"]) == (5, 9)
    assert total["language"] == {"de": [1, 2], "en": [4, 7]}
    assert total["licence"] == {"CC-BY-4.0": [2, 6], "none": [1, 2], "other": [2, 1]}
    assert sum(total["quality_histogram"]) == 4
