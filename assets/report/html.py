"""Pieces of HTML that the sections of the report share; all escaping of untrusted text is here."""

import difflib
from collections.abc import Iterable, Sequence
from html import escape

from assets.report.charts import meter

EXCERPT = 200
"""Longest stretch of a page that is ever shown, in characters."""


def excerpt(text: str) -> str:
    """Untrusted text on one line, at most 200 characters, escaped."""
    line = " ".join(text.split())
    return escape(line if len(line) <= EXCERPT else line[: EXCERPT - 1].rstrip() + "…")


def size_text(size: int) -> str:
    """Bytes for people: `1.2 MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} B"


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A table whose last `numbers` columns are right-aligned; cells are escaped here."""
    first = len(head) - numbers
    heads = "".join(
        f'<th scope="col"{_number(i >= first)}>{escape(name)}</th>' for i, name in enumerate(head)
    )
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(
            f"<td{_number(i >= first)}>{escape(cell)}</td>" for i, cell in enumerate(row) if i
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _number(yes: bool) -> str:
    return ' class="n"' if yes else ""


def bars(
    caption: str, head: Sequence[str], rows: Sequence[tuple[str, float, Sequence[str]]], style: str
) -> str:
    """A table of `(name, length of the bar, cells)`."""
    if not rows:
        return ""
    largest = max(length for _, length, _ in rows)
    heads = f'<th scope="col">{escape(head[0])}</th><td></td>' + "".join(
        f'<th scope="col" class="n">{escape(name)}</th>' for name in head[1:]
    )
    lines = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{meter(length, largest, style)}'
        + "".join(f'<td class="n">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for name, length, cells in rows
    )
    return (
        f'<div class="card"><div class="scroll"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div></div>"
    )


def figure(title: str, chart: str, caption: str) -> str:
    """A card with a chart and its caption; nothing where there is no chart."""
    if not chart:
        return ""
    return (
        f'<div class="card"><h3>{escape(title)}</h3><figure>{chart}'
        f"<figcaption>{escape(caption)}</figcaption></figure></div>"
    )


def marked(first: str, second: str) -> tuple[str, str]:
    """Windows of two texts around their first difference, differing words in `<mark>`, escaped."""
    left, right = first.split(), second.split()
    same = next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b),
        min(len(left), len(right)),
    )
    start = max(0, same - 12)
    left, right = _window(left[start:]), _window(right[start:])
    out: tuple[list[str], list[str]] = ([], [])
    for kind, a, b, c, d in difflib.SequenceMatcher(
        None, left, right, autojunk=False
    ).get_opcodes():
        for words, side in ((left[a:b], out[0]), (right[c:d], out[1])):
            text = escape(" ".join(words))
            if text:
                side.append(text if kind == "equal" else f"<mark>{text}</mark>")
    return " ".join(out[0]), " ".join(out[1])


def _window(words: Sequence[str]) -> list[str]:
    kept: list[str] = []
    room = EXCERPT
    for word in words:
        room -= len(word) + 1
        if room < 0:
            break
        kept.append(word)
    return kept or [word[:EXCERPT] for word in words[:1]]
