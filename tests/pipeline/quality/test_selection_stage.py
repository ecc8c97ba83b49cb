"""The asset `selection` and the verb `classifier select`: fitted on datasets, applied by value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.cli import main
from pipeline.config import load_config
from pipeline.dataset import Dataset
from pipeline.errors import UsageError
from pipeline.inputs import file_input
from pipeline.mill import Mill, register_snapshot
from pipeline.quality.train import train_classifier
from pipeline.stages.curation import score_input
from pipeline.stages.selection import selection
from resources.mill import open_mill
from resources.storage import open_store
from tests.pipeline.quality.material import BAD, GOOD, SMALL, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, and three files of documents in two languages."""
    folder = tmp_path_factory.mktemp("selection")
    for seed in (1, 2):
        config = SMALL.model_copy(update={"seed": seed})
        (folder / f"model-{seed}.bin").write_bytes(train_classifier(labels(), config).model)
    for part in range(3):
        rows = []
        for k in range(40):
            words = (GOOD if k % 4 else BAD).format(f"{part} {k}").split()
            text = " ".join(words[k % 3 :] + BAD.split()[: k % 5])
            language = "de" if k % 5 == 0 else "en"
            rows.append(json.dumps({"id": f"{part}-{k}", "text": text, "language": language}))
        (folder / f"docs-{part}.jsonl").write_text("\n".join(rows) + "\n")
    return folder


def call(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def scored(folder: Path, out: Path, *more: object, model: int = 1) -> Dataset:
    files = sorted(folder.glob("docs-*.jsonl"))
    assert call("score", *files, "--model", folder / f"model-{model}.bin", "--out", out, *more) == 0
    return Dataset.open(open_store(str(out)))


@pytest.mark.slow
def test_fit_and_apply(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    everything = scored(folder, tmp_path / "all")
    assert everything.manifest.content.counts.kept == 120
    file = tmp_path / "selection.json"
    fit = ["classifier", "select", tmp_path / "all", "--out", file, "--keep", "0.25"]
    capsys.readouterr()
    assert call(*fit, "--set", "score.select.min_documents=20", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told["thresholds"]) == {"(pooled)", "de", "en"}
    chosen = scored(folder, tmp_path / "some", "--set", f"score.selection={file}")
    kept = chosen.load()
    fitted = json.loads(file.read_text())["languages"]
    for language, limit in fitted.items():
        scores = kept.filter(kept["language"] == language)["quality_score"]
        assert len(scores) == limit["kept"]
        assert scores.min() == pytest.approx(limit["threshold"])
    reasons = chosen.manifest.content.counts.reasons
    assert set(reasons) == {"quality.below"}
    # fitted on what the selection thinned out, it is the same selection
    again = tmp_path / "again.json"
    fit[2], fit[4] = tmp_path / "some", again
    assert call(*fit, "--set", "score.select.min_documents=20") == 0
    assert again.read_bytes() == file.read_bytes()
    other = scored(folder, tmp_path / "all-2", model=2)
    assert other.manifest.content.config["selection"] is None
    wrong = ["score", folder / "docs-0.jsonl", "--model", folder / "model-2.bin"]
    assert call(*wrong, "--out", tmp_path / "no", "--set", f"score.selection={file}") == 2
    assert "another classifier" in capsys.readouterr().err
    assert call("classifier", "select", tmp_path / "all", tmp_path / "all-2", "--out", again) == 2
    assert "different classifiers" in capsys.readouterr().err
    assert call("classifier", "select", folder / "docs-0.jsonl", "--out", again) == 2
    assert call(*fit[:-1], "1.5") == 2


def mill_of(root: Path, **score: Any) -> Mill:
    values = {"storage": {"root": str(root)}, "score": score, "engine": {"workers": 1}}
    return open_mill(load_config(overrides=values))


def test_the_asset(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    mill = mill_of(root, select={"keep": 0.5, "min_documents": 10})
    with pytest.raises(UsageError, match="no snapshot is scored yet"):
        selection(mill)
    model = folder / "model-1.bin"
    for name, part in (("S-1", 0), ("S-2", 1)):
        register_snapshot(mill.root, name)
        given = file_input([folder / f"docs-{part}.jsonl"])
        score_input(mill, given, mill.folder("scored_text", name), name, model, None)
    asked = mill_of(root, selection="asset")
    given = file_input([folder / "docs-2.jsonl"])
    with pytest.raises(UsageError, match="selection is not there"):
        score_input(asked, given, asked.folder("scored_text", "S-3"), "S-3", model, None)
    made = selection(mill)
    assert [ref.partition for ref in made.content.inputs] == ["S-1", "S-2"]
    assert made.content.counts.kept == 80
    stored = json.loads((root / "selection" / "selection.json").read_text())
    assert stored["languages"]["en"]["documents"] == 64
    assert selection(mill).hash == made.hash
    found = score_input(asked, given, asked.folder("scored_text", "S-3"), "S-3", model, None)
    assert found.content.config["selection"] == made.content.parts[0].checksum
    assert made.hash in [ref.hash for ref in found.content.inputs]
    assert 0 < found.content.counts.kept < 40
    one = mill_of(root, select={"keep": 0.5, "snapshots": ["S-2"]})
    assert selection(one).content.counts.kept == 40


def test_what_is_no_model_is_refused_before_work_starts(folder: Path, tmp_path: Path) -> None:
    documents = folder / "docs-0.jsonl"
    out = tmp_path / "out"
    assert call("score", documents, "--model", documents, "--out", out) == 1
    model = folder / "model-1.bin"
    for setting in ("score.min_grade=3", "score.max_safety=0.5"):
        assert call("score", documents, "--model", model, "--out", out, "--set", setting) == 2
    assert not out.exists()
