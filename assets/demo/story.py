"""The end of the demo: its report, and the words it closes with."""

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assets.demo.poison import URL
from assets.report.fill import collect
from assets.report.page import render
from assets.spikes import rows
from pipeline.config import Config
from pipeline.mill import Mill, registered_snapshots
from pipeline.stages.sources import source_names
from resources.mill import open_mill

LEAD = (
    "Two overlapping crawl snapshots, built from text that was already on this machine, went "
    "through the whole graph to a trained model. One document was planted to hurt it. Every number "
    "here comes from the manifests of the run."
)
REASONS = 12
SPIKES = 5
CRAWL_FILES = 4
PAGES_A_FILE = 30_000
"""Pages in one WARC file of a recent public crawl, about; it is 1.1 GB."""
GB_A_FILE = 1.1


def write_report(
    config: Config, run: str, path: Path, times: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    """Write the report of a finished demo; what its closing lines say, and those lines."""
    root = Path(config.storage.root or ".")
    mill = open_mill(config)
    sources = source_names(config.sources.location)
    data = collect(
        mill,
        title="Gristmill demo",
        lead=LEAD,
        run_folder=root / "checkpoints" / run,
        sources=sources,
        writing=writing(root / "evaluation" / run / "evaluation.json"),
        times=times,
    )
    token = f"{data.token.shard}:{data.token.offset}" if data.token else None
    step = f"{run}:{data.spikes[0].step}" if data.spikes else None
    data = replace(data, commands=commands(mill, token, step))
    path.write_text(render(data), encoding="utf-8")
    summary = figures(mill, root, run, sources)
    summary["spikes"] = rows(data.spikes)
    return {**summary, "token": token, "closing": closing(summary, path, data.commands)}


def writing(evaluation: Path) -> tuple[str, str]:
    """The prompt and continuation of the first sample."""
    found = json.loads(evaluation.read_text(encoding="utf-8"))["continuations"]
    return (found[0]["prompt"], found[0]["continuation"]) if found else ("", "")


def figures(mill: Mill, root: Path, run: str, sources: Sequence[str]) -> dict[str, Any]:
    """What was kept and why, over both snapshots."""
    snapshots = registered_snapshots(mill.root)
    reasons: dict[str, int] = {}
    kept = {}
    for asset in ("extracted_text", "filtered_text", "deduped_corpus", "scrubbed_corpus"):
        made = [m for name in snapshots if (m := mill.find(asset, name))]
        kept[asset] = sum(m.content.counts.kept for m in made)
        for manifest in made:
            for reason, n in manifest.content.counts.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + n
    result = json.loads((root / "checkpoints" / run / "result.json").read_text(encoding="utf-8"))
    return {
        "pages": kept["extracted_text"],
        "kept_by_the_rules": round(kept["filtered_text"] / max(kept["extracted_text"], 1), 3),
        "reasons": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "web_text_bytes": _bytes(mill, snapshots),
        "source_text_bytes": _bytes(mill, sources),
        "training": {name: result[name] for name in ("step", "tokens", "loss", "held_out")},
        "checkpoint": result["checkpoint"]["path"],
    }


def _bytes(mill: Mill, corpora: Sequence[str]) -> int:
    """Bytes of text in the token shards of corpora."""
    found = [m for name in corpora if (m := mill.find("token_shards", name))]
    sources = (sums for m in found for sums in m.content.summary["sources"].values())
    return sum(int(sums["bytes"]) for sums in sources)


def commands(mill: Mill, token: str | None, step: str | None) -> list[tuple[str, str]]:
    """What to try next, with this store's own names; `token` SHARD:OFFSET, `step` RUN:N."""
    program, root = invoked(), shlex.quote(near(Path(mill.root.url)))
    listing = "https://data.commoncrawl.org/crawl-data/{snapshot}/warc.paths.gz"
    minutes = round(CRAWL_FILES * PAGES_A_FILE / pages_per_second(mill) / 60)
    crawl = (
        f"{program} run --root crawl-store --preset fineweb --snapshot CC-MAIN-2025-43 "
        f"--set snapshots.files={CRAWL_FILES} --set 'snapshots.location={listing}' "
        "--select snapshots,extracted_text,filtered_text"
    )
    gigabytes = CRAWL_FILES * GB_A_FILE
    url = shlex.quote(a_url(mill))
    of_token = f"{program} trace --root {root} --token {token}"
    of_step = f"{program} trace --root {root} --step {step}"
    return [
        (
            "Open the Dagster UI and the MLflow UI: runs, partitions and checks are there",
            f"{program} up --root {root}",
        ),
        ("Ask what became of a page", f"{program} trace --root {root} --url {url}"),
        ("See every rule's value for it", f"{program} try {url} --root {root}"),
        *([("Ask where a token of the training data came from", of_token)] if token else []),
        *([("List the documents of a step that was refused", of_step)] if step else []),
        (
            "See what another threshold would rebuild",
            f"{program} plan --root {root} --set filter.gopher.min_words=100",
        ),
        (
            f"Take {CRAWL_FILES} files of a public crawl: about {gigabytes:.1f} GB to download, "
            f"then some {minutes} minutes at the rate measured here",
            crawl,
        ),
    ]


def invoked() -> str:
    """How this program is called from here: by name where the shell finds it, else by path."""
    found = shutil.which("gristmill")
    called = Path(sys.argv[0])
    if found or called.name != "gristmill" or not called.is_file():
        return "gristmill"
    return shlex.quote(near(called.absolute()))


def near(path: Path) -> str:
    """A path, relative where it lies below the current folder."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def pages_per_second(mill: Mill) -> float:
    """Pages extracted a second in this run, workers and all."""
    made = [
        m for name in registered_snapshots(mill.root) if (m := mill.find("extracted_text", name))
    ]
    seconds = sum(m.run["seconds"] for m in made)
    return max(sum(m.content.counts.kept for m in made) / max(seconds, 0.1), 1.0)


def a_url(mill: Mill) -> str:
    """A page of the last snapshot that was dropped as a near-duplicate."""
    import polars as pl

    snapshot = registered_snapshots(mill.root)[-1]
    decisions = mill.open("deduped_corpus", snapshot).load("decisions", ["url", "kept", "reason"])
    near = decisions.filter(pl.col("reason") == "near.minhash")
    return str((near if near.height else decisions)["url"][0])


def refused(spikes: Sequence[dict[str, Any]]) -> list[str]:
    """What hurt the training, by URL; the planted document is said to be one."""
    if not spikes:
        return []
    steps = ", ".join(str(one["step"]) for one in spikes)
    urls = list(dict.fromkeys(one["highest loss"] for one in spikes))
    lines = [f"{len(spikes)} steps were refused (step {steps}), the first one for its "
             f"{spikes[0]['reason']};", "the documents that stood out in them:"]  # fmt: skip
    for url in urls[:SPIKES]:
        planted = "  (planted: the log of a keyboard tester)" if url == URL else ""
        lines.append(f"  {url}{planted}")
    return lines


def closing(
    summary: dict[str, Any], report: Path, next_commands: Sequence[tuple[str, str]]
) -> list[str]:
    """The last lines on the terminal."""
    held_out = summary["training"]["held_out"]
    reasons = [(r, n) for r, n in summary["reasons"].items() if not r.startswith("record.")]
    lines = [
        "",
        f"{summary['pages']:,} pages, {summary['kept_by_the_rules']:.0%} kept by the rules; "
        f"dropped for {len(reasons)} reasons, most often:",
    ]
    lines += [f"  {n:>6,}  {reason}" for reason, n in reasons[:REASONS]]
    lines += [
        f"{summary['web_text_bytes'] / 1e6:.2f} MB of web text and "
        f"{summary['source_text_bytes'] / 1e6:.2f} MB of code are tokens now",
        f"held-out bits per byte {held_out['bits_per_byte']:.3f} after "
        f"{summary['training']['step']} steps; knowing only how often each token occurs: "
        f"{held_out['unigram_bits_per_byte']:.3f}",
        *refused(summary["spikes"]),
        f"checkpoint: {near(Path(summary['checkpoint']))}",
        f"report:     {near(report)}",
        "",
        "What to try next:",
    ]
    for what, command in next_commands:
        lines += [f"  {what}:", f"    {command}"]
    return lines
