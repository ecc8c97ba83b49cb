"""The ledger of a run: which steps were refused, where it was taken back, what it leaves out.

`<out>/ledger.jsonl`, one JSON object a line, only ever appended to and synced. No torch here.

    skip         a step was refused; the rows whose loss stood out are named
    rewind       the run goes on from `to_step`; samples [from_sample, to_sample) are left out
    leave_out    samples are left out from here on, without going back
    quarantine   the same sequences were refused again: the run stops until told to leave them out
    accept       the run goes on with another tokenizer, other data or settings, as told

Every decision is in the ledger before it is carried out, so that a process killed in between goes
on as if it had not been. A step that is done again after a crash is not entered a second time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training.errors import TrainingError
from training.saving.files import sync_folder

LEDGER = "ledger.jsonl"
Event = dict[str, Any]
PLACE = ("step", "rewinds", "from_sample", "to_sample")
NUMBERS = {
    "skip": PLACE,
    "rewind": (*PLACE, "to_step"),
    "leave_out": PLACE,
    "quarantine": PLACE,
    "accept": ("step", "rewinds"),
}
"""Kind of event: whole numbers it has."""
SAME = ("kind", "step", "from_sample", "to_sample", "rewinds", "config_hash")
"""Keys in which two entries of the same happening agree."""


class Ledger:
    """Events in the order they were entered."""

    def __init__(self, events: Iterable[Event] = (), path: Path | None = None) -> None:
        """`path`: where new events are written; None on all ranks but the first."""
        self.events = list(events)
        self.path = path

    def enter(self, event: Event) -> bool:
        """Append an event, on the disk before this returns; false where it is there already."""
        assert event["kind"] in NUMBERS
        event = {"rewinds": len(self.rewinds)} | event
        if any(all(old.get(k) == event.get(k) for k in SAME) for old in self.events):
            return False
        self.events.append(event)
        if self.path is not None:
            append_line(self.path, json.dumps(event))
        return True

    def of(self, kind: str) -> list[Event]:
        """The events of one kind."""
        return [event for event in self.events if event["kind"] == kind]

    @property
    def rewinds(self) -> list[Event]:
        """How often and where the run was taken back."""
        return self.of("rewind")

    @property
    def left_out(self) -> list[tuple[int, int]]:
        """Ranges [from, to) of sample indices that no step takes any more."""
        events = [*self.rewinds, *self.of("leave_out")]
        return [(event["from_sample"], event["to_sample"]) for event in events]

    @property
    def open_quarantine(self) -> Event | None:
        """The quarantine that stops the run, unless its samples are left out by now."""
        for event in self.of("quarantine"):
            inside = (event["from_sample"], event["to_sample"])
            if event["stops"] and not any(
                a <= inside[0] and inside[1] <= b for a, b in self.left_out
            ):
                return event
        return None

    def checksum(self) -> str:
        """SHA-256 over rewinds and what is left out: equal ledgers, equal courses."""
        text = json.dumps([[e["to_step"] for e in self.rewinds], sorted(self.left_out)])
        return hashlib.sha256(text.encode()).hexdigest()

    def superseded(self, step: int, rewinds: int) -> bool:
        """Whether a checkpoint of `step`, saved after so many rewinds, was taken back since."""
        return any(step > event["to_step"] for event in self.rewinds[rewinds:])


def read_ledger(out: Path) -> Ledger:
    """The ledger of a run folder; a half-written last line does not count.

    TrainingError where another line is none of ours: without it the run would take other samples.
    """
    path = out / LEDGER
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not is_event(event):
            message = f"{path} is damaged: line {number} is no entry of a ledger"
            hint = "put the file back as it was (the bucket may have it), or start a new run"
            raise TrainingError(message, hint=hint)
        events.append(event)
    return Ledger(events)


def is_event(event: Any) -> bool:
    """Whether a value has what every entry of its kind has."""
    if not isinstance(event, dict) or event.get("kind") not in NUMBERS:
        return False
    more = {"skip": ("rows", list), "quarantine": ("stops", bool)}
    key, kind = more.get(event["kind"], ("kind", str))
    return isinstance(event.get(key), kind) and all(
        type(event.get(key)) is int for key in NUMBERS[event["kind"]]
    )


def open_ledger(out: Path) -> Ledger:
    """The same, to write to: a half-written last line is cut off first."""
    path = out / LEDGER
    if path.exists():
        content = path.read_bytes()
        if (whole := content.rfind(b"\n") + 1) < len(content):
            with path.open("r+b") as file:
                file.truncate(whole)
    return Ledger(read_ledger(out).events, path)


def append_line(path: Path, text: str) -> None:
    """Append a line and make it durable, the file's name too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = not path.exists()
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    if fresh:
        sync_folder(path.parent)
