"""Charts of the report as plain SVG and HTML: no script, no library, readable without colour.

Every chart carries its numbers as text too (a title, a caption or a table beside it), so that a
screen reader or a text browser loses nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 18, 36, 44
MAX_POINTS = 400
"""Points of a line that a screen can tell apart."""


@dataclass(frozen=True)
class Line:
    """One curve: a name and its points (x, y), x ascending."""

    name: str
    points: Sequence[tuple[float, float]]


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    y_label: str,
    reference: tuple[float, str] | None = None,
) -> str:
    """An SVG of up to two curves with axes, and a dashed level `(value, label)` to compare with.

    Points that are not finite are left out; without any point left, the empty string.
    """
    curves = [Line(line.name, thin(line.points)) for line in lines]
    points = [point for curve in curves for point in curve.points]
    if not points:
        return ""
    xs = [x for x, _ in points]
    ys = [y for _, y in points] + ([reference[0]] if reference else [])
    frame = _Frame(min(xs), max(xs), *_padded(min(ys), max(ys)))
    parts = [frame.axes(x_label, y_label)]
    for curve, style in zip(curves, ("line", "line second"), strict=False):
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in curve.points)
        parts.append(f'<polyline class="{style}" points="{path}"/>')
        if len(curve.points) <= 12:
            parts += [
                f'<circle class="dot" cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3.5"/>'
                for x, y in curve.points
            ]
    if reference:
        parts.append(frame.level(*reference))
    return _svg(title, "".join(parts))


def thin(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The finite points, about `MAX_POINTS` at most: first, last, and of each stretch between them
    the lowest and the highest, so that a spike of one step is never lost.
    """
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    if len(finite) <= MAX_POINTS:
        return finite
    size = math.ceil(2 * len(finite) / MAX_POINTS)
    kept = {0, len(finite) - 1}
    for start in range(0, len(finite), size):
        stretch = range(start, min(start + size, len(finite)))
        kept |= {pick(stretch, key=lambda n: finite[n][1]) for pick in (min, max)}
    return [finite[n] for n in sorted(kept)]


def _padded(low: float, high: float) -> tuple[float, float]:
    margin = (high - low) * 0.08 or max(abs(high), 1.0) * 0.08
    return (max(0.0, low - margin) if low >= 0 else low - margin), high + margin


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers between `low` and `high`: steps of 1, 2 or 5 times a power of ten."""
    if high <= low:
        return [low]
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 5, 10) if power * f >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class _Frame:
    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        share = (value - self.x_low) / ((self.x_high - self.x_low) or 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        share = (value - self.y_low) / ((self.y_high - self.y_low) or 1.0)
        return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)

    def axes(self, x_label: str, y_label: str) -> str:
        parts = []
        for value in ticks(self.y_low, self.y_high):
            y = self.y(value)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        for value in ticks(self.x_low, self.x_high, 6):
            x = self.x(value)
            parts.append(
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle">'
                f"{value:g}</text>"
            )
        parts.append(
            f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{escape(x_label)}</text>'
        )
        parts.append(f'<text x="4" y="16">{escape(y_label)}</text>')
        return "".join(parts)

    def level(self, value: float, label: str) -> str:
        y = self.y(value)
        text_y = y - 6 if y > TOP + 16 else y + 16
        return (
            f'<line class="reference" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            # at the left, where a curve that falls is still far above
            f'<text class="reference-label" x="{LEFT + 4}" y="{text_y:.1f}">{escape(label)}</text>'
        )


def histogram(title: str, counts: Sequence[int], *, threshold: float | None = None) -> str:
    """An SVG of counts over [0, 1] in equal bins; bins below `threshold` are set apart."""
    if not any(counts):
        return ""
    frame = _Frame(0.0, 1.0, 0.0, max(counts) * 1.08)
    parts = [frame.axes("score", "documents")]
    for index, count in enumerate(counts):
        left, right = frame.x(index / len(counts)), frame.x((index + 1) / len(counts))
        top = frame.y(count)
        below = threshold is not None and (index + 1) / len(counts) <= threshold + 1e-9
        parts.append(
            f'<rect class="column{" below" if below else ""}" x="{left + 1:.1f}" y="{top:.1f}" '
            f'width="{right - left - 2:.1f}" height="{frame.y(0) - top:.1f}"/>'
        )
    if threshold is not None:
        x = frame.x(threshold)
        parts.append(
            f'<line class="reference" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{frame.y(0):.1f}"/>'
        )
    return _svg(title, "".join(parts))


def _svg(title: str, body: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{escape(title)}</title>{body}</svg>'
    )


def stacked_bar(parts: Sequence[tuple[str, str, int]], scale: int) -> str:
    """A bar of segments `(class, label, count)`; its length is their sum over `scale`."""
    total = sum(count for _, _, count in parts)
    width = 100 * total / scale if scale else 0
    segments = "".join(
        f'<i class="{style}" style="width:{100 * count / total:.3f}%" '
        f'title="{escape(label)}: {count:,}"></i>'
        for style, label, count in parts
        if count
    )
    return f'<div class="bar" style="width:{width:.2f}%" aria-hidden="true">{segments}</div>'


def meter(value: float, largest: float, style: str = "") -> str:
    """A table cell with a bar as long as `value` is of `largest`."""
    width = 100 * value / largest if largest > 0 else 0
    bar = f'<i class="{style}" style="width:{width:.1f}%"></i>'
    return f'<td class="meter" aria-hidden="true">{bar}</td>'
