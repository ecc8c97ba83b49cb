"""The course of a run, and what bends it: the ledger's events, in force on all ranks.

The ledger (`training.spikes.ledger`) says what was decided, the course (`training.samples.course`)
which samples each step takes after it. Whatever is entered here changes both at once.
"""

from __future__ import annotations

from pathlib import Path

from training.config import RunConfig
from training.samples.course import Course
from training.spikes.ledger import Ledger, open_ledger
from training.spikes.review import quarantined
from training.spikes.rewind import Rewind
from training.verify import complete_steps, rewinds_of, step_of
from training.world import World, agree


class History:
    """Ledger and course of a run; every method is called by all ranks, the first one writes."""

    def __init__(self, config: RunConfig, world: World) -> None:
        self.config, self.world = config, world
        ledger = open_ledger(config.out) if world.first else Ledger()
        events = agree(ledger.events, world)
        self.ledger = ledger if world.first else Ledger(events)
        self.course = Course(config, self.ledger.left_out)
        self._told = {"config_hash": config.config_hash()}

    def leave_out(self, begin: int, end: int, *, step: int, reason: str) -> None:
        """Let no step take the samples [begin, end) any more."""
        place = {"step": step, "from_sample": begin, "to_sample": end}
        self.ledger.enter({"kind": "leave_out"} | place | {"reason": reason} | self._told)
        self.course = Course(self.config, self.ledger.left_out)

    def leave_out_quarantine(self) -> None:
        """Leave out what is in quarantine if the run file says so; else QuarantineError."""
        if event := self.ledger.open_quarantine:
            if "quarantine" not in self.config.accept_change:
                raise quarantined(self.config.name, event)
            place = (event["from_sample"], event["to_sample"])
            self.leave_out(*place, step=event["step"], reason="quarantine")

    def accept(self, step: int, changes: dict[str, list[str]]) -> None:
        """Enter that the run goes on from `step` with other settings, tokenizer or data."""
        self.ledger.enter({"kind": "accept", "step": step, "changes": changes} | self._told)

    def enter_rewind(self, verdict: Rewind, to_step: int) -> None:
        """Enter that the run goes back to `to_step`, and what is left out then.

        The course stays as it is until `rewound`, since checkpoints of the old one are still there.
        """
        behind = verdict.spike + self.config.spikes.leave_out
        self.ledger.enter(
            {
                "kind": "rewind",
                "step": verdict.spike,
                "first_bad": verdict.first_bad,
                "to_step": to_step,
                "from_sample": self.course.samples_until(to_step),
                "to_sample": self.course.samples_until(behind),
                "reason": verdict.reason,
            }
            | self._told
        )

    def rewound(self) -> None:
        """Take the course that the entered rewind leaves."""
        self.course = Course(self.config, self.ledger.left_out)

    def unfinished_rewind(self, folder: Path) -> int | None:
        """The step to which a rewind goes whose process died before it removed later checkpoints.

        `folder`: that of the checkpoints. None where none is unfinished.
        """
        stale = False
        if self.world.first:
            paths = complete_steps(folder)
            stale = any(self.ledger.superseded(step_of(p), rewinds_of(p)) for p in paths)
        return int(self.ledger.rewinds[-1]["to_step"]) if agree(stale, self.world) else None
