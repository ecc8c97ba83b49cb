"""What the first rank writes about a run: the record, the lines of its steps, the result.

Beside the loss, each line has what `training.watching.stopwatch`, `training.watching.speed` and
`training.watching.observe` measured of its step; memory, load and the counters of the ledger are
read once for all the lines that are written together, and stand in the last of them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from training.config import RECORD, RunConfig
from training.metrics import Line, Progress, StepLog, keep_before
from training.planning.flops import active_parameters, parameter_count
from training.saving.files import write_text
from training.spikes.facts import SPIKES, report_files
from training.trainer import Trainer
from training.watching import early
from training.watching.loglines import LINES, first_lines, last_line, whole_lines
from training.watching.observe import Machine
from training.watching.scores import Score, Scores
from training.watching.speed import Speed
from training.watching.stopwatch import Stopwatch
from training.watching.tracker import Tracker
from training.world import World

RESULT = "result.json"
COUNTED = {"skip": "skips", "rewind": "rewinds", "quarantine": "quarantines"}
"""Kind of event in the ledger: its counter."""


class Report:
    """What the first rank writes about a run; on the others nothing happens."""

    def __init__(self, config: RunConfig, world: World, trainer: Trainer) -> None:
        self.config, self.world, self.trainer = config, world, trainer
        self.last: Line = {}
        if world.first:
            config.out.mkdir(parents=True, exist_ok=True)
            write_text(
                config.out / RECORD, json.dumps(self._record(), indent=1, sort_keys=True) + "\n"
            )
            if back := trainer.ledger.rewinds:  # a process killed in it did not come to this
                keep_before(config.out / LINES, len(back), back[-1]["to_step"])
            self.log = StepLog(config.out, trainer.step)
            self.last = last_line(self.log.path)
            self.tracker = Tracker(self.log.path, trainer.step)
            self.progress = Progress(config.steps, trainer.step)
            self.watch, self.machine = Stopwatch(world.device), Machine(world.device)
            self.speed = Speed(config, trainer.vocabulary.size, world.device, world.size)
            self.early = Early(config)
            self._spikes = {path.name for path in (config.out / SPIKES).glob("step-*.json")}

    def _record(self) -> dict[str, Any]:
        config = self.config
        return {
            "config": config.model_dump(mode="json"),
            "config_hash": config.config_hash(),
            "data": self.trainer.data.checksum,
            "identity": config.identity(),
            "processes": self.world.size,
        }

    def begin(self, told: list[str]) -> None:
        """Say what is trained, on what, from where."""
        if self.world.first:
            shape = (self.config.model, self.trainer.vocabulary.size)
            n, active = parameter_count(*shape), active_parameters(*shape)
            some = f" ({active:,} a token)" if active < n else ""
            place = f"{self.world.size} x {self.world.device.type}"
            self.progress.say(f"run {self.config.name}: {n:,} parameters{some} on {place}")
            for text in [*self.trainer.data.notes, *told, self.speed.told]:
                self.progress.say(text)

    def step_begins(self) -> None:
        """A step begins now: from here on its time counts."""
        if self.world.first:
            self.watch.begin()

    def step_ends(self) -> None:
        """The step is done; evaluation and checkpoint are none of its time."""
        if self.world.first:
            self.watch.end()

    def held_out(self, scores: Scores) -> Line:
        """The numbers of an evaluation, for the line of its step; the two of all text are said."""
        found = {
            "held_out_bits_per_byte": scores.total.bits_per_byte,
            "unigram_bits_per_byte": scores.total.unigram_bits_per_byte,
        }
        if self.world.first:
            texts = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
            self.progress.say(f"step {self.trainer.step}: {texts}")
        return found | scores.metrics()

    def add(self, line: Line, values: dict[str, Any]) -> None:
        """Keep the numbers of a step."""
        if self.world.first:
            self.log.add(line, values)

    def flush(self) -> None:
        """Write what was kept, hand it on, and see whether the early-run report is due."""
        if not self.world.first:
            return
        if lines := self.log.flush(self._measured()):
            for line in lines:
                if line["skipped"]:
                    self.trainer.skipped.append(line["step"])
                    self.progress.say(f"step {line['step']} was skipped: {why_skipped(line)}")
            self.last = lines[-1]
            self.tracker.more()
            self.progress.step(self.last)
            self._new_spikes()
            if self.early.due(int(self.last["step"])):
                self._early_report()

    def _measured(self) -> list[dict[str, float]]:
        """For each step that waits: its times and speed; for the last one machine and counters."""
        measured = self.watch.flush()
        before = int(self.last.get("tokens", 0))
        for line, tokens in zip(measured, self.log.tokens(), strict=True):
            line |= self.speed.of(tokens - before, line["time/step"])
            before = tokens
        measured = [{k: round(v, 6) for k, v in line.items()} for line in measured]
        if measured:
            counted = {f"spikes/{name}": n for name, n in self.counters().items()}
            measured[-1] |= self.machine.read() | counted | {"gate/armed": self._armed()}
        return measured

    def _armed(self) -> float:
        """1 where the gate has accepted steps enough to judge by them."""
        guard = self.trainer.guard
        return float(int(guard.accepted.item()) >= guard.settings.armed_after)

    def counters(self) -> dict[str, int]:
        """Events in the ledger of the run: skips, rewinds, quarantines."""
        kinds = Counter(event["kind"] for event in self.trainer.ledger.events)
        return {name: kinds[kind] for kind, name in COUNTED.items()}

    def _new_spikes(self) -> None:
        for path in report_files(self.config.out):
            if path.name not in self._spikes:
                self._spikes.add(path.name)
                self.tracker.file(path, SPIKES)
                self.progress.say(f"what was in the batch stands in {SPIKES}/{path.name}")

    def _early_report(self) -> None:
        found = self.early.write(first_lines(self.log.path, self.early.steps))
        self.tracker.file(self.config.out / early.FILE)
        reasons = f" ({'; '.join(found['reasons'])})" if found["reasons"] else ""
        verdict = found["verdict"] or "too few steps for a verdict"
        self.progress.say(f"early-run report over {found['steps']} steps: {verdict}{reasons}")

    def rewind(self, step: int) -> None:
        """The run was taken back to `step`: so are its lines, here and at MLflow."""
        if self.world.first:
            self.watch.flush()
            self.tracker.rewind(step, lambda: self.log.rewind(step))
            self.last = last_line(self.log.path)

    def abandon(self) -> None:
        """Write what is known of a run that fails."""
        if self.world.first:
            self.flush()
            self.tracker.close(10)
            self.progress.close(None)

    def end(
        self, why: str, score: Score | None, start: int, seconds: float, *, left: float = math.inf
    ) -> None:
        """Write `result.json` and close what is open, within `left` seconds where it is asked."""
        if not self.world.first:
            return
        if not self.early.done:
            self._early_report()
        self.tracker.close(min(60.0, max(1.0, left - 5)))
        result = self._result(why, score, start, seconds)
        write_text(self.config.out / RESULT, json.dumps(result, indent=1) + "\n")
        done = f"{result['status']} at step {result['step']} ({result['reason']})"
        bits = f"; held-out bits per byte {score.bits_per_byte:.4f}" if score else ""
        self.progress.say(f"run {self.config.name} {done}{bits}")
        if self.tracker.problem:
            self.progress.say(self.tracker.problem)
        self.progress.close(result)

    def _result(self, why: str, score: Score | None, start: int, seconds: float) -> dict[str, Any]:
        trainer, config = self.trainer, self.config
        shape = (config.model, trainer.vocabulary.size)
        return {
            "run": config.name,
            "status": "stopped" if why else "complete",
            "reason": why or ("below unigram entropy" if trainer.finished else "all steps done"),
            "step": trainer.step,
            "steps": config.steps,
            "tokens": trainer.tokens,
            "loss": self.last.get("loss"),
            "held_out": score.summary() if score else None,
            "checkpoint": trainer.saved,
            "skipped_steps": trainer.skipped,
            **self.counters(),
            "epochs": trainer.data.loader.epochs(trainer.course.samples_until(trainer.step)),
            "parameters": parameter_count(*shape),
            "active_parameters": active_parameters(*shape),
            "config_hash": config.config_hash(),
            "processes": self.world.size,
            "resumed_from_step": start or None,
            "seconds": round(seconds, 2),
            "mfu": self.last.get("mfu"),
            "early_report": self.early.verdict,
            "mlflow_run_id": self.tracker.run_id or None,
            "mlflow_problem": self.tracker.problem or None,
        }


class Early:
    """The early-run report of a run: once when its steps are done, and at the end of a shorter."""

    def __init__(self, config: RunConfig) -> None:
        self.path, self.steps = config.out / early.FILE, config.watch.early_steps
        self.name = config.watch.reference
        self.reference: Path | None = None
        if self.name is not None:
            self.reference = early.reference_file(config.parent_root, self.name)
        found = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        self.done = found.get("steps") == self.steps
        self.verdict: str | None = found.get("verdict")

    def due(self, step: int) -> bool:
        """Whether the steps it is about are done and it is not written."""
        return step >= self.steps and not self.done

    def write(self, lines: list[Line]) -> dict[str, Any]:
        """Judge these lines; returns the report."""
        reference: list[Line] = []
        if self.reference and lines:
            reference = until(self.reference, lines[-1]["tokens"])
        reports = report_files(self.path.parent)
        spikes = [json.loads(path.read_text(encoding="utf-8")) for path in reports]
        found = early.early_report(
            lines, steps=self.steps, spikes=spikes, reference=reference, name=self.name
        )
        write_text(self.path, json.dumps(found, indent=1) + "\n")
        self.done, self.verdict = found["steps"] >= self.steps, found["verdict"]
        return found


def until(path: Path, tokens: int) -> list[Line]:
    """The lines of another run up to the first one with so many tokens."""
    found: list[Line] = []
    for text, _ in whole_lines(path):
        found.append(json.loads(text))
        if found[-1]["tokens"] >= tokens:
            break
    return found


def why_skipped(line: Line) -> str:
    """What stood out of a step that was skipped."""
    loss, norm = line.get("loss"), line.get("grad_norm")
    shown = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in (loss, norm)]
    return f"loss {shown[0]}, gradient norm {shown[1]}"
