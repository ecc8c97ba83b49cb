"""What the page of `quality_classifier` shows: curves, calibration, short cuts, kinds left out.

Plots are PNG inside Markdown, since the web UI draws no charts; their numbers stand in tables
beside them.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets.display import table
from pipeline.excerpts import clean

INK, SOFT, ACCENT = "#1b2a33", "#8b98a1", "#0b6e8f"
SIZE = (4.6, 3.6)
DPI = 100


def classifier_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata from the report of `train_classifier`."""
    shown: dict[str, Any] = {}
    for name in ("auc", "accuracy", "average_precision"):
        if report.get(name) is not None:
            shown[name] = float(report[name])
    shown["model_bytes"] = int(report["model_bytes"])
    shown["rows"] = table(
        {"": side, "good": n["positive"], "bad": n["negative"]}
        for side, n in (("train", report["train"]), ("dev", report["dev"]))
    )
    shown["quantised_copy"] = _pairs(report["quantised"])
    if "precision_recall" in report:
        shown |= _measured(report)
    if "leave_kinds_out" in report:
        shown |= kinds_left_out(report["leave_kinds_out"])
    return shown


def _measured(report: Mapping[str, Any]) -> dict[str, Any]:
    calibration = report["reliability"]
    return {
        "precision_and_recall": picture(
            "precision and recall on the dev rows", precision_recall, report["precision_recall"]
        ),
        "reliability_plot": picture(
            "how often a score is right, on the dev rows", reliability, calibration["bins"]
        ),
        "ece": float(calibration["ece"]),
        "brier": float(calibration["brier"]),
        "curve": table(report["curve"]),
        "reliability_bins": table(calibration["bins"]),
        "confusion": _pairs({"threshold": report["working_threshold"], **report["confusion"]}),
        "auc_by_length": table(report["by_length"]),
        "auc_by_label_language": table(report["by_label_language"]),
        "auc_of_shortcuts": _pairs(report["shortcuts"]),
    }


def kinds_left_out(left: Mapping[str, Any]) -> dict[str, Any]:
    """AUC of kinds of sources that a model did not see in training."""
    one, both = left["one"], left["both"]
    rows = [{**row, "kind": clean(row["kind"])} for row in one["kinds"]]
    folds = [{**row, "left_out": clean(row["left_out"])} for row in both["folds"]]
    return {
        "auc_one_kind_left_out": float(one["auc_mean"] or 0.0),
        "auc_kinds_of_both_left_out": float(both["auc_mean"] or 0.0),
        "one_kind_left_out": table(rows),
        "kinds_of_both_left_out": table(folds),
    }


def _pairs(values: Mapping[str, Any]) -> dg.TableMetadataValue:
    return table({"": name, "value": value} for name, value in values.items())


def picture(caption: str, draw: Any, data: Sequence[Mapping[str, Any]]) -> dg.MarkdownMetadataValue:
    """A plot as Markdown; `draw(axes, data)` fills it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=SOFT, alpha=0.25, linewidth=0.6)
    draw(axes, data)
    out = io.BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    code = base64.b64encode(out.getvalue()).decode()
    return dg.MetadataValue.md(f"![{caption}](data:image/png;base64,{code})")


def precision_recall(axes: Any, points: Sequence[Mapping[str, Any]]) -> None:
    """Precision over recall; a few thresholds are written at the curve."""
    there = [p for p in points if p["precision"] is not None and p["recall"] is not None]
    axes.plot([p["recall"] for p in there], [p["precision"] for p in there], color=ACCENT)
    for point in there:
        if point["threshold"] in (0.1, 0.3, 0.5, 0.7, 0.9):
            at = (point["recall"], point["precision"])
            axes.plot(*at, "o", color=ACCENT, markersize=4)
            axes.annotate(
                f"{point['threshold']}", at, xytext=(-6, -12), textcoords="offset points",
                color=INK, fontsize=8, ha="right",
            )  # fmt: skip
    axes.set_xlabel("recall")
    axes.set_ylabel("precision (score at or above)")
    low = min((p["precision"] for p in there), default=0.0)
    axes.set_ylim(max(0.0, low - 0.1), 1.02)


def reliability(axes: Any, bins: Sequence[Mapping[str, Any]]) -> None:
    """Share of good rows over the mean score of each bin; the area of a dot is its rows."""
    there = [b for b in bins if b["rows"]]
    most = max((b["rows"] for b in there), default=1)
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=1)
    axes.plot([b["score"] for b in there], [b["good"] for b in there], color=ACCENT, linewidth=1)
    sizes = [12 + 120 * b["rows"] / most for b in there]
    axes.scatter(
        [b["score"] for b in there], [b["good"] for b in there], s=sizes, color=ACCENT, alpha=0.75
    )
    axes.set_xlabel("mean score")
    axes.set_ylabel("share of good rows")
