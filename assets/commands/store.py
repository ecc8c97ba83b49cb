"""Verbs that work on a store: run, plan, prune, trace, try."""

import argparse
import base64
import json
import sys
from functools import partial
from typing import Any

from assets.commands.session import configuration, mill_for, require_root
from pipeline.layout import check_name

Result = dict[str, Any]


def run(arguments: argparse.Namespace) -> Result:
    """`gristmill run --snapshot S | --source NAME | --train NAME`: Dagster without its UI."""
    config = configuration(arguments)
    require_root(config)
    from assets.headless import materialise

    partition = arguments.snapshot or arguments.source or arguments.train
    kind = "snapshot" if arguments.snapshot else "source" if arguments.source else "run"
    select = arguments.select.split(",") if arguments.select else None
    tell = None if arguments.json else partial(print, flush=True)
    return materialise(config, kind=kind, partition=partition, select=select, tell=tell)


def plan(arguments: argparse.Namespace) -> Result:
    """`gristmill plan`: what would be rebuilt, what it costs, and what the whole crawl would."""
    config = configuration(arguments)
    require_root(config, there=not arguments.snapshot)
    if arguments.snapshot is not None:
        check_name("snapshot", arguments.snapshot)
    from assets.commands.planned import show_plan, show_whole
    from pipeline.mill import registered_snapshots
    from pipeline.plan import plan_partition
    from pipeline.stages.order import SNAPSHOT_STAGES
    from pipeline.whole import try_whole

    stages = [name for name, _ in SNAPSHOT_STAGES[1:]]
    with mill_for(arguments, config) as mill:
        names = [arguments.snapshot] if arguments.snapshot else registered_snapshots(mill.root)
        rows = [p for name in names for p in plan_partition(mill, name, SNAPSHOT_STAGES)]
        whole = {name: found for name in names if (found := try_whole(mill, name, stages))}
    if not arguments.json:
        print("\n".join(show_plan(rows)))
        for name, found in whole.items():
            print("\n".join(["", *show_whole(name, found)]))
    sure = [row for row in rows if row.certain]
    return {
        "stages": [row.as_json() for row in rows],
        "missing": sum(row.missing for row in sure),
        "input_bytes": sum(row.input_bytes for row in sure),
        "cpu_hours": sum(row.cpu_seconds or 0.0 for row in sure) / 3600,
        "cpu_hours_at_most": sum(row.cpu_seconds or 0.0 for row in rows) / 3600,
        "unknown": [f"{r.stage}/{r.partition}" for r in rows if r.cpu_seconds is None],
        "whole": [found.as_json() for found in whole.values() if not isinstance(found, str)],
    }


def prune(arguments: argparse.Namespace) -> Result:
    """`gristmill prune [--apply]`: what nothing references any more."""
    config = configuration(arguments)
    root = require_root(config, there=True)
    from pipeline.prune import apply, plan_prune
    from resources.storage import open_store

    store = open_store(root, options=config.storage)
    planned = plan_prune(store)
    size = sum(n for _, n in planned.deletions)
    if arguments.apply:
        apply(store, planned)
    if not arguments.json:
        for key, n in planned.deletions:
            print(f"{n:>12,}  {key}")
        done = "deleted" if arguments.apply else "would be deleted; --apply does it"
        print(f"{len(planned.deletions):,} objects, {size / 1e6:,.1f} MB {done}")
        for name in planned.skipped:
            print(f"{name} is left alone: a manifest that it needs cannot be read")
        if planned.young[0]:
            count, young = planned.young
            print(f"{count:,} objects, {young / 1e6:,.1f} MB are less than an hour old and stay")
    return {
        "objects": len(planned.deletions),
        "bytes": size,
        "applied": bool(arguments.apply),
        "young": planned.young[0],
        "skipped": planned.skipped,
    }


def trace(arguments: argparse.Namespace) -> Result | None:
    """`gristmill trace --url | --doc | --token [--raw]`, or `--step RUN:N`."""
    config = configuration(arguments)
    if arguments.step is not None:
        from assets.commands.step import trace_step

        return trace_step(arguments, config)
    root_url = require_root(config, there=True)
    from pipeline import trace as ways
    from resources.storage import open_store

    root = open_store(root_url, options=config.storage)
    if arguments.url is not None:
        stories = ways.trace_url(root, arguments.url)
    elif arguments.doc is not None:
        stories = [ways.trace_doc(root, arguments.doc)]
    else:
        stories = [ways.trace_token(root, arguments.token)]
    result: Result = {"found": stories}
    if arguments.raw:
        from assets.commands.trial import raw_record

        raw = raw_record(root, stories[0], config)
        if not arguments.json:
            sys.stdout.buffer.write(raw)
            return None
        result["raw_base64"] = base64.b64encode(raw).decode()
    if not arguments.json:
        for story in stories:
            _print_story(story)
    return result


def _print_story(story: Result) -> None:
    name = plain(story["url"] or story.get("source_id") or "", 2000)
    print(f"{name}  ({story['corpus']}, {story['doc_id']})")
    for name in ("title", "licence", "licence_source", "reservations", "fetched_at"):
        if story.get(name):
            print(f"  {name}: {plain(str(story[name]))}")
    if story.get("warc_file"):
        print(f"  record: {story['warc_file']} {story['warc_offset']}+{story['warc_length']}")
    for fate in story["fates"]:
        print(f"  {fate['stage']}: {_verdict(fate)}")
        for also in fate.get("fails", ()):
            if also["rule"] != fate["reason"]:
                print(f"    fails as well: {also['rule']}{_against(also)}")
        if "since" in fate:
            print(f"    made again since, the stages behind it not: {_verdict(fate['since'])}")
        if fate["detail"]:
            print(f"    {plain(json.dumps(fate['detail'], ensure_ascii=False), 1000)}")
    for shard in story["shards"]:
        end = shard["first_token"] + shard["n_tokens"]
        print(f"  tokens: {shard['shard']}:{shard['first_token']}..{end}")


def plain(text: str, limit: int = 200) -> str:
    """What strangers wrote, fit for a terminal: no control sequences, no turned direction, short.

    A URL is asked for as it stands, so it is cut late.
    """
    shown = "".join(character for character in text if character.isprintable())
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def _verdict(fate: Result) -> str:
    if fate["kept"]:
        return "kept"
    return f"dropped, {fate['reason']}{_against(fate)}"


def _against(row: Result) -> str:
    value, threshold = row["value"], row["threshold"]
    if value is None or threshold is None:
        return ""
    return f" {value:.4g} against {threshold:.4g}"


def try_page(arguments: argparse.Namespace) -> Result:
    """`gristmill try PAGE.html | URL`: the text and every rule's value against its threshold."""
    config = configuration(arguments)
    from assets.commands.trial import page_of
    from pipeline.trial import try_page as attempt

    page, url = page_of(arguments.page, config)
    result = attempt(page, url, config)
    if not arguments.json:
        lines = (result["text"] or f"(no main text: {result['reason']})").split("\n")
        print("\n".join(plain(line.expandtabs(4), len(line) * 4 + 1) for line in lines))
        print(f"\nextractor {result['extractor'] or 'none'}, title {result['title']!r}")
        print(f"language {result['language']} ({result['language_score']})")
        for row in result["rules"]:
            mark = "ok  " if row["passes"] else "DROP"
            print(f"  {mark} {row['rule']:<44} {row['value']!s:>12}  {row['threshold']!s}")
    return result
