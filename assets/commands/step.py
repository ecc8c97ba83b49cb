"""`gristmill trace --step RUN:N`: the documents of a step's global batch, as text or JSON."""

import argparse
import itertools
from typing import Any

from pipeline.config import Config
from pipeline.errors import UsageError

Result = dict[str, Any]


def trace_step(arguments: argparse.Namespace, config: Config) -> Result:
    """What the verb does; the answer is that of `assets.runtrace`."""
    from assets.commands.session import require_root
    from assets.runtrace import documents_of_step, parse_step
    from resources.storage import open_store

    if arguments.raw:
        message = "--raw goes with --url, --doc or --token; a step has many documents"
        raise UsageError(message, hint="trace one of them by its doc_id: --doc ID --raw")
    name, step = parse_step(arguments.step)
    root = open_store(require_root(config, there=True), options=config.storage)
    found = documents_of_step(root, config, name, step)
    if not arguments.json:
        print("\n".join(lines_of(found)))
    return found


def lines_of(found: Result) -> list[str]:
    """The answer for a person: one line a document, below its sequence."""
    from assets.commands.store import plain

    told = {True: ", checked against the step's batch checksum", False: "", None: ""}
    value = found["loss"]  # text where it is not finite
    loss = f", loss {value:.4f}" if isinstance(value, float) else f", loss {value}"
    skipped = ", skipped" if found["skipped"] else ""
    lines = [
        f"step {found['step']} of {found['run']}{loss}{skipped}: {found['sequences']} sequences, "
        f"samples {found['first_sample']} to {found['last_sample']}, "
        f"{found['tokens']:,} tokens{told[found['verified']]}"
    ]
    for sequence, group in itertools.groupby(found["documents"], lambda row: row["sequence"]):
        rows = list(group)
        passes = f", pass {rows[0]['epoch'] + 1}" if rows[0]["epoch"] else ""
        lines.append(f"sequence {sequence} ({rows[0]['source']}{passes})")
        for row in rows:
            quality = "" if row["quality"] is None else f"  quality {row['quality']:.3f}"
            where = plain(str(row["url"] or row["source_id"] or row["doc_id"] or "unknown"), 2000)
            lines.append(
                f"  {row['tokens']:>6,} tokens  {row['language'] or 'und'}{quality}  {where}  "
                f"({row['shard']}:{row['document']}"
                + (f", {row['doc_id']})" if row["doc_id"] else ")")
            )
    return lines
