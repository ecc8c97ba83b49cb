from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from training.errors import TrainingError
from training.spikes.ledger import LEDGER, Ledger, open_ledger, read_ledger

SKIP = {
    "kind": "skip",
    "step": 60,
    "from_sample": 236,
    "to_sample": 240,
    "rows": [["web", 3]],
    "config_hash": "c",
}


def rewind(**keys: Any) -> dict[str, Any]:
    return {
        "kind": "rewind",
        "step": 70,
        "to_step": 50,
        "from_sample": 200,
        "to_sample": 300,
    } | keys


def test_an_event_is_on_the_disk_when_it_is_entered_and_never_twice(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    assert ledger.enter(SKIP)
    assert read_ledger(tmp_path).events == [{"rewinds": 0} | SKIP]
    assert not ledger.enter(SKIP | {"loss": 9.0}), "the same step, done again after a crash"
    assert ledger.enter(rewind())
    assert ledger.enter(SKIP), "after a rewind it is another history"
    assert [event["rewinds"] for event in read_ledger(tmp_path).of("skip")] == [0, 1]


def test_a_half_written_last_line_does_not_count(tmp_path: Path) -> None:
    open_ledger(tmp_path).enter(SKIP)
    path = tmp_path / LEDGER
    path.write_bytes(path.read_bytes() + b'{"kind": "rew')
    assert len(read_ledger(tmp_path).events) == 1
    ledger = open_ledger(tmp_path)
    ledger.enter(rewind())
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds == ["skip", "rewind"]


def test_other_ranks_hold_the_same_and_write_nothing(tmp_path: Path) -> None:
    ledger = Ledger()
    ledger.enter(SKIP)
    assert len(ledger.events) == 1
    assert not (tmp_path / LEDGER).exists()


def test_what_is_left_out_and_which_checkpoints_were_taken_back() -> None:
    ledger = Ledger()
    plain = ledger.checksum()
    ledger.enter(rewind())
    ledger.enter(rewind(step=120, to_step=100, from_sample=500, to_sample=600))
    ledger.enter({"kind": "leave_out", "step": 0, "from_sample": 0, "to_sample": 10})
    assert ledger.left_out == [(200, 300), (500, 600), (0, 10)]
    assert ledger.checksum() != plain
    assert not ledger.superseded(50, 0), "before both"
    assert ledger.superseded(60, 0), "of the first history"
    assert not ledger.superseded(100, 1)
    assert ledger.superseded(110, 1), "of the second"
    assert not ledger.superseded(110, 2)


def test_a_quarantine_is_open_until_its_samples_are_left_out() -> None:
    ledger = Ledger()
    event = SKIP | {"kind": "quarantine"}
    found = []
    for more in ({"stops": False}, {"stops": True, "step": 61}, {"kind": "leave_out"}):
        ledger.enter(event | more)
        found.append(ledger.open_quarantine is None)
    assert found == [True, False, True], "the gate keeps out what does not stop"


@pytest.mark.parametrize(
    "line",
    ["garbage", "[1]", "\xff", "{}", '{"kind": "other"}', '{"kind": "rewind", "step": 3}',
     json.dumps(SKIP), json.dumps(SKIP | {"rewinds": 0, "rows": None}),
     json.dumps(rewind(rewinds=0, to_step="50"))],
)  # fmt: skip
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: str) -> None:
    good = json.dumps(SKIP | {"rewinds": 0})
    (tmp_path / LEDGER).write_bytes(f"{good}\n{line}\n".encode("latin-1"))
    with pytest.raises(TrainingError, match=r"ledger\.jsonl is damaged: line 2 is no entry"):
        open_ledger(tmp_path)
