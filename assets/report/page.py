"""The report of a run as one HTML page that opens offline: `render(data)`.

What came in, what fell and why, what was learned, and one token followed back to the record it was
read from. The page makes no request (its content policy forbids it), runs no script, and follows
the reader's light or dark setting. Page texts are untrusted: give them scrubbed; here they are
escaped and cut to 200 characters.
"""

import re
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files

from assets.report.charts import histogram, stacked_bar
from assets.report.data import Example, Pair, ReportData, Stage
from assets.report.html import EXCERPT, bars, excerpt, figure, marked, size_text, table
from assets.report.training import spikes, training

COLOURED = 7
"""Drop reasons of a stage that get a colour of their own; the rest are summed."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(data: ReportData) -> str:
    """The page for `data`, a complete HTML document."""
    sections = [(name, title, body) for name, title, make in SECTIONS if (body := make(data))]
    contents = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _ in sections)
    blocks = "".join(
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>'
        f"{body}</section>"
        for name, title, body in sections
    )
    style = files("assets.report").joinpath("style.css").read_text("utf-8")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{escape(data.title)}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
<header>
<p class="eyebrow">Gristmill report</p>
<h1>{escape(data.title)}</h1>
<p class="lead">{escape(data.lead)}</p>
{_tiles(data.facts)}
<nav aria-label="Contents"><ul>{contents}</ul></nav>
</header>
<main id="main">{blocks}</main>
<footer>{escape(data.footer)}</footer>
</body>
</html>
"""


def _tiles(facts: Sequence[tuple[str, str, str]]) -> str:
    tiles = "".join(
        f'<div class="tile"><dt>{escape(label)}</dt><dd>{escape(value)}'
        f"<small>{escape(note)}</small></dd></div>"
        for label, value, note in facts
    )
    return f'<dl class="tiles">{tiles}</dl>' if tiles else ""


def _funnel(data: ReportData) -> str:
    if not data.funnel:
        return ""
    by_partition: dict[str, list[Stage]] = {}
    for stage in data.funnel:
        by_partition.setdefault(stage.partition, []).append(stage)
    cards = "".join(_funnel_card(name, stages) for name, stages in by_partition.items())
    note = (
        "Every record is kept or dropped for a reason that is counted. Bars are as long as what "
        "came in, against the largest stage of the same snapshot."
    )
    return f"<p>{note}</p>{cards}"


def _funnel_card(partition: str, stages: Sequence[Stage]) -> str:
    scale = max(max(stage.records_in, stage.kept) for stage in stages)
    rows = "".join(_funnel_row(stage, scale) for stage in stages)
    reasons = [
        [stage.name, reason, f"{count:,}", f"{count / max(1, stage.records_in):.1%}"]
        for stage in stages
        for reason, count in _ranked(stage.reasons)
    ]
    head = ["stage", "reason", "dropped", "of what came in"]
    shown = table(f"Drop reasons of {partition}", head, reasons, numbers=2)
    counts = f"<details><summary>All {len(reasons)} counts as a table</summary>{shown}</details>"
    return (
        f'<div class="card stacked"><h3>{escape(partition)}</h3>{rows}'
        f"{counts if reasons else ''}</div>"
    )


def _ranked(reasons: dict[str, int]) -> list[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda item: (-item[1], item[0]))


def _funnel_row(stage: Stage, scale: int) -> str:
    ranked = _ranked(stage.reasons)
    parts = [("kept", "kept", stage.kept)]
    parts += [(f"d{i}", name, n) for i, (name, n) in enumerate(ranked[:COLOURED], start=1)]
    rest = sum(count for _, count in ranked[COLOURED:])
    if rest:
        parts.append(("other", f"{len(ranked) - COLOURED} more", rest))
    items = "".join(
        f'<li><i class="{style}"></i>{escape(label)} {count:,}</li>'
        for style, label, count in parts
    )
    legend = f'<ul class="legend">{items}</ul>' if len(parts) > 1 else ""
    share = stage.kept / max(1, stage.records_in)
    return (
        f'<div class="stage"><span class="name">{escape(stage.name)}</span>'
        f"{stacked_bar(parts, scale)}"
        f'<p class="sum">{stage.records_in:,} {escape(stage.unit)} in, {stage.kept:,} kept '
        f"({share:.0%})</p>{legend}</div>"
    )


def _corpus(data: ReportData) -> str:
    languages = [
        (name, docs, [f"{docs:,}", size_text(size)]) for name, docs, size in data.languages
    ]
    hosts = [(host, came, [f"{came:,}", f"{kept:,}"]) for host, came, kept in data.hosts]
    chart = histogram(
        "Documents by quality score", data.score_counts, threshold=data.score_threshold
    )
    blocks = [
        bars("Languages", ["language", "documents", "text"], languages, ""),
        bars("Hosts", ["host", "in", "kept"], hosts, "warm"),
        figure("Quality score", chart, "Documents by score; what lies below the dashed line fell.")
        if data.score_threshold
        else figure("Quality score", chart, "Documents by score; none is dropped for it here."),
    ]
    found = "".join(block for block in blocks if block)
    note = "What the filters left, by language, site and score."
    return f'<p>{note}</p><div class="masonry">{found}</div>' if found else ""


