"""Where a demo may work: in nothing, in what it made before, in nobody else's folder."""

import json
from pathlib import Path

import pytest

from assets.demo.run import MARKER, SAMPLE, prepare, sample
from pipeline.errors import UsageError


def test_a_new_or_empty_folder_is_taken_and_marked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for root in (tmp_path / "a" / "new", tmp_path / "empty"):
        prepare(root, keep=False)
        assert [path.name for path in root.iterdir()] == [MARKER]


def test_an_earlier_demo_is_removed_or_kept_even_one_that_was_killed_at_once(
    tmp_path: Path,
) -> None:
    prepare(tmp_path / "store", keep=False)
    half = tmp_path / "store" / "sample" / "half.warc.gz"
    half.parent.mkdir()
    half.write_bytes(b"half")
    prepare(tmp_path / "store", keep=True)
    assert half.exists()
    prepare(tmp_path / "store", keep=False)
    assert not half.exists()


@pytest.mark.parametrize("keep", [False, True])
def test_a_folder_of_something_else_is_refused(tmp_path: Path, keep: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="is not empty and is no store of an earlier demo"):
        prepare(tmp_path, keep)
    with pytest.raises(UsageError, match="is a file"):
        prepare(tmp_path / "thesis.txt", keep)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_whole_sample_is_not_built_again(tmp_path: Path) -> None:
    counts = {"records": 7, "bytes": 1_500_000}
    found = {"snapshots": {"A": counts, "B": counts}, "code": {"records": 3}, "labels": 2}
    (tmp_path / "sample").mkdir()
    (tmp_path / SAMPLE).write_text(json.dumps(found))
    told = "14 records in 2 snapshots (3.0 MB of WARC), 3 files of code, 2 labels"
    assert sample(tmp_path) == told
    assert [path.name for path in (tmp_path / "sample").iterdir()] == ["sample.json"]
