"""The verb `bench`: a stage against its peer, alternated in one run; growth and cold start."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from assets.commands.session import configuration, mill_for, open_inputs
from pipeline.config import Config
from pipeline.errors import UsageError

Result = dict[str, Any]
ROUNDS = {"growth": 1}
"""Rounds of stages whose figures do not vary."""


def bench(arguments: argparse.Namespace) -> Result:
    """`gristmill bench STAGE [--against PEER] [--rounds N] [--input IN...]`."""
    config = configuration(arguments)
    inputs = [*arguments.inputs, *(arguments.more or [])]
    rounds = arguments.rounds
    if rounds is None:
        rounds = ROUNDS.get(arguments.stage, 3)
    if rounds < 1:
        message = f"--rounds {rounds} is no number of rounds"
        raise UsageError(message, hint="1 or more; 3 shows the spread")
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as name:
        result = _measure(arguments, config, inputs, rounds, Path(name))
    if not arguments.json:
        from assets.bench.tables import as_markdown, as_text

        print("\n".join(as_markdown(result) if arguments.markdown else as_text(result)))
    return result


def _measure(
    arguments: argparse.Namespace, config: Config, inputs: list[Path], rounds: int, folder: Path
) -> Result:
    from assets.bench import language, pages
    from assets.bench.contests import check_peer, find_contest
    from assets.bench.material import make
    from assets.bench.rounds import hold

    if arguments.stage in ("growth", "start"):
        return _alone(arguments, config, inputs, rounds, folder)
    contest = find_contest(arguments.stage, arguments.against)
    check_peer(contest)
    check_option(arguments, "gold", "extract")
    check_option(arguments, "labels", "language")

    def read(paths: list[Path]) -> Any:
        import polars as pl

        with mill_for(arguments, config, folder) as mill:
            frames = [source.load().value for source in open_inputs(mill, paths).sources]
        return pl.concat(frames, how="diagonal_relaxed")

    say(f"preparing {'the given input' if inputs else 'the sample of the demo'}")
    make(folder, contest.needs, inputs, config, read)
    judge = pages.judge(arguments.gold) if arguments.gold else None
    result = hold(contest, folder, rounds, say, judge)
    if arguments.labels:
        backend = config.filter.language.backend
        result["accuracy"] = language.accuracy(arguments.labels, backend)
    return result


def _alone(
    arguments: argparse.Namespace, config: Config, inputs: list[Path], rounds: int, folder: Path
) -> Result:
    """What has no peer: memory over a longer input, and the time to a first page."""
    from assets.bench.growth import measure_growth
    from assets.bench.material import make
    from assets.bench.start import measure_start

    if arguments.against:
        message = f"{arguments.stage} is measured against nothing, not {arguments.against!r}"
        raise UsageError(message, hint="leave --against out")
    if arguments.stage == "start":
        return measure_start(config, folder, rounds, say)
    make(folder, ("warcs",), inputs, config)
    return measure_growth(folder, rounds, say)


def check_option(arguments: argparse.Namespace, name: str, stage: str) -> None:
    """Refuse an option that belongs to another stage, and a file that is not there."""
    path = getattr(arguments, name)
    if path is None:
        return
    if arguments.stage != stage:
        message = f"--{name} says nothing about the stage {arguments.stage}"
        raise UsageError(message, hint=f"it goes with `bench {stage}`")
    if not path.is_file():
        message = f"--{name} {path} is not there"
        raise UsageError(message, hint="give a JSONL file")


def say(line: str) -> None:
    """Progress, on stderr."""
    print(line, file=sys.stderr, flush=True)
