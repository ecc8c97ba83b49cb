"""The training program: `python -m torch.distributed.run ... -m training.train FILE`.

Read from `main`: join the others, build model and data, go on from the newest good checkpoint, then
step, save and evaluate until the end, and write `result.json`. Killed anywhere, the same command
goes on exactly: same batches, same losses. Exit codes: 0 done or stopped with a checkpoint saved,
1 failed, 2 the run file is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

import torch.distributed as dist

from training.checkpoint import write_text
from training.config import RECORD, RunConfig, check_same_run, load_run
from training.errors import RunConfigError, TrainingError
from training.evaluate import Score
from training.faults import fault
from training.metrics import Line, Progress, StepLog, Tracker, read_lines
from training.model import parameter_count
from training.parallel import World, agree, join
from training.plan import open_data
from training.process import StopRequest, end_with_parent, hold
from training.shards import ShardError
from training.trainer import Trainer
from training.vocabulary import Vocabulary

RESULT = "result.json"
LOCK_SECONDS = 45.0  # an orphaned job is ended within 30


def main(arguments: list[str] | None = None) -> int:
    """Run one rank to its end; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    # no option: torch.distributed.run takes `--run` for an abbreviation of its own `--run-path`
    parser.add_argument("run", help="the run file, runs/<name>.yaml")
    end_with_parent()
    try:
        config = load_run(parser.parse_args(arguments).run)
        stop = StopRequest(config.sigterm_seconds)
        world = join(config.device, config.timeout_seconds)
        check_same_run(config)
        config.accumulation(world.size)
        claim(config, world)
        train(config, world, stop)
    except (TrainingError, ShardError) as error:
        if not (isinstance(error, RunConfigError) and os.environ.get("RANK", "0") != "0"):
            sys.stderr.write(f"{type(error).__name__}: {error}\n")  # every rank finds the same
        return getattr(error, "exit_code", 1)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    return 0


def claim(config: RunConfig, world: World) -> None:
    """Make sure that no other process trains in this folder, on all ranks alike."""
    found = hold(config.out / ".lock", LOCK_SECONDS) if world.first else None
    if (why := agree(found, world)) is not None:
        hint = "wait for it or stop it; a run has one process group at a time"
        raise TrainingError(str(why), hint=hint)


def train(config: RunConfig, world: World, stop: StopRequest) -> None:
    """From the newest checkpoint to the last step, or to the stop that was asked for."""
    began = time.monotonic()
    vocabulary = Vocabulary.open(config.tokenizer)
    data = open_data(config, vocabulary)
    trainer = Trainer(config, world, vocabulary, data)
    told = trainer.resume()
    start = trainer.step
    report = Report(config, world, trainer)
    report.begin(told)
    why = ""
    while trainer.step < config.steps and not trainer.finished and not why:
        tick = time.monotonic()
        values, asked = trainer.train_step(bool(stop.reason))
        trainer.advance()
        line = {"step": trainer.step, "tokens": trainer.tokens} | trainer.rates(tick)
        if data.held_out and config.eval_every and trainer.step % config.eval_every == 0:
            line |= report.held_out(found := trainer.evaluate())
            below = found.bits_per_byte < found.unigram_bits_per_byte
            trainer.finished = config.until == "unigram" and below
        fault("training.step")
        report.add(line, values)
        if trainer.step % config.log_every == 0 or world.device.type == "cpu":
            trainer.guard.check(trainer.step)
            why = "asked to stop" if float(asked.item()) else ""
        if trainer.step == config.stop_after:
            why = "stop_after"
        end = trainer.step == config.steps or trainer.finished or why
        if trainer.step % config.log_every == 0 or end:
            report.flush()
        if end or trainer.step % config.checkpoint_every == 0:
            report.flush()
            trainer.save()
            if end:
                break
    score = trainer.evaluate() if data.held_out and not why else None
    fault("training.result.before")
    report.end(why if trainer.step < config.steps else "", score, start, time.monotonic() - began)


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


if __name__ == "__main__":
    sys.exit(main())