def _examples(data: ReportData) -> str:
    columns = [
        f'<div class="card"><h3>{title}</h3><ul class="examples">'
        + "".join(_example(example) for example in examples)
        + "</ul></div>"
        for title, examples in (("Kept", data.kept), ("Dropped", data.dropped))
        if examples
    ]
    pairs = "".join(_pair(pair) for pair in data.pairs)
    if not columns and not pairs:
        return ""
    near = f"<h3>Near-duplicates, differences marked</h3>{pairs}" if pairs else ""
    note = f"Excerpts of at most {EXCERPT} characters, personal data replaced."
    return f'<p>{note}</p><div class="columns">{"".join(columns)}</div>{near}'


def _example(example: Example) -> str:
    tag = ""
    if example.reason:
        measured = "" if example.value is None else f", value {example.value:.4g}"
        if example.threshold is not None:
            measured += f", threshold {example.threshold:.4g}"
        tag = f'<span class="tag">{escape(example.reason)}{measured}</span>'
    return (
        f'<li>{tag}<p class="excerpt">{excerpt(example.text)}</p>'
        f'<p class="source">{excerpt(example.url)}</p></li>'
    )


def _pair(pair: Pair) -> str:
    kept, dropped = marked(pair.kept_text, pair.dropped_text)
    sides = (("kept", kept, pair.kept_url), ("dropped", dropped, pair.dropped_url))
    halves = "".join(
        f'<div><span class="tag">{name}</span><p class="excerpt">{text}</p>'
        f'<p class="source">{excerpt(url)}</p></div>'
        for name, text, url in sides
    )
    return (
        f'<div class="card stacked">similarity <strong>{pair.similarity:.3f}</strong>'
        f'<div class="pair">{halves}</div></div>'
    )


def _tokens(data: ReportData) -> str:
    rows = [
        (row.name, row.text_bytes / max(1, row.tokens),
         [f"{row.text_bytes / max(1, row.tokens):.2f}", f"{row.tokens:,}", f"{row.documents:,}",
          size_text(row.text_bytes)])
        for row in data.tokens
    ]  # fmt: skip
    if not rows:
        return ""
    note = "Bytes of text a token stands for: more is cheaper, and small languages pay most."
    head = ["source or language", "bytes per token", "tokens", "documents", "text"]
    return f"<p>{note}</p>{bars('Bytes per token', head, rows, '')}"


def _token(data: ReportData) -> str:
    token = data.token
    if token is None:
        return ""
    context = excerpt(token.context)
    shown = escape(token.token.strip())
    if shown:
        context = re.sub(re.escape(shown), f'<span class="token">{shown}</span>', context, count=1)
    links = (
        (
            "Token",
            f'<span class="token">{escape(token.token)}</span> <code>id {token.token_id}</code>',
        ),
        ("Place in the shard", f"<code>{escape(token.shard)}:{token.offset}</code>"),
        ("Document", f'<code>{escape(token.doc_id)}</code><p class="excerpt">{context}</p>'),
        ("Page", f"<code>{excerpt(token.url)}</code>"),
        ("Licence mark", f"<code>{escape(token.licence or 'none found in the page')}</code>"),
        (
            "Crawl record",
            f"<code>{escape(token.warc_file)}</code>, bytes <code>{token.warc_offset:,}</code> to "
            f"<code>{token.warc_offset + token.warc_length:,}</code>",
        ),
    )
    steps = "".join(f"<li><b>{name}</b>{body}</li>" for name, body in links)
    note = "Any token of a shard leads back to the bytes of the record it was read from."
    return f'<p>{note}</p><div class="card"><ol class="chain">{steps}</ol></div>'


def _sample(data: ReportData) -> str:
    if not data.continuation:
        return ""
    note = "A model this small writes no sense. Spelling and rhythm are what it can have learned."
    return (
        f'<p>{note}</p><div class="card"><blockquote><span class="prompt">{escape(data.prompt)}'
        f"</span>{escape(data.continuation[: 4 * EXCERPT])}</blockquote></div>"
    )


def _checks(data: ReportData) -> str:
    if not data.checks:
        return ""
    items = "".join(
        f'<li><span class="verdict {escape(check.verdict)}">{escape(check.verdict.upper())}</span> '
        f"<strong>{escape(check.name)}</strong><br>{escape(check.text)}</li>"
        for check in data.checks
    )
    return f'<div class="card"><ul class="examples">{items}</ul></div>'


def _times(data: ReportData) -> str:
    rows = [(name, seconds, [f"{seconds:.1f} s"]) for name, seconds in data.times]
    if not rows:
        return ""
    total = sum(seconds for _, seconds in data.times)
    shown = bars("Seconds by step", ["step", "time"], rows, "warm")
    return f"<p>{total:.0f} seconds in all.</p>{shown}"


def _commands(data: ReportData) -> str:
    items = "".join(
        f"<dt>{escape(what)}</dt><dd><code>{escape(command)}</code></dd>"
        for what, command in data.commands
    )
    return f'<div class="card"><dl class="commands">{items}</dl></div>' if items else ""


SECTIONS: tuple[tuple[str, str, Callable[[ReportData], str]], ...] = (
    ("funnel", "What came in, what fell", _funnel),
    ("corpus", "The corpus", _corpus),
    ("pages", "Pages, kept and dropped", _examples),
    ("tokens", "Tokens", _tokens),
    ("training", "What the model learned", training),
    ("spikes", "What hurt the model", spikes),
    ("trace", "One token, traced", _token),
    ("sample", "The model writes", _sample),
    ("checks", "Checks", _checks),
    ("times", "Where the time went", _times),
    ("next", "What to try next", _commands),
)
