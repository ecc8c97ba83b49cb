"""The training program: `python -m torch.distributed.run ... -m training.train FILE`.

Read from `main`: join the others, build model and data, go on from the newest good checkpoint, then
step, save and evaluate until the end, and write `result.json`. Killed anywhere, the same command
goes on exactly: same batches, same losses. Exit codes: 0 done or stopped with a checkpoint saved,
1 failed, 2 the run file is wrong, 3 no step was finished for too long (`training.ranks.watchdog`).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import suppress

import torch.distributed as dist

from training.config import RunConfig, check_same_run, load_run
from training.errors import RunConfigError, TrainingError
from training.faults import fault
from training.layouts.layout import check_layout
from training.plan import open_data
from training.ranks import watchdog
from training.ranks.process import StopRequest, end_with_parent, hold
from training.report import Report
from training.saving.files import reason
from training.shards import ShardError
from training.trainer import Trainer
from training.vocabulary import Vocabulary
from training.watching.early import check_reference
from training.world import World, agree, join

LOCK_SECONDS = 45.0  # an orphaned job is ended within 30


def main(arguments: list[str] | None = None) -> int:
    """Run one rank to its end; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    # no option: torch.distributed.run takes `--run` for an abbreviation of its own `--run-path`
    parser.add_argument("run", help="the run file, runs/<name>.yaml")
    end_with_parent()
    try:
        config = load_run(parser.parse_args(arguments).run)
        check_reference(config)
        stop = StopRequest(config.sigterm_seconds)
        watchdog.start(int(os.environ.get("RANK", "0")), config.launch)
        world = join(
            config.device,
            config.timeout_seconds,
            config.parallel,
            join_seconds=config.launch.join_seconds,
        )
        check_same_run(config)
        check_layout(config, world.size)
        claim(config, world)
        train(config, world, stop)
    except (TrainingError, ShardError, OSError) as error:
        if isinstance(error, ConnectionError | TimeoutError):  # of the ranks among each other
            raise
        if not (isinstance(error, RunConfigError) and os.environ.get("RANK", "0") != "0"):
            sys.stderr.write(f"{sentence(error)}\n")  # every rank finds the same
        return getattr(error, "exit_code", 1)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        watchdog.stop()
    return 0


def sentence(error: TrainingError | ShardError | OSError) -> str:
    """What is said of an error: its kind, one sentence, a hint."""
    if isinstance(error, OSError):
        hint = "make room, or let the run read and write there, then start it again"
        error = TrainingError(f"the run cannot go on: {reason(error)}", hint=hint)
    hint = "" if "\nhint: " in str(error) else "\nhint: make the shard again, or leave it out"
    return f"{type(error).__name__}: {error}{hint if isinstance(error, ShardError) else ''}"


def claim(config: RunConfig, world: World) -> None:
    """Make sure that no other process trains in this folder, on all ranks alike."""
    found = hold(config.out / ".lock", LOCK_SECONDS) if world.first else None
    if (why := agree(found, world)) is not None:
        hint = "wait for it or stop it; a run has one process group at a time"
        raise TrainingError(why, hint=hint)


def train(config: RunConfig, world: World, stop: StopRequest) -> None:
    """From the newest checkpoint to the last step, or to the stop that was asked for."""
    began = time.monotonic()
    vocabulary = Vocabulary.open(config.tokenizer)
    check_layout(config, world.size, vocabulary.size)
    data = open_data(config, vocabulary)
    trainer = Trainer(config, world, vocabulary, data)
    told = trainer.resume()
    start = trainer.step
    report = Report(config, world, trainer)
    report.begin(told)
    try:
        why = steps_of(trainer, report, stop)
        with watchdog.slow("checkpoint"):
            trainer.settle()
        with watchdog.slow("evaluation"):
            score = trainer.evaluate().total if data.held_out and not why else None
    except (TrainingError, OSError):
        with suppress(OSError):  # a full disk: the first failure counts
            report.abandon()
        raise
    finally:
        trainer.checkpoints.abandon(config.timeout_seconds)
    fault("training.result.before")
    with watchdog.slow("the report"):
        seconds = time.monotonic() - began
        reason = why if trainer.step < config.steps else ""
        report.end(reason, score, start, seconds, left=stop.left)


def steps_of(trainer: Trainer, report: Report, stop: StopRequest) -> str:
    """Step, evaluate and save until the end; returns why it stopped before, if it did."""
    config, on_cpu = trainer.config, trainer.world.device.type == "cpu"
    why = ""
    while trainer.step < config.steps and not trainer.finished and not why:
        report.step_begins()
        values, asked = trainer.train_step(bool(stop.reason))
        report.step_ends()
        trainer.advance()
        watchdog.beat(trainer.step)
        line = {"step": trainer.step, "tokens": trainer.tokens, "lr": trainer.rate}
        if trainer.data.held_out and config.eval_every and trainer.step % config.eval_every == 0:
            with watchdog.slow("evaluation"):
                line |= report.held_out(found := trainer.evaluate())
            below = found.total.bits_per_byte < found.total.unigram_bits_per_byte
            trainer.finished = config.until == "unigram" and below
        fault("training.step")
        report.add(line, values)
        saves = trainer.step % config.checkpoint_every == 0
        if on_cpu or saves or trainer.step % config.log_every == 0:  # read from the device
            if went_back(trainer, report):
                continue
            trainer.guard.check(trainer.step)
            tell(report, trainer.note(trainer.checkpoints.finished()))
            why = "asked to stop" if float(asked.item()) else ""
        if trainer.step == config.stop_after:
            why = "stop_after"
        end = trainer.step == config.steps or trainer.finished or why
        if end or saves:
            report.flush()
            with watchdog.slow("checkpoint"):
                tell(report, trainer.save())
        elif trainer.step % config.log_every == 0:
            report.flush()
    return why


def went_back(trainer: Trainer, report: Report) -> bool:
    """Look at the steps since the last look; whether they took the run back to a checkpoint."""
    before = trainer.step
    while (verdict := trainer.review.look(trainer.seen)) is not None:
        report.flush()
        with watchdog.slow("rewind"):
            tell(report, trainer.rewind(verdict))
        if trainer.step < before:
            report.rewind(trainer.step)
            return True
    return False


def tell(report: Report, texts: list[str]) -> None:
    """Say it, on the first rank."""
    for text in texts if report.world.first else []:
        report.progress.say(text)


if __name__ == "__main__":
    sys.exit(main())
