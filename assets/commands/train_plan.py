"""`gristmill train --plan`: what a run comes to, for a run file or for a recipe alone."""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from pipeline.errors import UsageError

Result = dict[str, Any]
GPU = "H100"
LAST = 50
"""Steps whose median speed counts as measured."""
LIMITS: dict[str, tuple[float, float]] = {
    "tokens": (1, 1e18),
    "vocab": (2, 10_000_000),
    "gpus": (1, 1_000_000),
    "gpu_memory": (0.01, 100_000),
    "price": (0, 1_000_000),
    "checkpoint_seconds": (0.001, 86_400),
}
"""Least and most of an option; MFU has a sentence of its own."""


def train_plan(arguments: argparse.Namespace) -> Result:
    """The estimate; UsageError where the run does not fit, saying by how much and what helps."""
    from training.errors import TrainingError
    from training.planning.estimate import lines_of
    from training.shards import ShardError

    _check(arguments)
    try:
        report = _of_recipe(arguments) if arguments.recipe else _of_file(arguments)
    except TrainingError as error:
        raise UsageError(error.message, hint=error.hint) from error
    except ShardError as error:
        raise UsageError(str(error), hint="materialise the shards again") from error
    if not arguments.json:
        print("\n".join([*lines_of(report), *report["notes"]]))
    return report


def _check(arguments: argparse.Namespace) -> None:
    """UsageError naming the first option that is outside of what makes sense, NaN included."""
    for name, (least, most) in LIMITS.items():
        value = getattr(arguments, name)
        if value is not None and not least <= value <= most:
            message = f"--{name.replace('_', '-')} {value:g} is outside of {least:g} to {most:g}"
            raise UsageError(message, hint="see `gristmill train --help`")


def _of_recipe(arguments: argparse.Namespace) -> Result:
    """A recipe, so many tokens and GPUs: no file is read."""
    from resources.hardware import named_gpu
    from training.planning.estimate import VOCABULARY, estimate, recipe_run

    if arguments.run_file is not None:
        message = f"--recipe {arguments.recipe} and the file {arguments.run_file} are two runs"
        raise UsageError(message, hint="give one of them")
    if arguments.tokens is None or arguments.gpus is None:
        message = f"--recipe {arguments.recipe} says neither how long nor on how many GPUs"
        raise UsageError(message, hint="add --tokens N and --gpus N")
    run, notes = recipe_run(arguments.recipe, tokens=arguments.tokens, gpus=arguments.gpus)
    device = named_gpu(arguments.gpu or GPU, arguments.gpu_memory)
    report = estimate(
        run,
        vocab_size=arguments.vocab or VOCABULARY,
        processes=arguments.gpus,
        device=device,
        terms=_terms(arguments),
    )
    return report | {"run": None, "recipe": arguments.recipe, "notes": notes}


def _of_file(arguments: argparse.Namespace) -> Result:
    """A run file: its tokenizer, its shards and, if it ran before, its speed."""
    if arguments.run_file is None:
        message = "--plan needs a run"
        raise UsageError(message, hint="give RUN.yaml, or --recipe NAME --tokens N --gpus N")
    for name in ("tokens", "vocab"):
        if getattr(arguments, name) is not None:
            message = f"--{name} goes with --recipe: {arguments.run_file} says its own"
            raise UsageError(message, hint=f"leave --{name} out, or change the run file")
    from resources.hardware import named_gpu, this_device
    from resources.launcher import process_count
    from training.config import load_run
    from training.plan import open_data
    from training.planning.estimate import estimate, sources
    from training.vocabulary import Vocabulary

    run = load_run(arguments.run_file)
    here = arguments.gpus or process_count(run.nproc_per_node, run.device)
    processes = here * (1 if arguments.gpus else run.launch.nodes)
    if arguments.gpu:
        device = named_gpu(arguments.gpu, arguments.gpu_memory)
    else:
        device = this_device(run.device, here, arguments.gpu_memory)
    vocabulary = Vocabulary.open(run.tokenizer)
    data = open_data(run, vocabulary, tokens=False)
    report = estimate(
        run,
        vocab_size=vocabulary.size,
        processes=processes,
        device=device,
        terms=_terms(arguments, None if arguments.gpu else run.out, device.kind),
    )
    rows = sources(run, data.loader)
    named = {"run": run.name, "recipe": run.recipe}
    return report | {"sources": rows, "notes": data.notes} | named


def _terms(arguments: argparse.Namespace, out: Path | None = None, kind: str = "cuda") -> Any:
    """MFU as given, else as the run reached it here, else assumed; the price; a checkpoint's cost.

    `out`: folder of a run that would go on on this machine; `kind` of its device.
    """
    from training.planning.estimate import MFU, PRICE, Terms
    from training.watching.loglines import LINES

    mfu, source, rate = arguments.mfu, "given", None
    measured = measured_speed(out / LINES) if out else {}
    if mfu is None:
        mfu, source = MFU, "assumed"
        if kind == "cuda" and "mfu" in measured:
            mfu, source = measured["mfu"], "measured"
    if kind == "cpu":
        rate = measured.get("tokens_per_second")
    if not 0 < mfu <= 1:
        message = f"--mfu {mfu:g} is no share of the peak"
        raise UsageError(message, hint="0.4 is 40 %")
    price = PRICE if arguments.price is None else arguments.price
    return Terms(mfu, source, price, rate, arguments.checkpoint_seconds)


def measured_speed(path: Path) -> dict[str, float]:
    """Medians of `mfu` and `tokens_per_second` over the last steps of a run, where it logged any.

    On a CPU the speed of the run, on GPUs the share of their peak is what goes on.
    """
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_bytes().split(b"\n")[-LAST - 1 : -1]]
    found = {}
    for name in ("mfu", "tokens_per_second"):
        if values := [float(row[name]) for row in rows if row.get(name)]:
            found[name] = statistics.median(values)
    return found
