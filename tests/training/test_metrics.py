from __future__ import annotations

import json
from pathlib import Path

import torch

from training.metrics import StepLog, read_lines


def test_lines_are_written_in_one_go_and_cut_back_on_resume(tmp_path: Path) -> None:
    log = StepLog(tmp_path, 0)
    for step in (1, 2, 3):
        log.add({"step": step}, {"loss": torch.tensor(4.0 - step), "skipped": torch.tensor(0.0)})
    assert not log.path.read_text()
    assert [one["loss"] for one in log.flush()] == [3.0, 2.0, 1.0]
    assert log.flush() == []
    with log.path.open("a") as file:
        file.write('{"step": 4, "lo')
    assert [one["step"] for one in read_lines(log.path)] == [1, 2, 3]
    again = StepLog(tmp_path, 2)
    assert again.cut == 1
    again.add({"step": 3}, {"loss": torch.tensor(float("nan")), "skipped": torch.tensor(1.0)})
    again.flush()
    lines = [json.loads(text) for text in again.path.read_text().splitlines()]
    assert [one["step"] for one in lines] == [1, 2, 3]
    assert lines[2]["loss"] == "nan", "JSON has no NaN"


def test_lines_hold_what_their_step_has_and_sources_of_the_batch_only(tmp_path: Path) -> None:
    log = StepLog(tmp_path, 0)
    nan = torch.tensor(float("nan"), dtype=torch.float64)
    log.add({"step": 1, "tokens": 10}, {"loss": torch.tensor(2.5), "loss/web": nan})
    log.add({"step": 2, "tokens": 20}, {"loss": torch.tensor(2.0), "param_norm": 3 * nan / nan})
    assert log.tokens() == [10, 20]
    log.flush([{"mfu": 0.4}, {"mfu": 0.5}])
    first, second = read_lines(log.path)
    assert {k: v for k, v in first.items() if k != "at"} == {
        "step": 1, "tokens": 10, "loss": 2.5, "mfu": 0.4
    }  # fmt: skip
    assert second["param_norm"] == "nan"
    assert (second["loss"], second["mfu"]) == (2.0, 0.5)


def test_lines_of_a_rewind_are_kept_aside(tmp_path: Path) -> None:
    log = StepLog(tmp_path, 0)
    for step in (1, 2, 3):
        log.add({"step": step}, {"loss": torch.tensor(float(step))})
    log.flush()
    log.add({"step": 4}, {"loss": torch.tensor(4.0)})
    log.rewind(1)
    assert log.flush() == []
    log.add({"step": 2}, {"loss": torch.tensor(2.5)})
    log.flush()
    log.rewind(1)
    assert [line["loss"] for line in read_lines(log.path)] == [1.0]
    kept = [tmp_path / f"metrics-before-rewind-{n}.jsonl" for n in (1, 2)]
    assert [[line["loss"] for line in read_lines(path)] for path in kept] == [[2.0, 3.0], [2.5]]
