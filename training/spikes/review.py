"""What is decided about steps once their numbers are on the host.

The gate refuses on the device; here, whenever values come over anyway (`log_every` steps on a GPU,
every step on a CPU), each step is looked at in order: a refused one is entered into the ledger and
its spike report written, the ladder says whether the run must go back, and data that spike again
are put into quarantine. All ranks see the same numbers and the same ledger, so all decide alike
without a message; only the first writes.

*Again* means that the same samples are refused after the course of the run changed (a rewind, a
change that was accepted): the data are at fault, and the run stops. A step that is done again after
a crash has the same weights, and tells nothing new. Rows that stood out before and are refused in a
later epoch are put into quarantine too, but the run goes on, as the gate keeps them out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from training.config import RunConfig
from training.data import Loader
from training.errors import QuarantineError
from training.faults import fault
from training.guards import Verdict
from training.spikes.facts import (
    Floats,
    number,
    sequence_losses,
    spike_report,
    suspects,
    write_report,
)
from training.spikes.ledger import Event, Ledger
from training.spikes.rewind import Ladder, Rewind

NAMES = ("loss", "gradient norm")
ROWS_NAMED = 64


class Waiting(NamedTuple):
    """A step whose numbers are still on the device."""

    step: int
    indices: Sequence[int]
    phase: int
    values: Tensor
    """[7]: loss, norm, refused, medians, limits."""
    per_sequence: Tensor
    """[sequences of the global batch, 2]: nats and targets."""


@dataclass(frozen=True)
class Values:
    """The numbers of a step on the host; medians and limits of loss and norm."""

    loss: float
    norm: float
    refused: bool
    median: tuple[float, float]
    limit: tuple[float, float]

    @classmethod
    def of(cls, row: Sequence[float]) -> Values:
        """From the seven numbers of `Waiting.values`."""
        return cls(row[0], row[1], row[2] > 0, (row[3], row[4]), (row[5], row[6]))

    def why(self) -> tuple[int, str]:
        """Which of loss (0) and norm (1) got the step refused, and the sentence about it."""
        both = (self.loss, self.norm)
        for n, value in enumerate(both):
            if not math.isfinite(value):
                return n, f"{NAMES[n]} not finite"
        for n, value in enumerate(both):
            if value > self.limit[n]:
                return n, f"{NAMES[n]} {value:.4g} above {self.limit[n]:.4g}"
        return 0, f"{NAMES[0]} {self.loss:.4g}"  # the limits were rounded on their way


class Review:
    """Steps that wait for a look, the ladder, and the ledger."""

    def __init__(self, config: RunConfig, loader: Loader, ledger: Ledger, first: bool) -> None:
        """`first`: whether this rank writes reports."""
        self.config, self.loader, self.ledger, self.first = config, loader, ledger, first
        self.ladder = Ladder(config.spikes)
        self.config_hash = config.config_hash()
        self.waiting: list[Waiting] = []

    def add(
        self,
        step: int,
        indices: Sequence[int],
        loss: Tensor,
        norm: Tensor,
        verdict: Verdict,
        per_sequence: Tensor,
    ) -> None:
        """Keep a step; nothing is read from the device."""
        three = torch.stack([loss.float(), norm.float(), verdict.refused])
        values = torch.cat([three, verdict.median, verdict.limit])
        phase = self.phase_of(indices[-1])
        self.waiting.append(Waiting(step, indices, phase, values, per_sequence))

    def phase_of(self, index: int) -> int:
        """Number of the phase of the data that a sample is in."""
        starts = [phase.start for phase in self.loader.order.phases]
        return max(n for n, start in enumerate(starts) if start <= index)

    def look(self, seen: Tensor) -> Rewind | None:
        """Look at all steps that wait; the run must go back where this returns a rewind.

        `seen` [vocabulary], on the device: see `spike_report`. Raises QuarantineError.
        """
        if not self.waiting:
            return None
        rows = torch.stack([one.values for one in self.waiting]).tolist()
        waiting, self.waiting = self.waiting, []
        for n, (one, row) in enumerate(zip(waiting, rows, strict=True)):
            values = Values.of(row)
            if values.refused:
                self._refused(one, values, seen)
            rewind = self.ladder.observe(one.step, values.loss, values.refused, one.phase)
            if rewind is not None:
                self.waiting = waiting[n + 1 :]  # looked at if the run cannot go back
                return rewind
        return None

    def _refused(self, one: Waiting, values: Values, seen: Tensor) -> None:
        losses = sequence_losses(one.per_sequence.double().cpu().numpy())
        event, out = self._event(one, values, losses), suspects(losses, self.config.spikes)
        event["rows"] = self._rows(one.indices, out)
        before = self._again(event)
        self.ledger.enter(event)
        fault("training.skip.entered")
        action = "skipped"
        if before is not None:
            action = "quarantined"
            self._enter_quarantine(event, before)
        if self.first:
            self._report(event | {"action": action, "suspects": out}, one, losses, seen)
        if before is not None and self.stops(before, event):
            raise quarantined(self.config.name, event)

    def _event(self, one: Waiting, values: Values, losses: Floats) -> Event:
        which, reason = values.why()
        return {
            "kind": "skip",
            "step": one.step,
            "from_sample": int(one.indices[0]),
            "to_sample": int(one.indices[-1]) + 1,
            "loss": number(values.loss),
            "grad_norm": number(values.norm),
            "median": number(values.median[which]),
            "limit": number(values.limit[which]),
            "reason": reason,
            "rewinds": len(self.ledger.rewinds),
            "config_hash": self.config_hash,
        }

    def _rows(self, indices: Sequence[int], numbers: list[int]) -> list[list[Any]]:
        """[source, row] of these sequences."""
        source, _, row = self.loader.order.many([indices[n] for n in numbers[:ROWS_NAMED]])
        names = [self.loader.sources[n].name for n in source.tolist()]
        return [list(pair) for pair in zip(names, row.tolist(), strict=True)]

    def _again(self, event: Event) -> Event | None:
        """The earlier refusal of the same data, if there is one that tells something."""
        for old in self.ledger.of("skip"):
            if all(old[k] == event[k] for k in ("step", "from_sample", "rewinds", "config_hash")):
                continue  # the same step, done again after a crash
            rows = {tuple(row) for row in old["rows"]}
            if self.stops(old, event) or any(tuple(row) in rows for row in event["rows"]):
                return old
        return None

    @staticmethod
    def stops(old: Event, event: Event) -> bool:
        """Whether these are the same samples of the run, refused under other weights."""
        return all(old[k] == event[k] for k in ("from_sample", "to_sample"))

    def _enter_quarantine(self, event: Event, before: Event) -> None:
        documents = self.loader.documents(range(event["from_sample"], event["to_sample"]))
        told = {k: v for k, v in event.items() if k != "kind"}
        self.ledger.enter(
            {
                "kind": "quarantine",
                **told,
                "first_step": before["step"],
                "stops": self.stops(before, event),
                "documents": [list(pair) for pair in documents],
            }
        )

    def _report(self, event: Event, one: Waiting, losses: Floats, seen: Tensor) -> None:
        first_seen = seen.cpu().numpy().astype(np.int32)
        report = spike_report(event, self.loader, one.indices, losses, first_seen)
        write_report(self.config.out, report, event["rewinds"])


def quarantined(name: str, event: Event) -> QuarantineError:
    """What is said of a run that stops, and of one that is started in quarantine."""
    message = (
        f"the samples {event['from_sample']} to {event['to_sample']} of run {name} were refused "
        f"again at step {event['step']} ({event['reason']}); they are in quarantine"
    )
    hint = (
        f"see spikes/step-{event['step']}*.json for the documents; set accept_change: [quarantine] "
        "to go on without them"
    )
    return QuarantineError(message, hint=hint)
