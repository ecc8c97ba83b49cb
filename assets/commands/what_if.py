"""The verb `what-if`: what other thresholds of the filter would keep, from the stored signals."""

import argparse
from collections.abc import Iterator
from typing import Any

from assets.commands.session import configuration, progress_bar, require_root
from pipeline.config import Config
from pipeline.errors import UsageError
from pipeline.inputs import check_input_path
from pipeline.what_if.question import BESIDES, Question, question, settings

Result = dict[str, Any]

RULES = 15
"""Rules that a terminal shows."""
OTHERS = "(others)"
SIDES = ("before", "after")


def what_if(arguments: argparse.Namespace) -> Result:
    """`gristmill what-if [IN | --root R] [--snapshot S] --set filter.KEY=VALUE...`."""
    config = configuration(arguments)
    asked = asked_of(arguments, config)
    from pipeline.what_if.answer import what_if as answer
    from pipeline.what_if.subjects import filtered_folder, filtered_snapshots
    from resources.locations import Opener

    opener = Opener(config)
    if arguments.input:
        if check_input_path(arguments.input) != "dataset":
            message = f"{arguments.input} is no dataset folder (no file `current`)"
            raise UsageError(message, hint="give a folder that `gristmill filter` wrote")
        subjects = [filtered_folder(opener(str(arguments.input)))]
    else:
        root = opener(require_root(config, there=True))
        names = [arguments.snapshot] if arguments.snapshot is not None else []
        subjects = list(filtered_snapshots(root, names))
    with progress_bar() as progress:
        result = answer(
            subjects,
            asked,
            display=config.display,
            open_store=opener,
            top=arguments.top,
            progress=progress,
        )
    if not arguments.json:
        print("\n".join(lines(result)))
    return result


def asked_of(arguments: argparse.Namespace, config: Config) -> Question:
    """The question: settings laid on what was stored, or a whole configuration in its place.

    With `--preset` or `--config` it is the configuration that a run with the same arguments would
    have; with a store and nothing else, the one that the store has today.
    """
    if arguments.input and (arguments.root or arguments.snapshot):
        other = "--root" if arguments.root else "--snapshot"
        message = f"both {arguments.input} and {other} were given"
        raise UsageError(message, hint="name a folder that `gristmill filter` wrote, or a store")
    if arguments.top < 1:
        message = f"--top {arguments.top} is no number of hosts"
        raise UsageError(message, hint="give 1 or more")
    laid, whole = settings(arguments.sets), bool(arguments.preset or arguments.config)
    if arguments.input and not whole and not set(laid) - {*BESIDES}:
        message = "nothing was asked"
        raise UsageError(message, hint="give --set filter.gopher.min_words=100, or --preset")
    return question(laid, config, whole=whole)


def lines(result: Result) -> Iterator[str]:
    """The answer for a terminal."""
    yield from _head(result)
    yield from _table("language", result["before"]["by_language"], result["after"]["by_language"])
    yield from _table("host", result["before"]["by_host"], result["after"]["by_host"])
    yield from _rules(result["rules"])
    for key, title in (("newly_dropped", "newly dropped"), ("rescued", "rescued")):
        if result[key]:
            yield f"\n{title}, {len(result[key])} of {result['turned'][key]['documents']:,}"
        for page in result[key]:
            value = _number(page["value"])
            yield f"  {page['url'] or page['doc_id']}"
            yield f"    {page['reason']} {value} against {_number(page['threshold'])}{_also(page)}"
            if page["excerpt"]:
                yield f"    {page['excerpt']}"


def _head(result: Result) -> Iterator[str]:
    for change in result["settings"]:
        which = f"  ({', '.join(change['snapshots'])})" if len(result["snapshots"]) > 1 else ""
        yield f"{change['key']}: {change['before']} -> {change['after']}{which}"
    if not result["settings"]:
        yield "no setting of the filter would differ"
    before, after = result["before"], result["after"]
    for name, side in (("before", before), ("after", after)):
        share = side["kept"] / max(side["records_in"], 1)
        kept = f"{side['kept']:>10,} of {side['records_in']:,} kept ({share:.1%})"
        yield f"{name:<7}{kept}, {side['bytes']:,} bytes"
    for one in result["snapshots"] if len(result["snapshots"]) > 1 else ():
        yield f"  {one['snapshot']}: {one['before']['kept']:,} -> {one['after']['kept']:,}"
    turned = result["turned"]
    for key, title in (("newly_dropped", "newly dropped"), ("rescued", "rescued")):
        yield f"{title}: {turned[key]['documents']:,} documents, {turned[key]['bytes']:,} bytes"
    yield f"dropped for another reason: {turned['other_reason']:,}"


def _table(title: str, before: Result, after: Result) -> Iterator[str]:
    names = [name for name in before if name != OTHERS]
    changed = [name for name in names if before[name] != after[name]]
    if not changed:
        return
    yield f"\n{title:<40} {'documents':>21}  {'bytes':>27}"
    for name in changed:
        old, new = before[name], after[name]
        documents = f"{old['documents']:>9,} -> {new['documents']:>8,}"
        yield f"{name[:40]:<40} {documents}  {old['bytes']:>12,} -> {new['bytes']:>11,}"
    if len(changed) < len(names):
        yield f"(of the other {len(names) - len(changed)} named in --json nothing changes)"


def _rules(rules: list[Result]) -> Iterator[str]:
    """The rules that remove most, and those whose share changes; then the sets of rules."""
    for sets in (False, True):
        some = [one for one in rules if ("." not in one["rule"]) == sets and _removes(one)]
        some.sort(key=lambda one: (-max(_get(one, s, "first") for s in SIDES), one["rule"]))
        if not some:
            continue
        title = "set of rules" if sets else "rule"
        yield f"\n{title:<45} {'decides':>15} {'fails':>15} {'it alone':>15}"
        for one in some[:RULES]:
            pairs = (
                f"{_get(one, 'before', what):>7,}->{_get(one, 'after', what):>6,}"
                for what in ("first", "fails", "alone")
            )
            yield f"{one['rule']:<45} {' '.join(pairs)}"
    yield "(without a rule, what it alone removes would be kept as well)"


def _get(rule: Result, side: str, what: str) -> int:
    return int(rule[side][what]) if rule[side] else 0


def _removes(rule: Result) -> bool:
    return any(_get(rule, side, "fails") for side in SIDES)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _also(page: Result) -> str:
    others = [name for name in page["fails"] if name != page["reason"]]
    return f"; also {', '.join(others)}" if others else ""
