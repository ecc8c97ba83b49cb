"""Training: the same bytes each time, hosts held back, and data that nothing can be learnt from."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from assets.cli import main
from pipeline.config.extract import SHIPPED_MODEL, ExtractConfig
from pipeline.errors import GristmillError, UsageError
from pipeline.extractor import select
from pipeline.extractor.labelled import find_labelled
from pipeline.extractor.page import parse_page
from pipeline.extractor.train import FOLDS, Trained, fold_of, train
from pipeline.pages import extract_page
from tests.pipeline.warcs import response, write

SYLLABLES = ["ka", "lo", "mi", "ne", "ru", "sa", "te", "vo", "wi", "xu", "ya", "zo"]
HOSTS = [f"host{n}.example" for n in range(32)]


def sentence(rng: random.Random, words: int) -> str:
    return " ".join("".join(rng.choices(SYLLABLES, k=3)) for _ in range(words)) + "."


def made_up(host: str) -> tuple[dict[str, Any], str]:
    """A page with a menu, paragraphs and a footer, and its gold."""
    rng = random.Random(host)
    links = "".join(f"<li><a href=/{n}>{sentence(rng, 2)}</a></li>" for n in range(12))
    story = [sentence(rng, 30) for _ in range(8)]
    text = "".join(f"<p>{paragraph}</p>" for paragraph in story)
    html = (
        f"<html><body><nav><ul>{links}</ul></nav><main>{text}</main>"
        f"<footer><p>{sentence(rng, 8)}</p><p>{sentence(rng, 8)}</p></footer></body></html>"
    )
    gold = {"url": f"https://{host}/1", "text": "\n".join(story), "page_type": "article"}
    return {**gold, "source": host[-1], "language": "und"}, html


PAGES = [made_up(host) for host in HOSTS]


@pytest.fixture(scope="module")
def trained() -> Trained:
    return train(PAGES)


def test_the_same_pages_in_any_order_give_the_same_bytes(trained: Trained) -> None:
    again = train(PAGES[::-1])
    assert again.model == trained.model
    assert again.texts == trained.texts


def test_main_text_is_found_on_hosts_not_seen(trained: Trained) -> None:
    assert trained.scores["all"]["shingles"]["page_f1"] > 0.95
    assert trained.scores["page_type=article"]["shingles"]["pages"] == len(PAGES)
    assert trained.report()["pages"] == len(PAGES)
    assert 0 < trained.main_blocks < trained.blocks
    row, _ = PAGES[0]
    assert trained.texts[row["url"]].split() == row["text"].split()


def test_the_model_finds_it_again(trained: Trained) -> None:
    row, html = made_up("another.example")
    page = parse_page(html)
    keeps = select.kept_blocks(page, model=select.unpack(trained.model, "made up"))
    texts = page.block_texts()
    assert [texts[b] for b in keeps.nonzero()[0]] == row["text"].split("\n")


def test_a_configured_model_is_the_one_that_reads(tmp_path: Path, trained: Trained) -> None:
    path = tmp_path / "own.npz"
    path.write_bytes(trained.model)
    row, html = made_up("another.example")
    own = ExtractConfig(mode="best", model=str(path))
    read = extract_page(html, row["url"], own)
    assert read.text.split() == row["text"].split()
    assert read.extractor == "gristmill"
    with pytest.raises(UsageError, match=r"absent\.npz cannot be read"):
        extract_page(html, row["url"], own.model_copy(update={"model": "absent.npz"}))


def test_a_host_is_in_one_fold() -> None:
    assert fold_of("https://www.a.example/1") == fold_of("http://A.example:80/2?x")
    folds = {fold_of(f"https://host{n}.example/") for n in range(60)}
    assert folds == set(range(FOLDS))


def test_segments_are_enough(trained: Trained) -> None:
    def only_segments(row: dict[str, Any]) -> dict[str, Any]:
        lines = row["text"].split("\n")
        return {**row, "text": None, "with": lines, "without": ["Impressum"]}

    some = [(only_segments(row), html) for row, html in PAGES[:6]] + PAGES[6:]
    mixed = train(some).scores["all"]
    assert mixed["segments"]["pages"] == 6
    assert mixed["shingles"]["pages"] == len(PAGES) - 6


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ({"text": "nothing of this stands in it"}, "no block is main text"),
        ({"with": ["ka", "lo", "mi", "ne", "ru", "sa"], "text": None}, "every block is main text"),
    ],
)
def test_one_class_only_is_refused(gold: dict[str, Any], message: str) -> None:
    with pytest.raises(GristmillError, match=message) as caught:
        train([({**row, **gold}, html) for row, html in PAGES])
    assert caught.value.hint


def test_one_host_only_is_refused() -> None:
    row, html = PAGES[0]
    with pytest.raises(GristmillError, match="too few hosts"):
        train([({**row, "url": f"https://one.example/{n}"}, html) for n in range(5)])


def labelled_folder(folder: Path) -> Path:
    write(folder / "a.warc.gz", *(response(html, url=row["url"]) for row, html in PAGES))
    lines = [json.dumps(row) for row, _ in PAGES]
    (folder / "gold.jsonl").write_text("\n".join(lines))
    return folder


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained) -> None:
    (tmp_path / "labelled").mkdir()
    folder, out = labelled_folder(tmp_path / "labelled"), tmp_path / "made" / "m.npz"
    answers = tmp_path / "made" / "answers.jsonl"
    call = ["extractor", "train", str(folder), "--out", str(out), "--predictions", str(answers)]
    assert main(call) == 0
    printed = capsys.readouterr().out
    assert "page_type=article" in printed
    assert f"pages: {len(PAGES)}" in printed
    assert out.read_bytes() == trained.model
    rows = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
    assert {row["url"]: row["text"] for row in rows} == trained.texts
    assert main([*call, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model_sha256"] == hashlib.sha256(trained.model).hexdigest()
    assert report["scores"] == trained.scores
    assert report["gold_rows"] == len(PAGES)
    assert report["out"] == str(out)


def test_the_verb_refuses_before_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "m.npz"
    assert main(["extractor", "train", str(tmp_path / "absent"), "--out", str(out)]) == 2
    assert "hint:" in capsys.readouterr().err
    assert not out.exists()


def test_parts_are_keyed_on_what_the_model_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: Trained
) -> None:
    warc = write(tmp_path / "a.warc", response(PAGES[0][1], url=PAGES[0][0]["url"]))
    model = tmp_path / "own.npz"

    def extract(name: str) -> int:
        call = ["extract", str(warc), "--snapshot", "s", "--out", str(tmp_path / name), "--json"]
        return main([*call, "--set", "extract.mode=best", "--set", f"extract.model={model}"])

    assert extract("absent") == 2
    assert "extract.model" in capsys.readouterr().err
    model.write_bytes(b"no model")
    assert extract("broken") == 1
    assert "no extractor model" in capsys.readouterr().err
    assert not (tmp_path / "absent").exists()
    model.write_bytes(trained.model)
    assert extract("out") == 0
    assert json.loads(capsys.readouterr().out)["kept"] == 1
    pointer = (tmp_path / "out" / "current").read_text().strip()
    manifest = json.loads((tmp_path / "out" / "manifests" / f"{pointer}.json").read_text())
    digest = hashlib.sha256(trained.model).hexdigest()
    assert manifest["content"]["config"]["model"] == [["own.npz", f"sha256:{digest}"]]


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.long
def test_the_shipped_model_is_reproduced_and_good(shared: Path) -> None:
    labelled = find_labelled([shared / "data" / "extraction"])
    again = train(labelled.pages(4 << 20))
    scores = {name: both.get("shingles", {}) for name, both in again.scores.items()}
    assert scores["all"]["f1"] >= 0.855
    assert scores["all"]["page_f1"] >= 0.835
    assert scores["page_type=forum"]["page_f1"] >= 0.71
    assert scores["page_type=article"]["page_f1"] >= 0.93
    assert scores["source=aeb"]["page_f1"] >= 0.93
    assert again.model == SHIPPED_MODEL.read_bytes()
