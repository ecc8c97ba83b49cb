"""Curves of a training run as images in Dagster's metadata, and as one page for MLflow.

The charts are the report's own (`assets.report.charts`): SVG, made without a library, put into
Markdown as data, so that no file has to be served. What is drawn are numbers of `metrics.jsonl`.
"""

import base64
import math
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

import dagster as dg

from assets.report.charts import Line, line_chart

STYLE = (
    "svg{background:#fff;font:12px sans-serif}text{fill:#444}.grid{stroke:#e4e4e4}"
    ".line{fill:none;stroke:#8a4b08;stroke-width:2}.second{stroke:#2b6cb0;stroke-dasharray:5 3}"
    ".dot{fill:#8a4b08}.reference{stroke:#888;stroke-dasharray:3 3}"
)
STEEP = 20
"""Times its median that a gradient norm may be before the others are too flat to see."""
Point = tuple[float, float]
Lines = Sequence[Mapping[str, Any]]


def image(svg: str, title: str) -> str:
    """A chart as Markdown with the image in it."""
    alone = svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    alone = alone.replace("<title>", f"<style>{STYLE}</style><title>", 1)
    data = base64.b64encode(alone.encode()).decode()
    return f"![{title}](data:image/svg+xml;base64,{data})"


def points(lines: Lines, key: str, x: str = "step") -> list[Point]:
    """(x, value) of the lines that have a finite value under `key`."""
    found = ((line[x], line.get(key)) for line in lines)
    return [(at, float(v)) for at, v in found if isinstance(v, int | float) and math.isfinite(v)]


def logarithms(line: Sequence[Point]) -> list[Point]:
    """The points with the base-10 logarithm of their heights, those above 0."""
    return [(x, math.log10(y)) for x, y in line if y > 0]


def charts(lines: Lines, reference: tuple[str, Lines] | None = None) -> list[tuple[str, str, str]]:
    """(name, what it shows, SVG) of a run's curves; those without a point are left out.

    `reference`: name and lines of a run to compare with, at equal tokens.
    """
    losses = [Line("loss", points(lines, "loss", "tokens"))]
    note = "Training loss by tokens."
    if reference is not None:
        last = max((line["tokens"] for line in lines), default=0)
        seen = [line for line in reference[1] if line["tokens"] <= last]
        losses.append(Line(reference[0], points(seen, "loss", "tokens")))
        note = f"Training loss by tokens; dashed: {reference[0]}."
    unigram = [y for _, y in points(lines, "batch_entropy")]
    level = (sum(unigram) / len(unigram), "entropy of a batch's own tokens") if unigram else None
    both = [Line("entropy", points(lines, "entropy")), Line("loss", points(lines, "loss"))]
    norm, unit = [Line("gradient norm", points(lines, "grad_norm"))], "norm"
    if limits := points(lines, "gate/norm_limit"):
        norm.append(Line("limit of the gate", limits))
    heights = [y for _, y in norm[0].points]
    if heights and max(heights) > STEEP * median(heights) > 0:
        norm, unit = [Line(one.name, logarithms(one.points)) for one in norm], "norm, log10"
    made = [
        ("loss", note, line_chart("Training loss", losses, x_label="tokens", y_label="nats per "
                                  "token", reference=level)),
        ("gradient_norm", "Gradient norm before clipping; dashed: the most that the gate lets by.",
         line_chart("Gradient norm", norm, x_label="step", y_label=unit)),
        ("entropy", "Entropy of the predictions; dashed: the loss. Far below it is collapse.",
         line_chart("Entropy of the predictions", both, x_label="step", y_label="nats")),
        ("update_ratio", "Update/weight ratio of a step; near 0.001 in healthy runs.",
         line_chart("Update/weight ratio", [Line("ratio", points(lines, "update_ratio"))],
                    x_label="step", y_label="ratio")),
    ]  # fmt: skip
    return [(name, shows, svg) for name, shows, svg in made if svg]


def curves(lines: Lines, reference: tuple[str, Lines] | None = None) -> dg.MetadataValue:
    """All curves of a run, one below the other."""
    found = charts(lines, reference)
    text = "\n\n".join(f"{shows}\n\n{image(svg, name)}" for name, shows, svg in found)
    return dg.MetadataValue.md(text or "No step has been logged yet.")


def page(
    title: str, texts: Sequence[str], lines: Lines, reference: tuple[str, Lines] | None
) -> str:
    """The curves and some sentences as one HTML file, which asks for nothing else."""
    told = "".join(f"<p>{escape(text)}</p>" for text in texts)
    figures = "".join(
        f"<figure>{svg}<figcaption>{escape(shows)}</figcaption></figure>"
        for _, shows, svg in charts(lines, reference)
    )
    style = f"body{{font:16px sans-serif;max-width:44rem;margin:2rem auto}}{STYLE}"
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body><h1>{escape(title)}</h1>{told}{figures}</body></html>\n"
    )
