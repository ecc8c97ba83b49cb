"""Which tasks a folder holds, and how the scores of the harness are read."""

from pathlib import Path

import pytest

from pipeline.errors import UsageError
from resources import harness
from resources.harness import check_installed, find_tasks, score_rows


def test_tasks_and_groups_are_found_by_name_whatever_their_tags(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("task: one\nprocess_docs: !function utils.docs\n")
    (tmp_path / "all.yml").write_text("group: all\ntask: [one, two]\n")
    (tmp_path / "_part.yaml").write_text("dataset_path: json\n")
    tasks = find_tasks(tmp_path)
    assert tasks.chosen([]) == ["all", "one"]
    assert tasks.chosen(["one"]) == ["one"]
    with pytest.raises(UsageError, match=r"no task 'two' is defined in .*") as caught:
        tasks.chosen(["two"])
    assert caught.value.hint == "there: all, one"


def test_their_checksum_follows_code_and_data(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("task: one\n")
    before = find_tasks(tmp_path).checksum
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__/utils.pyc").write_text("")
    assert find_tasks(tmp_path).checksum == before
    (tmp_path / "data.jsonl").write_text("{}\n")
    assert find_tasks(tmp_path).checksum != before


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        find_tasks(tmp_path / "none")
    with pytest.raises(UsageError, match=r"no file in .* defines a task"):
        find_tasks(tmp_path)
    (tmp_path / "a.yaml").write_text("task: [unclosed")
    with pytest.raises(UsageError, match=r"a\.yaml is no YAML"):
        find_tasks(tmp_path)
    (tmp_path / "a.yaml").write_text("task: one\n")
    (tmp_path / "b.yaml").write_text("task: one\n")
    with pytest.raises(UsageError, match="both define 'one'"):
        find_tasks(tmp_path)


def test_a_missing_harness_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="lm-eval harness, which is not installed") as caught:
        check_installed()
    assert "[eval]" in str(caught.value.hint)


def test_scores_are_one_row_a_metric() -> None:
    found = {
        "results": {
            "mc": {"alias": "mc", "acc,none": 0.25, "acc_stderr,none": 0.1, "acc,strict": 0.5},
            "bpb": {"bits_per_byte,none": 2.0, "bits_per_byte_stderr,none": "N/A"},
        },
        "n-samples": {"mc": {"original": 9, "effective": 8}},
    }
    assert score_rows(found) == [
        {"task": "mc", "metric": "acc", "value": 0.25, "stderr": 0.1, "examples": 8},
        {"task": "mc", "metric": "acc,strict", "value": 0.5, "stderr": None, "examples": 8},
        {"task": "bpb", "metric": "bits_per_byte", "value": 2.0, "stderr": None, "examples": None},
    ]
