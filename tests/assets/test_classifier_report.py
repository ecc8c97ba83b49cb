"""What the pages of the references show: the classifier's plots, labels that were asked for."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.millwork import MillResource
from assets.references import quality_classifier, quality_labels
from tests.pipeline.quality.material import BAD, GOOD
from tests.resources.test_labeller import Endpoint, endpoint  # noqa: F401 (a fixture)

SMALL = {"bucket": 1000, "dim": 4, "leave_out": 2}


def made(root: Path, **sections: object) -> dict[str, Any]:
    """Metadata of both assets by name."""
    settings = {"storage": {"root": str(root)}, "engine": {"workers": 1}, **sections}
    resources = {"mill": MillResource(settings=json.dumps(settings))}
    done = dg.materialize([quality_labels, quality_classifier], resources=resources)
    assert done.success
    return {
        event.asset_key.to_user_string(): event.materialization.metadata
        for event in done.get_asset_materialization_events()
        if event.asset_key
    }


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    rows = []
    for k in range(120):
        text = (GOOD if k % 2 else BAD).format(k)
        kind = f"{'book' if k % 2 else 'spam'} {k % 4}"
        split = "dev" if k % 5 == 0 else "train"
        rows.append({"text": text, "label": k % 2, "reason": kind, "split": split, "lang": "en"})
    path = tmp_path / "labels.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_page_of_the_classifier(labels: Path, tmp_path: Path) -> None:
    shown = made(
        tmp_path / "root",
        references={"quality_labels": str(labels)},
        score={"classifier": SMALL},
    )["quality_classifier"]
    for name in ("precision_and_recall", "reliability_plot"):
        data = re.search(r"data:image/png;base64,([A-Za-z0-9+/=]+)\)$", shown[name].value)
        assert data, name
        assert base64.b64decode(data[1]).startswith(b"\x89PNG")
    assert shown["auc"].value > 0.9
    assert shown["auc_one_kind_left_out"].value > 0.9
    for name in (
        "rows", "quantised_copy", "curve", "confusion", "reliability_bins", "auc_by_length",
        "auc_by_label_language", "auc_of_shortcuts", "one_kind_left_out", "kinds_of_both_left_out",
    ):  # fmt: skip
        assert shown[name].value, name
    folder = tmp_path / "root" / "quality_classifier"
    assert (folder / "model.ftz").stat().st_size < (folder / "model.bin").stat().st_size


def test_labels_from_a_model_behind_an_endpoint(
    endpoint: Endpoint,  # noqa: F811
    tmp_path: Path,
) -> None:
    source = tmp_path / "texts.jsonl"
    source.write_text(
        "".join(json.dumps({"text": f"page {k} " + "good " * (k % 6)}) + "\n" for k in range(60))
    )
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("{text}")
    labeller = {
        "base_url": endpoint.url, "model": "m", "input": [str(source)], "prompt": str(prompt),
        "cache": str(tmp_path / "kept.sqlite"), "price_input": 0, "price_output": 0,
        "first_wait": 0.001, "attempts": 2, "concurrency": 1,
    }  # fmt: skip
    endpoint.faults = [{"say": "who knows"}] * 2
    given = {"labeller": labeller, "score": {"classifier": SMALL}}
    shown = made(tmp_path / "root", **given)["quality_labels"]
    assert shown["dropped"].value == 1
    assert [row.data["reason"] for row in shown["funnel"].records][2:] == ["labeller.unparsable"]
    asked = len(endpoint.requests)
    made(tmp_path / "root", **given)
    assert len(endpoint.requests) == asked
    stored = [p.read_text() for p in (tmp_path / "root").rglob("manifests/*.json")]
    assert not any(endpoint.url in text for text in stored)
