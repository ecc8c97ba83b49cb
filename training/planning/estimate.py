"""What a run comes to before it is started: size, arithmetic, time, money, memory, checkpoints.

    operations   tokens x `training.planning.flops.flops_per_token` (6 N and attention)
    GPU hours    operations / (peak of the data sheet x MFU) / 3600
    failures     466 interruptions in 54 days on 16,384 GPUs (Llama 3, arXiv:2407.21783, section
                 3.3.4): 2.2e-5 a GPU and hour; the time between two is 1 / (rate x GPUs)
    checkpoints  every sqrt(2 C x time between failures) seconds (Young, 1974; Daly, 2006), where C
                 is how long training stands still for one: weights and moments to host memory, the
                 rest is written meanwhile

Time lost: C in every interval, and at every failure half an interval and a restart. MFU is assumed
unless one was measured: 40 %, where torchtitan states 33 to 39 % for 8B on H100. No torch here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.config import MOST_STEPS, RunConfig
from training.data import Loader
from training.errors import RunConfigError
from training.planning.flops import (
    active_parameters,
    flops_per_token,
    matrix_parameters,
    parameter_count,
    peak_flops,
)
from training.planning.footprint import GIB, Device, check_fit
from training.recipes import RECIPES
from training.samples.course import Course

MFU = 0.40
PRICE = 3.0  # dollars a GPU and hour
VOCABULARY = 128_256  # Llama 3's; of a recipe without a tokenizer
FAILURES_PER_GPU_HOUR = 466 / (54 * 24 * 16_384)
STAGING_BYTES_PER_SECOND = 10e9  # from a GPU to host memory, all GPUs at once; PCIe 4 has 25
LEAST_STALL_SECONDS = 1.0  # for the ranks to agree on what is saved: a guess
RESTART_SECONDS = 600.0  # found, started again, loaded: a guess, and on the high side
Report = dict[str, Any]


@dataclass(frozen=True)
class Terms:
    """What an estimate assumes."""

    mfu: float = MFU
    mfu_source: str = "assumed"
    price: float = PRICE
    tokens_per_second: float | None = None
    """What the run reached where it was started before; in place of peak and MFU."""
    checkpoint_seconds: float | None = None
    """How long a checkpoint stops training; default: by its size."""


def recipe_run(recipe: str, *, tokens: float, gpus: int) -> tuple[RunConfig, list[str]]:
    """A run of a recipe alone, over so many tokens, and what was changed to make one of it.

    The global batch becomes a multiple of the GPUs. RunConfigError for an unknown recipe, fewer
    tokens than a step has, or more steps than a run may have.
    """
    if recipe not in RECIPES:
        message = f"recipe {recipe!r} is not known"
        raise RunConfigError(message, hint=f"one of {', '.join(RECIPES)}")
    made = RECIPES[recipe]()
    batch = math.ceil(made.global_batch / gpus) * gpus
    steps = round(tokens / (batch * made.context))
    if steps < 1:
        message = f"{tokens:g} tokens are less than one step of {recipe}: {batch * made.context:,}"
        raise RunConfigError(message, hint="give more --tokens, or fewer --gpus")
    if steps > MOST_STEPS:
        message = f"{tokens:g} tokens are {steps:,} steps of {recipe}, and a run has {MOST_STEPS:,}"
        raise RunConfigError(message, hint="give fewer --tokens, or a larger recipe")
    place = Path(recipe)
    settings = made.model_dump() | {"global_batch": batch, "steps": steps}
    # as `training.config` completes a run file
    settings |= {"warmup_steps": min(made.warmup, steps // 10), "name": recipe, "recipe": recipe}
    places = {"shards": [place], "tokenizer": place, "out": place, "parent_root": place}
    notes = []
    if batch != made.global_batch:
        notes = [f"global_batch is {batch} in place of {made.global_batch}, for {gpus} GPUs"]
    return RunConfig(**settings | places), notes


def estimate(
    run: RunConfig, *, vocab_size: int, processes: int, device: Device, terms: Terms
) -> Report:
    """The estimate as JSON values; RunConfigError where the run does not fit its processes."""
    memory = check_fit(run, processes, vocab_size, device)
    tokens = Course(run).tokens_until(run.steps)
    each = flops_per_token(run.model, vocab_size, run.context)
    parameters = parameter_count(run.model, vocab_size)
    report: Report = {
        "parameters": parameters,
        "active_parameters": active_parameters(run.model, vocab_size),
        "matrix_parameters": matrix_parameters(run.model, vocab_size),
        "vocab_size": vocab_size,
        "steps": run.steps,
        "tokens": tokens,
        "tokens_per_parameter": round(tokens / parameters, 2),
        "tokens_per_step": run.global_batch * run.context,
        "flops_per_token": each,
        "flops": each * tokens,
        "processes": processes,
        "device": device.name,
        "memory_bytes": asdict(memory) | {"total": memory.total, "limit": device.memory},
    }
    report |= _time(run, report, device, terms)
    return report | {"checkpoints": _checkpoints(run, report, device, terms)}


def _time(run: RunConfig, report: Report, device: Device, terms: Terms) -> Report:
    """Hours and money; None where neither a peak nor a speed is known. A CPU has no price."""
    peak = peak_flops(device.name, "float8" if run.parallel.fp8 else run.dtype)
    n, cuda = report["processes"], device.kind == "cuda"
    rate = terms.tokens_per_second
    if rate is None and peak is not None and cuda:
        rate = peak * terms.mfu * n / report["flops_per_token"]
    found: Report = {"mfu": terms.mfu if cuda else None, "mfu_source": terms.mfu_source,
                     "price_per_gpu_hour": terms.price if cuda else None}  # fmt: skip
    names = ("tokens_per_second", "step_seconds", "gpu_hours", "days", "cost", "cost_per_day")
    if rate is None:
        return found | dict.fromkeys(names)
    seconds = report["tokens"] / rate
    hours = seconds * n / 3600
    return found | {
        "tokens_per_second": round(rate),
        "step_seconds": report["tokens_per_step"] / rate,
        "gpu_hours": hours,
        "days": seconds / 86_400,
        "cost": hours * terms.price if cuda else None,
        "cost_per_day": n * 24 * terms.price if cuda else None,
    }


def _checkpoints(run: RunConfig, report: Report, device: Device, terms: Terms) -> Report:
    """Size, interval and what failures cost."""
    memory = report["memory_bytes"]
    held = (memory["weights"] + memory["optimiser"]) / max(memory["weights"], 1)
    size = round(4 * report["parameters"] * held)
    n = report["processes"]
    stall = terms.checkpoint_seconds
    if stall is None:
        stall = max(size / n / STAGING_BYTES_PER_SECOND, LEAST_STALL_SECONDS)
    out: Report = {"bytes": size, "stall_seconds": stall, "kept": run.keep_checkpoints}
    if device.kind != "cuda":
        return out | {"every_steps": None}
    between = 3600 / (FAILURES_PER_GPU_HOUR * n)
    interval = young_daly(stall, between)
    lost = stall / interval + (interval / 2 + RESTART_SECONDS) / between
    out |= {
        "seconds_between_failures": between,
        "interval_seconds": interval,
        "lost_share": lost,
    }
    if not report["gpu_hours"]:
        return out | {"every_steps": None}
    seconds = report["days"] * 86_400
    return out | {
        "every_steps": max(round(interval / report["step_seconds"]), 1),
        "failures": seconds / between,
        "gpu_hours_with_failures": report["gpu_hours"] * (1 + lost),
        "cost_with_failures": report["cost"] * (1 + lost),
    }


def young_daly(stall_seconds: float, seconds_between_failures: float) -> float:
    """Seconds between two checkpoints that lose the least time: sqrt(2 C M)."""
    return math.sqrt(2 * stall_seconds * seconds_between_failures)


def sources(run: RunConfig, loader: Loader) -> list[Report]:
    """A row a source: what there is of it, and how much and how often the run reads it."""
    course = Course(run)
    taken = loader.order.taken(course.samples_until(run.steps)).tolist()
    return [
        {
            "source": source.name,
            "available_tokens": source.n_tokens,
            "documents": sum(shard.n_documents for shard in source.shards),
            "sequences": source.n_rows,
            "tokens": round(n * source.n_tokens / source.n_rows) if source.n_rows else 0,
            "epochs": round(n / source.n_rows, 3) if source.n_rows else 0.0,
        }
        for source, n in zip(loader.sources, taken, strict=True)
    ]


def lines_of(report: Report) -> list[str]:
    """The estimate for a person."""
    memory, saved = report["memory_bytes"], report["checkpoints"]
    parts = ", ".join(
        f"{name} {size / GIB:.2f}"
        for name, size in memory.items()
        if size and name not in ("total", "limit")
    )
    limit = f" of {memory['limit'] / GIB:.1f}" if memory["limit"] else ""
    lines = [
        f"model        {short(report['parameters'])} parameters, "
        f"{short(report['active_parameters'])} active (vocabulary {report['vocab_size']:,})",
        f"length       {short(report['tokens'])} tokens, {report['tokens_per_parameter']:g} a "
        f"parameter; {report['steps']:,} steps of {short(report['tokens_per_step'])}",
        f"arithmetic   {report['flops_per_token']:.3g} FLOP a token, {report['flops']:.3g} in all",
        f"memory       {memory['total'] / GIB:.1f}{limit} GiB a process ({parts})",
    ]
    lines += _time_lines(report)
    lines.append(f"checkpoint   {saved['bytes'] / 1e9:,.1f} GB, {saved['kept']} kept")
    if saved["every_steps"]:
        hours = saved["seconds_between_failures"] / 3600
        lines.append(
            f"             every {saved['every_steps']:,} steps "
            f"({saved['interval_seconds']:,.0f} s): it takes {saved['stall_seconds']:.1f} s, a "
            f"failure comes every {hours:,.1f} h, {saved['failures']:,.0f} in all; "
            f"{saved['lost_share']:.1%} of the time is lost"
        )
    return [*lines, *(source_line(row) for row in report.get("sources", []))]


def _time_lines(report: Report) -> list[str]:
    n, device = report["processes"], report["device"]
    if report["gpu_hours"] is None:
        return [f"time         not known: no peak is listed for {device}, and none was measured"]
    rate = f"{report['days']:,.2f} days, {short(report['tokens_per_second'])} tokens a second"
    if report["cost"] is None:
        return [f"time         {rate}, as measured, on {n} processes of {device}"]
    return [
        f"time         {report['gpu_hours']:,.0f} GPU hours at {report['mfu']:.0%} MFU "
        f"({report['mfu_source']}) on {n:,} x {device}: {rate}",
        f"cost         ${report['cost']:,.0f} at ${report['price_per_gpu_hour']:g} a GPU hour, "
        f"${report['cost_per_day']:,.0f} a day",
    ]


def source_line(row: Report) -> str:
    """One source."""
    return (
        f"source       {row['source']}: {short(row['tokens'])} tokens read of "
        f"{short(row['available_tokens'])}, {row['epochs']:g} passes"
    )


def short(n: float) -> str:
    """1.23B and the like."""
    for size, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.4g}{name}"
    return f"{n:g}"
