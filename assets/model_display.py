"""What people see of a training run: its metadata in Dagster, and its pages at MLflow."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets import display, plots, spikes
from assets.trainstore import TrainStore
from pipeline.mill import Mill
from resources.tracking import TRAINING_PAGES, run_url
from training.config import RunConfig
from training.errors import TrainingError
from training.spikes.facts import SPIKES
from training.spikes.ledger import read_ledger
from training.watching import early
from training.watching.loglines import LINES, first_lines, some_lines

MLFLOW_URL = "GRISTMILL_MLFLOW_URL"
"""Where MLflow's web UI is; set by `gristmill up`."""
EARLY_CHECK = "early_run"
SHOWN = 4000
"""Steps that curves are drawn of."""
CURVE_ROWS = 20
SPIKES_NAMED = 5
"""Refused steps whose reports are shown whole, the last ones."""
RESULTS = (
    "status", "reason", "step", "steps", "tokens", "loss", "parameters", "active_parameters",
    "processes", "seconds", "mfu", "skips", "rewinds", "quarantines", "config_hash",
)  # fmt: skip
PARTS = ("data", "forward", "backward", "optimiser", "other")
Lines = Sequence[Mapping[str, Any]]


def mlflow_link() -> dict[str, Any]:
    """The way to MLflow for trainings that were made while no UI was up."""
    server = os.environ.get(MLFLOW_URL)
    page = f"{server}/#/experiments{TRAINING_PAGES}"
    return {"mlflow": dg.MetadataValue.url(page)} if server else {}


def run_metadata(
    mill: Mill,
    place: TrainStore,
    run: RunConfig,
    result: Mapping[str, Any],
    link: Mapping[str, Any],
) -> dict[str, Any]:
    """What the run came to, its curves, what hurt it, and the way to MLflow.

    `link`: `run_id` and `experiment_id` at MLflow, where it has the run.
    """
    lines = some_lines(run.out / LINES, SHOWN)
    shown: dict[str, Any] = numbers_of(result)
    if link.get("problem"):
        shown["mlflow_problem"] = link["problem"]
    if link.get("run_id"):
        if server := os.environ.get(MLFLOW_URL):
            address = run_url(server, link["experiment_id"], link["run_id"])
            shown["mlflow"] = dg.MetadataValue.url(address)
        shown["mlflow_run_id"] = link["run_id"]
    shown["checkpoint"] = dg.MetadataValue.path(place.address(result["checkpoint"]["path"]))
    found = early_metadata(run)
    first = {name: found.pop(name) for name in ("early_verdict", "early_reasons") if name in found}
    shown = first | shown | spike_metadata(mill, run.out)
    shown |= {"loss_curve": loss_curve(lines), "curves": plots.curves(lines)}
    if lines:
        shown["time_of_a_step"] = time_split(lines)
    return shown | found


