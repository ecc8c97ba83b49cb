"""Spike reports joined with a store that the stages made: named by URL, scrubbed, escaped."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets.model_display import spike_metadata
from assets.report.data import ReportData
from assets.report.page import render
from assets.spikes import SEQUENCES, page, rows, signs, spikes_of
from pipeline.config import merge, validate
from pipeline.excerpts import clean
from pipeline.mill import Mill
from resources.mill import open_mill
from tests import miniature
from tests.miniature_input import SOURCE, sentences
from training.spikes.facts import report_files

EVIL = "https://evil.example/<script>alert(1)</script>?mail=jo.doe@example.org"


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Mill:
    given, root = (tmp_path_factory.mktemp(name) for name in ("input", "root"))
    (given / "sources").mkdir()
    texts = ["\n".join(sentences(f"book {n}", 12)) for n in range(6)]
    texts[2] = f"<b>Write to jo.doe@example.org</b> {texts[2]}"
    records = [{"id": f"book-{n}", "text": text} for n, text in enumerate(texts)]
    records[2]["url"] = EVIL
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (given / "sources" / f"{SOURCE}.jsonl").write_text(lines)
    config = miniature.config(str(root), given).model_dump()
    mill = open_mill(validate(merge(config, {"score": {"held_out": 0.0}})))
    steps = [f"source_texts/{SOURCE}", "tokenizer_sample", "tokenizer", f"token_shards/{SOURCE}"]
    miniature.perform(mill, steps)
    return mill


def shard(mill: Mill) -> str:
    parts = mill.find("token_shards", SOURCE)
    assert parts is not None
    return next(
        e.path.removesuffix(".docs.parquet")
        for e in parts.content.parts
        if e.path.endswith(".docs.parquet")
    )


def report(name: str, step: int = 70, **changes: Any) -> dict[str, Any]:
    """A report as training writes it: eight sequences, the highest loss first."""
    sequences = [
        {
            "index": 552 + n,
            "loss": 11.5 - n,
            "source": SOURCE,
            "documents": [
                {"shard": name, "document": (2 + n) % 6, "first_token": 100 * n, "tokens": 200},
                {"shard": name, "document": (3 + n) % 6, "first_token": 900, "tokens": 56},
            ],
        }
        for n in range(8)
    ]
    return {
        "step": step, "action": "skipped", "loss": 7.3, "grad_norm": 5.1, "median": 0.7,
        "limit": 2.2, "reason": "gradient norm 5.1 above 2.2", "suspects": [552],
        "sequences": sequences, "duplicates": {"sequences": [], "documents": [[{}, {}]]},
        "longest_repeat": {"tokens": 256, "period": 1, "sequence": 553},
        "new_tokens": {"number": 1, "ids": []},
        "batch_entropy": 5.0,
    } | changes  # fmt: skip


def write(out: Path, *reports: dict[str, Any]) -> Path:
    (out / "spikes").mkdir(parents=True)
    for one in reports:
        (out / "spikes" / f"step-{one['step']}.json").write_text(json.dumps(one))
    return out


def test_the_document_of_the_highest_loss_is_named_by_its_url(mill: Mill, tmp_path: Path) -> None:
    name = shard(mill)
    out = write(tmp_path, report(name, 101), report(name, 70, loss="nan"))
    first, second = spikes_of(mill, out)
    assert (first.step, second.step) == (70, 101)
    assert first.name == "step-70"
    assert first.loss == "nan"
    assert len(first.culprits) == 2 * SEQUENCES, "two documents of each of the sequences shown"
    top, below = first.culprits[:2]
    assert (top.suspect, top.loss, top.source) == (True, 11.5, SOURCE)
    assert top.url.startswith("https://evil.example/‹script›")
    assert "jo.doe" not in top.url
    assert below.url == "book-3", "a record without a URL by its id"
    assert "jo.doe" not in top.excerpt
    assert top.excerpt.startswith("‹b›Write to")
    assert len(top.excerpt) <= 200
    assert [c.suspect for c in first.culprits] == [True] * 4 + [False] * 4, "553 repeats a token"
    (row, _) = rows([first, second])
    assert row["highest loss"] == top.url
    assert row["signs"].startswith("256 tokens on end repeat one token; 1 kinds of token")


def test_nothing_of_a_page_is_shown_where_excerpts_are_off(mill: Mill, tmp_path: Path) -> None:
    closed = replace(
        mill, config=validate(merge(mill.config.model_dump(), {"display": {"excerpts": False}}))
    )
    (spike,) = spikes_of(closed, write(tmp_path, report(shard(mill))))
    assert spike.culprits[0].excerpt == ""
    assert spike.culprits[0].url.startswith("https://evil.example")


def test_shards_that_no_store_has_are_named_by_their_place(mill: Mill, tmp_path: Path) -> None:
    (spike,) = spikes_of(mill, write(tmp_path, report("elsewhere-0")))
    assert spike.culprits[0].url == "elsewhere-0, document 2"
    assert spike.culprits[0].doc_id == ""


def test_pages_show_strangers_text_escaped(mill: Mill, tmp_path: Path) -> None:
    (spike,) = spikes_of(mill, write(tmp_path, report(shard(mill))))
    text = page(spike)
    assert text.startswith("# Step 70 was skipped: gradient norm 5.1 above 2.2\n")
    assert "<script>" not in text
    assert "| 11.5 | yes | `https://evil.example/" in text
    html = render(ReportData("t", "l", spikes=[spike]))
    assert "What hurt the model" in html
    assert "<script>" not in html
    assert "‹script›" in html


def test_strangers_text_is_no_link_and_no_image_and_short(mill: Mill, tmp_path: Path) -> None:
    (spike,) = spikes_of(mill, write(tmp_path, report(shard(mill))))
    evil = clean("![x](https://evil.example/p.png)\n| [y](javascript:1) `` <b>" + "z" * 10_000)
    hurt = replace(spike.culprits[0], url=evil, source=evil, language=evil, excerpt=evil)
    text = page(replace(spike, culprits=[hurt]))
    assert max(map(len, text.splitlines())) < 1000
    outside = re.sub(r"`[^`\n]*`", "", text)
    assert "evil" not in outside
    assert text.count("`") == 2 * 5, "URL, source, language, place, excerpt"
    (row,) = [line for line in text.splitlines() if "evil" in line and line.startswith("| 11.5")]
    assert row.count("|") == 8


def test_the_asset_shows_the_reports_with_every_document(mill: Mill, tmp_path: Path) -> None:
    assert spike_metadata(mill, tmp_path) == {}
    found = write(tmp_path, report(shard(mill)), report(shard(mill), 71, reason="loss 9 above 2"))
    shown = spike_metadata(mill, found)
    assert [row.data["step"] for row in shown["spikes"].records] == [70, 71]
    text = str(shown["spike_reports"].value)
    assert text.count("\n| 11.5 | yes | `https://evil.example/") == 2
    assert text.count("\n| ") == 2 * (2 + 2 * SEQUENCES), "heads, rules and documents"
    assert "the median gradient norm of the steps before it was 0.7, and 2.2 the most" in text
    assert "the median loss of the steps before it was 0.7" in text


def test_signs_are_told_where_there_are_any() -> None:
    quiet: dict[str, Any] = {
        "longest_repeat": None,
        "new_tokens": {"number": 0},
        "duplicates": {"sequences": []},
    }
    assert signs(quiet) == []
    assert signs(quiet | {"longest_repeat": {"tokens": 63, "period": 2}}) == []
    (sign,) = signs(quiet | {"longest_repeat": {"tokens": 64, "period": 2}})
    assert sign == "64 tokens on end repeat the same 2 tokens"
    (sign,) = signs(quiet | {"duplicates": {"sequences": [[1, 2], [3, 4, 5]]}})
    assert sign == "5 sequences are there more than once"


def test_reports_come_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for name in ("step-100", "step-20-after-rewind-1", "step-20"):
        write(tmp_path / name, {"step": 1})
        (tmp_path / "spikes").mkdir(exist_ok=True)
        (tmp_path / "spikes" / f"{name}.json").touch()
    assert [p.stem for p in report_files(tmp_path)] == [
        "step-20", "step-20-after-rewind-1", "step-100",
    ]  # fmt: skip
    assert report_files(tmp_path / "nowhere") == []
