from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.errors import TrainingError
from training.watching.loglines import TAIL, cut_back, first_lines, last_line, some_lines, step_of


def write(path: Path, steps: int, *refused: int) -> Path:
    lines = [{"step": s, "loss": 1.5, "skipped": float(s in refused)} for s in range(1, steps + 1)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def steps(found: list[dict[str, int]]) -> list[int]:
    return [line["step"] for line in found]


def test_cutting_back_leaves_what_came_before(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", 10)
    before = path.read_text().splitlines(keepends=True)
    assert cut_back(path, 10) == 0
    assert cut_back(path, 7) == 3
    assert path.read_text() == "".join(before[:7])
    path.write_text(path.read_text() + '{"step": 8, "lo')
    assert cut_back(path, 9) == 0, "half a line does not count"
    assert path.read_text() == "".join(before[:7])
    path.write_text("".join(before[:3]) + "damage\n" + before[4])
    with pytest.raises(TrainingError, match=r"m\.jsonl is damaged: line 4 is none of a step"):
        cut_back(path, 4)
    assert cut_back(path, 3) == 0, "what was damaged is done again"
    assert path.read_text() == "".join(before[:3])
    assert cut_back(tmp_path / "new" / "m.jsonl", 5) == 0
    assert (tmp_path / "new" / "m.jsonl").read_text() == ""


def test_the_last_line_is_found_from_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", 5000)
    assert path.stat().st_size > 2 * TAIL
    assert last_line(path)["step"] == 5000
    path.write_text(path.read_text() + '{"step": 5001')
    assert last_line(path)["step"] == 5000
    assert last_line(write(tmp_path / "one.jsonl", 1))["step"] == 1
    assert last_line(write(tmp_path / "none.jsonl", 0)) == {}
    assert last_line(tmp_path / "absent.jsonl") == {}


def test_few_lines_stand_for_many_but_no_refused_step_is_lost(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", 1000, 77, 500)
    found = steps(some_lines(path, 10))
    assert {1, 77, 500, 1000} <= set(found)
    assert len(found) <= 14
    assert {100, 200, 300, 900} <= set(found), "where numbers of every tenth step are"
    assert steps(some_lines(path, 1000)) == list(range(1, 1001))
    assert steps(some_lines(path, 5000)) == list(range(1, 1001))
    assert some_lines(tmp_path / "absent.jsonl", 10) == []


def test_the_first_steps_are_read_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "m.jsonl", 50)
    assert steps(first_lines(path, 20)) == list(range(1, 21))
    assert steps(first_lines(path, 90)) == list(range(1, 51))


def test_the_step_stands_first_but_need_not() -> None:
    assert step_of(b'{"step": 12, "loss": 1.0}\n') == 12
    assert step_of(b'{"loss": 1.0, "step": 12}\n') == 12
    assert step_of(b'{"step": 12, "lo\n') is None
    assert step_of(b"nothing\n") is None
