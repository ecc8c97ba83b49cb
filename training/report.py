"""What the first rank writes about a run: the record, the lines of its steps, the result."""

from __future__ import annotations

import json
from typing import Any

from training.checkpoint import write_text
from training.config import RECORD, RunConfig
from training.evaluate import Score
from training.flops import parameter_count
from training.metrics import Line, Progress, StepLog, Tracker, read_lines
from training.trainer import Trainer
from training.world import World

RESULT = "result.json"


class Report:
    """What the first rank writes about a run; on the others nothing happens."""

    def __init__(self, config: RunConfig, world: World, trainer: Trainer) -> None:
        self.config, self.world, self.trainer = config, world, trainer
        self.last: Line = {}
        if world.first:
            record: dict[str, Any] = {
                "config": config.model_dump(mode="json"),
                "identity": config.identity(),
                "config_hash": config.config_hash(),
                "processes": world.size,
            }
            config.out.mkdir(parents=True, exist_ok=True)
            write_text(config.out / RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")
            self.log = StepLog(config.out, trainer.step)
            history = read_lines(self.log.path)
            self.last = history[-1] if history else {}
            self.tracker = Tracker(trainer.step, history)
            self.progress = Progress(config.steps, trainer.step)

    def begin(self, told: list[str]) -> None:
        """Say what is trained, on what, from where."""
        if self.world.first:
            n = parameter_count(self.config.model, self.trainer.vocabulary.size)
            place = f"{self.world.size} x {self.world.device.type}"
            self.progress.say(f"run {self.config.name}: {n:,} parameters on {place}")
            for text in [*self.trainer.data.notes, *told]:
                self.progress.say(text)

    def held_out(self, score: Score) -> Line:
        """The two numbers of an evaluation, for the line of its step."""
        found = {
            "held_out_bits_per_byte": score.bits_per_byte,
            "unigram_bits_per_byte": score.unigram_bits_per_byte,
        }
        if self.world.first:
            texts = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
            self.progress.say(f"step {self.trainer.step}: {texts}")
        return found

    def add(self, line: Line, values: dict[str, Any]) -> None:
        """Keep the numbers of a step."""
        if self.world.first:
            self.log.add(line, values)

    def flush(self) -> None:
        """Write what was kept; name the steps that were skipped."""
        if not self.world.first:
            return
        for line in (lines := self.log.flush()):
            if line["skipped"]:
                self.trainer.skipped.append(line["step"])
                self.progress.say(f"step {line['step']} was skipped: loss or gradient not finite")
        if lines:
            self.last = lines[-1]
            self.tracker.add(lines)
            self.progress.step(self.last)

    def abandon(self) -> None:
        """Write what is known of a run that fails."""
        if self.world.first:
            self.flush()
            self.tracker.close(10)
            self.progress.close(None)

    def end(self, why: str, score: Score | None, start: int, seconds: float) -> None:
        """Write `result.json` and close what is open."""
        if not self.world.first:
            return
        self.tracker.close()
        trainer = self.trainer
        result: dict[str, Any] = {
            "run": self.config.name,
            "status": "stopped" if why else "complete",
            "reason": why or ("below unigram entropy" if trainer.finished else "all steps done"),
            "step": trainer.step,
            "steps": self.config.steps,
            "tokens": trainer.tokens,
            "loss": self.last.get("loss"),
            "held_out": score.summary() if score else None,
            "checkpoint": trainer.saved,
            "skipped_steps": trainer.skipped,
            "epochs": trainer.data.loader.epochs(trainer.step * self.config.global_batch),
            "parameters": parameter_count(self.config.model, trainer.vocabulary.size),
            "config_hash": self.config.config_hash(),
            "processes": self.world.size,
            "resumed_from_step": start or None,
            "seconds": round(seconds, 2),
            "mlflow_run_id": self.tracker.run_id or None,
            "mlflow_problem": self.tracker.problem or None,
        }
        write_text(self.config.out / RESULT, json.dumps(result, indent=1) + "\n")
        done = f"{result['status']} at step {trainer.step} ({result['reason']})"
        bits = f"; held-out bits per byte {score.bits_per_byte:.4f}" if score else ""
        self.progress.say(f"run {self.config.name} {done}{bits}")
        if self.tracker.problem:
            self.progress.say(self.tracker.problem)
        self.progress.close(result)