def numbers_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a `result.json`; `held_out_...` are of the text that was kept apart."""
    found = {name: short(result[name]) for name in RESULTS if result.get(name) is not None}
    if found.get("active_parameters") == found.get("parameters"):
        found.pop("active_parameters", None)
    held_out = result.get("held_out") or {}
    return found | {f"held_out_{name}": value for name, value in held_out.items()}


def early_metadata(run: RunConfig) -> dict[str, Any]:
    """The early-run report: verdict, checks and the curves of those steps."""
    found = early_report(run.out)
    if found is None:
        return {}
    shown: dict[str, Any] = {"early_verdict": found["verdict"] or "too few steps"}
    if found["reasons"]:
        shown["early_reasons"] = "; ".join(found["reasons"])
    names = ("name", "verdict", "value", "watch", "stop", "why")
    shown["early_checks"] = display.table({k: one[k] for k in names} for one in found["checks"])
    seen = first_lines(run.out / LINES, found["of_steps"])
    return shown | {"early_curves": plots.curves(seen, reference(run))}


def early_check(out: Path) -> dg.AssetCheckResult:
    """The verdict of the early-run report as a check: `watch` warns, `stop` fails."""
    found = early_report(out)
    verdict = found["verdict"] if found else None
    reasons = "; ".join(found["reasons"]) if found else ""
    over = f"{found['steps']} of the first {found['of_steps']} steps" if found else "no step"
    return dg.AssetCheckResult(
        check_name=EARLY_CHECK,
        passed=verdict in ("healthy", None),
        severity=dg.AssetCheckSeverity.ERROR if verdict == "stop" else dg.AssetCheckSeverity.WARN,
        description=f"{verdict or 'too few to judge'}, {over}{': ' if reasons else ''}{reasons}",
    )


def early_report(out: Path) -> dict[str, Any] | None:
    """`early_report.json` of a run folder, if it is there."""
    path = out / early.FILE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def reference(run: RunConfig) -> tuple[str, Lines] | None:
    """Name and lines of the run that this one is compared with; None where it is not here."""
    name = run.watch.reference
    if name is None:
        return None
    try:
        return name, some_lines(early.reference_file(run.parent_root, name), SHOWN)
    except TrainingError:  # a run that was deleted since
        return None


def spike_metadata(mill: Mill, out: Path) -> dict[str, Any]:
    """Tables of the steps that were refused, with the page each would not go away from."""
    found, shown = spikes.spikes_of(mill, out), dict[str, Any]()
    if found:
        # sentences make narrow cells of a table tall; the reports have them
        short_rows = [{k: v for k, v in row.items() if k != "signs"} for row in spikes.rows(found)]
        shown["spikes"] = display.table(short_rows)
        pages = "\n\n".join(spikes.page(one) for one in found[-SPIKES_NAMED:])
        shown["spike_reports"] = dg.MetadataValue.md(pages)
    kept = read_ledger(out).of("quarantine")
    if kept:
        names = ("step", "from_sample", "to_sample", "reason", "first_step")
        shown["quarantine"] = display.table({k: one.get(k) for k in names} for one in kept)
    return shown


def artifacts(mill: Mill, run: RunConfig) -> dict[str, str]:
    """Pages for MLflow: a spike each, and the early-run report with its curves."""
    pages = {
        f"{SPIKES}/spike-{one.name}.md": spikes.page(one) for one in spikes.spikes_of(mill, run.out)
    }
    found = early_report(run.out)
    if found is not None:
        lines = first_lines(run.out / LINES, found["of_steps"])
        texts = [f"Verdict: {found['verdict'] or 'too few steps'}.", *found["reasons"]]
        title = f"Early run of {run.name}: {found['steps']} steps"
        pages["early_report.html"] = plots.page(title, texts, lines, reference(run))
    return pages


def time_split(lines: Lines) -> dg.TableMetadataValue:
    """Mean seconds of a step by part, over the steps that were timed."""
    timed = [line for line in lines if "time/step" in line]
    means = {p: sum(line[f"time/{p}"] for line in timed) / max(len(timed), 1) for p in PARTS}
    whole = max(sum(means.values()), 1e-12)
    return display.table(
        {"part": part, "milliseconds": short(1000 * value), "share": f"{value / whole:.1%}",
         "": display.bar(value / whole)}
        for part, value in means.items()
    )  # fmt: skip


def loss_curve(lines: Lines) -> dg.TableMetadataValue:
    """At most some twenty steps, the first and the last always, with bars for the loss."""
    every = max(1, -(-len(lines) // CURVE_ROWS))
    chosen = [*lines[:-1:every], *lines[-1:]]
    heights = [loss if math.isfinite(loss := _loss(one)) else 0.0 for one in chosen]
    most = max([*heights, 1e-12])
    names = ("step", "loss", "grad_norm", "entropy", "lr", "tokens_per_second")
    return display.table(
        {name: short(one.get(name)) for name in names if name in one}
        | {"": "refused" if one.get("skipped") else display.bar(height / most)}
        for one, height in zip(chosen, heights, strict=True)
    )


def _loss(line: Mapping[str, Any]) -> float:
    return float(line.get("loss", math.nan))  # `nan` and `inf` are text in the file


def short(value: Any) -> Any:
    """A number with the digits that a person reads; one that is not finite as text."""
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else str(value)
