"""Verbs around the graph: demo, up, doctor, train."""

import argparse
import sys
from pathlib import Path
from typing import Any

from assets.commands.session import configuration, require_root
from pipeline.errors import GristmillError, StorageError, UsageError

Result = dict[str, Any]
DEMO_ROOT = "demo-store"
OF_PLAN = ("recipe", "tokens", "vocab", "gpus", "gpu", "gpu_memory", "mfu", "price",
           "checkpoint_seconds")  # fmt: skip


def demo(arguments: argparse.Namespace) -> Result:
    """`gristmill demo`: the whole graph on the sample, to a trained checkpoint."""
    from assets.demo.run import run_demo
    from assets.demo.screen import Screen

    root = Path(arguments.root or DEMO_ROOT).absolute()
    screen = Screen(sys.stderr if arguments.json else sys.stdout)
    result = run_demo(root, keep=arguments.keep, screen=screen)
    for line in result.pop("closing"):
        screen.say(line)
    return result


def up(arguments: argparse.Namespace) -> None:
    """`gristmill up`: Dagster UI and MLflow UI on loopback until Ctrl-C."""
    demo_store = Path(DEMO_ROOT)
    if not arguments.root and not arguments.config and demo_store.is_dir():
        arguments.root = str(demo_store.absolute())
    config = configuration(arguments)
    require_root(config)
    from assets.up import serve

    serve(config, config_file=arguments.config, port=arguments.port)


def doctor(arguments: argparse.Namespace) -> Result:
    """`gristmill doctor`: whether this machine has what Gristmill needs."""
    try:
        config = configuration(arguments)
    except StorageError:  # is one of the findings
        config = configuration(arguments, stored=False)
    from resources.doctor import check

    findings = check(config)
    bad = [finding for finding in findings if finding.level == "fail"]
    if not arguments.json:
        for finding in findings:
            hint = f"  hint: {finding.hint}" if finding.hint else ""
            print(f"{finding.level:<6} {finding.name:<18} {finding.text}{hint}")
    if bad:
        message = f"{len(bad)} of {len(findings)} checks failed: {', '.join(f.name for f in bad)}"
        raise GristmillError(message, hint="mend what is marked `fail` above")
    return {"findings": [finding.as_json() for finding in findings]}


def train(arguments: argparse.Namespace) -> Result:
    """`gristmill train RUN.yaml [--join HOST:PORT]`: torchrun, without Dagster; `--plan`: none."""
    given = [name for name in OF_PLAN if getattr(arguments, name) is not None]
    if given and not arguments.plan:
        message = f"--{given[0].replace('_', '-')} goes with --plan"
        raise UsageError(message, hint="what a run is, its file says")
    if arguments.run_file is None and not arguments.plan:
        message = "no run was named"
        raise UsageError(message, hint="give a run file, as in ROOT/runs/<name>.yaml")
    if arguments.run_file is not None and not arguments.run_file.is_file():
        message = f"{arguments.run_file} is not there"
        raise UsageError(message, hint="give a run file, as in ROOT/runs/<name>.yaml")
    if arguments.plan:
        from assets.commands.train_plan import train_plan

        return train_plan(arguments)
    from resources.launcher import launch
    from training.errors import TrainingError

    stream = sys.stderr if arguments.json else sys.stdout
    try:
        return launch(
            arguments.run_file,
            join=arguments.join,
            say=lambda line: print(line, file=stream, flush=True),
        )
    except TrainingError as error:
        raise UsageError(error.message, hint=error.hint) from error
