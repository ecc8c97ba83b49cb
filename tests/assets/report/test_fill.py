"""The report filled from a store that the stages themselves made of a few pages."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assets.demo.pages import Page, bad_pages, contact_pages, own_pages
from assets.demo.sample import reworded
from assets.demo.templates import wrap
from assets.demo.warcs import Capture, WarcFile
from assets.report.data import ReportData
from assets.report.fill import collect, early_sentence, metrics
from assets.report.page import SECTIONS, render

# files on their way into the store lie in folders that the garbage collector takes
pytestmark = pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning")

SNAPSHOT = "CRAWL-TEST-01"
WHEN = datetime(2026, 3, 2, tzinfo=UTC)


def pages() -> list[Page]:
    rng = random.Random(1)
    own = own_pages()
    english = [page for page in own if page.language == "en"]
    near = [
        replace(page, host="copy.example", body=reworded(page.body, 60, rng)) for page in english
    ]
    return [*own, *near, *contact_pages(rng), *bad_pages(rng)[:60]]


def write_snapshot(folder: Path) -> None:
    file = WarcFile("test-00000.warc.gz", SNAPSHOT)
    file.start(WHEN)
    for page in pages():
        body = wrap(page).encode(page.charset, errors="xmlcharrefreplace")
        file.add(Capture(page.url, WHEN, body, content_type=f"text/html; charset={page.charset}"))
    target = folder / SNAPSHOT
    target.mkdir(parents=True)
    (target / file.name).write_bytes(file.data)
    listing = f"{SNAPSHOT}/{file.name}\n".encode()
    (target / "warc.paths.gz").write_bytes(gzip.compress(listing, mtime=0))


def write_labels(path: Path) -> None:
    good = [page.body for page in own_pages() if page.language == "en"]
    bad = [page.body for page in bad_pages(random.Random(2))[:40]]
    rows = [{"text": text, "label": 1} for text in good * 8]
    rows += [{"text": text, "label": 0} for text in bad]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_spike(run: Path) -> None:
    place = {"shard": "of-no-store", "document": 3, "first_token": 900, "tokens": 256}
    report = {
        "step": 9, "action": "skipped", "reason": "loss not finite", "loss": "nan",
        "grad_norm": "nan", "median": 7.5, "limit": 9.0, "suspects": [64],
        "sequences": [{"index": 64, "loss": "nan", "source": "web", "documents": [place]}],
        "duplicates": {}, "longest_repeat": None, "new_tokens": {"number": 2, "ids": []},
    }  # fmt: skip
    (run / "spikes").mkdir()
    (run / "spikes" / "step-9.json").write_text(json.dumps(report))
    early = {"verdict": "watch", "steps": 20, "reasons": ["a skip"], "checks": [{"verdict": None}]}
    (run / "early_report.json").write_text(json.dumps(early))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    from pipeline.config import load_config
    from pipeline.stages import corpus, crawl, curation, references, tokens
    from resources.engine import open_engine
    from resources.mill import open_mill

    folder = tmp_path_factory.mktemp("report")
    write_snapshot(folder / "snapshots")
    write_labels(folder / "labels.jsonl")
    run = folder / "run"
    run.mkdir()
    lines = [{"step": n, "loss": 8 - n / 10} for n in range(1, 20)]
    lines.append(
        {"step": 20, "loss": 6, "held_out_bits_per_byte": 2.5, "unigram_bits_per_byte": 2.75}
    )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "metrics.jsonl").write_text(text + '{"step": 21, "lo')
    write_spike(run)
    config = load_config(
        preset="demo",
        overrides={
            "storage": {"root": str(folder / "store")},
            "snapshots": {"location": str(folder / "snapshots")},
            "references": {"quality_labels": str(folder / "labels.jsonl")},
            "tokenizer": {"vocab_size": 600},
            "engine": {"workers": 1},
        },
    )
    engine = open_engine(config.engine)
    try:
        mill = open_mill(config, engine=engine)
        references.quality_labels(mill)
        references.quality_classifier(mill)
        for stage in (
            crawl.list_files, crawl.extract_text, curation.filter_text, curation.score_text,
            corpus.dedup_corpus, curation.scrub_text,
        ):  # fmt: skip
            stage(mill, SNAPSHOT)
        tokens.tokenizer_sample(mill)
        tokens.tokenizer(mill)
        tokens.token_shards(mill, SNAPSHOT)
        return collect(
            mill,
            title="A test",
            lead="Few pages.",
            run_folder=run,
            writing=("The mill", " stands by the river."),
            times=[("all", 3.0)],
            commands=[("Open the web UI", "gristmill up")],
        )
    finally:
        engine.close()


@pytest.mark.slow
def test_every_section_is_filled(filled: ReportData) -> None:
    html = render(filled)
    for name, title, _ in SECTIONS:
        assert f'<section id="{name}"' in html, title
    assert "Step 9 was skipped: loss not finite" in html
    assert "of-no-store, document 3" in html
    assert "calls the first 20 steps worth a look (checks made: 0), because of: a skip." in html


@pytest.mark.slow
def test_funnel_conserves_records(filled: ReportData) -> None:
    assert [stage.name for stage in filled.funnel] == [
        "extracted_text", "filtered_text", "scored_text", "deduped_corpus", "scrubbed_corpus",
        "token_shards",
    ]  # fmt: skip
    for stage in filled.funnel:
        assert stage.records_in == stage.kept + sum(stage.reasons.values())


@pytest.mark.slow
def test_examples_are_scrubbed_and_short(filled: ReportData) -> None:
    texts = [example.text for example in (*filled.kept, *filled.dropped)]
    assert texts
    assert all(len(text) <= 200 for text in texts)
    assert "@example.com" not in render(filled)
    assert all(example.reason for example in filled.dropped)


@pytest.mark.slow
def test_near_duplicates_have_both_texts(filled: ReportData) -> None:
    assert filled.pairs
    for pair in filled.pairs:
        assert pair.kept_text != pair.dropped_text
        assert 0.8 <= pair.similarity <= 1


@pytest.mark.slow
def test_token_leads_to_a_licensed_page_of_the_crawl(filled: ReportData) -> None:
    token = filled.token
    assert token is not None
    assert token.url.startswith("https://en.millpond.example/")
    assert token.licence is not None
    assert token.licence.startswith("CC")
    assert token.warc_file == "test-00000.warc.gz"
    assert token.token.strip() in token.context


@pytest.mark.slow
def test_curves_come_from_the_run(filled: ReportData) -> None:
    assert len(filled.losses) == 20
    assert filled.held_out == [(20, 2.5)]
    assert filled.unigram_bits_per_byte == 2.75


def test_no_run_no_curve(tmp_path: Path) -> None:
    assert metrics(None) == []
    assert metrics(tmp_path) == []


@pytest.mark.parametrize(
    ("verdict", "reasons", "wanted"),
    [
        (None, [], "The early-run report has too few steps for a verdict: 20."),
        ("healthy", [], "The early-run report calls the first 20 steps healthy (checks made: 1)."),
        ("watch", ["a", "b"], "The early-run report calls the first 20 steps worth a look "
                              "(checks made: 1), because of: a; b."),
    ],
)  # fmt: skip
def test_the_early_report_is_told_in_one_sentence(
    tmp_path: Path, verdict: str | None, reasons: list[str], wanted: str
) -> None:
    assert early_sentence(tmp_path) == ""
    checks = [{"verdict": verdict}, {"verdict": None}]
    found = {"verdict": verdict, "steps": 20, "reasons": reasons, "checks": checks}
    (tmp_path / "early_report.json").write_text(json.dumps(found))
    assert early_sentence(tmp_path) == wanted
