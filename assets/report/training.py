"""The sections of the report that are about a training: what it learned, and what hurt it."""

from collections.abc import Sequence
from html import escape

from assets.report.charts import Line, line_chart
from assets.report.data import ReportData
from assets.report.html import excerpt, figure, table
from assets.spikes import DOCUMENTS, Spike, told

SPIKES = 5
CULPRITS = 6
"""Documents of a refused batch that are shown."""


def training(data: ReportData) -> str:
    """Loss and held-out curves, with what they mean."""
    loss = line_chart(
        "Training loss by step",
        [Line("training loss", data.losses)],
        x_label="step",
        y_label="nats per token",
    )
    unigram = data.unigram_bits_per_byte
    held = line_chart(
        "Held-out bits per byte by step",
        [Line("held-out", data.held_out)],
        x_label="step",
        y_label="bits per byte",
        reference=None if unigram is None else (unigram, f"unigram entropy {unigram:.3f}"),
    )
    figures = figure("Training loss", loss, _span(data.losses, "nats per token"))
    figures += figure("Held-out text", held, _span(data.held_out, "bits per byte"))
    if not figures:
        return ""
    early = f"<p>{escape(data.early)}</p>" if data.early else ""
    return f'{_learned(data)}{early}<div class="columns">{figures}</div>'


def _span(points: Sequence[tuple[int, float]], unit: str) -> str:
    if not points:
        return ""
    (first, start), (last, end) = points[0], points[-1]
    return f"From {start:.3f} at step {first:,} to {end:.3f} {unit} at step {last:,}."


def _learned(data: ReportData) -> str:
    unigram = data.unigram_bits_per_byte
    if unigram is None or not data.held_out:
        return ""
    last = data.held_out[-1][1]
    if last < unigram:
        text = f"{last:.3f} bits per byte on held-out text, below the {unigram:.3f}"
        tail = "of guessing tokens by their frequency alone: the model has learned context."
    else:
        text = f"{last:.3f} bits per byte on held-out text, not yet below the {unigram:.3f}"
        tail = "of guessing tokens by their frequency alone: train longer."
    return f"<p>{text} {tail}</p>"


def spikes(data: ReportData) -> str:
    """The steps that the gate refused, with the documents that were in their batches."""
    if not data.spikes:
        return ""
    note = (
        "A step whose loss or gradient stands far out of what came before is refused: the weights "
        "stay as they were. These are the documents that were in it, the highest loss first."
    )
    if (more := len(data.spikes) - SPIKES) > 0:
        note += f" {more} more steps were refused."
    return f"<p>{note}</p>" + "".join(_spike(one) for one in data.spikes[:SPIKES])


def _spike(spike: Spike) -> str:
    items = "".join(f"<li>{escape(fact)}</li>" for fact in told(spike))
    shown = spike.culprits[:CULPRITS]
    rows = [
        [
            f"{c.url} (stands out)" if c.suspect else c.url,
            c.source,
            c.language,
            c.place,
            "" if c.quality is None else f"{c.quality:.2f}",
            "" if c.loss is None else f"{c.loss:.3f}",
        ]
        for c in shown
    ]
    head = ["document", "source", "language", "place in the shards", "quality", "loss"]
    text = shown[0].excerpt if shown else ""
    begins = f'<p class="excerpt">The first one begins: {excerpt(text)}</p>' if text else ""
    return (
        f'<div class="card stacked"><h3>Step {spike.step} was {escape(spike.action)}: '
        f"{escape(spike.reason)}</h3><ul>{items}</ul>"
        f"{table(DOCUMENTS, head, rows, numbers=2)}{begins}</div>"
    )
