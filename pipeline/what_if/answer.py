"""The answer: every part of the filtered datasets decided twice from its signals, and added up.

Texts are read for the examples only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from pipeline.config.display import DisplayConfig
from pipeline.dataset import Dataset
from pipeline.filters.run import rules
from pipeline.manifest import Entry
from pipeline.store import Store
from pipeline.what_if.examples import Examples
from pipeline.what_if.part import Place, judged_batches
from pipeline.what_if.question import Question, Settings, settings_of
from pipeline.what_if.subjects import Subject
from pipeline.what_if.tally import SIDES, RuleSums, Side, Tally

TOP = 20
"""Hosts that an answer names."""
Progress = Callable[[str, int, int], None]


def what_if(
    subjects: Sequence[Subject],
    asked: Question,
    *,
    display: DisplayConfig,
    open_store: Callable[[str], Store],
    top: int = TOP,
    progress: Progress = lambda stage, done, total: None,
) -> dict[str, Any]:
    """What other settings of the filter would keep of some datasets, as JSON.

    `before`, `after`: `records_in, kept, dropped, bytes` (UTF-8 bytes of the texts as they are
    stored), `reasons`, `by_language`, `by_host`. `newly_dropped`, `rescued`: up to ten pages each.
    `turned`: how many there are. `settings`: what differs. `rules`: for each rule, and each set of
    rules, on either side the documents that fail it, those that it `alone` removes, and what would
    be kept without it. `snapshots`: the sums of each.

    Raises ConfigError for what the signals cannot tell, ContractError where a dataset's decisions
    do not follow from its signals.
    """
    started = time.monotonic()
    # every question is settled before the first signal is read
    planned = [
        (subject, settings_of(subject.dataset.manifest.content, asked)) for subject in subjects
    ]
    total, examples, each = Tally(), Examples(), []
    for subject, settings in planned:
        own = _tally(subject, settings, examples, open_store, progress)
        total.merge(own)
        each.append(_brief(subject, own))
    return {
        **{side: _side(total, side, top) for side in SIDES},
        "newly_dropped": examples.newly_dropped(display),
        "rescued": examples.rescued(display),
        "turned": _turned(total),
        "settings": _changes(planned),
        "rules": _rules(total, planned),
        "snapshots": each,
        "seconds": round(time.monotonic() - started, 3),
    }


def _tally(
    subject: Subject,
    settings: Settings,
    examples: Examples,
    open_store: Callable[[str], Store],
    progress: Progress,
) -> Tally:
    sides = {"before": Side.of(rules(settings.before)), "after": Side.of(rules(settings.after))}
    dataset, tally = subject.dataset, Tally()
    pairs = list(_pairs(dataset))
    for done, (signals, decisions) in enumerate(pairs, start=1):
        place = Place(dataset, signals, subject.upstream, open_store)
        examples.begin(place)
        for judged, rejected in judged_batches(place, decisions, sides):
            tally.reject(rejected)
            if judged is not None:
                tally.add(judged)
                examples.add(judged)
        progress(subject.name, done, len(pairs))
    return tally


def _pairs(dataset: Dataset) -> Iterator[tuple[Entry, Entry]]:
    """Signals and decisions of each part."""
    content = dataset.manifest.content
    decisions = {entry.key: entry for entry in content.decisions}
    for entry in content.entries("signals"):
        yield entry, decisions[entry.key]


def _side(tally: Tally, side: str, top: int) -> dict[str, Any]:
    kept = tally.kept[side]
    ordered = sorted(tally.reasons[side].items(), key=lambda item: (-item[1], item[0]))
    groups = {"by_language": tally.languages.top(1 << 20), "by_host": tally.hosts.top(top)}
    return {
        "records_in": tally.records_in,
        "kept": kept,
        "dropped": tally.records_in - kept,
        "bytes": tally.bytes[side],
        "reasons": dict(ordered),
        **{
            name: {
                row["name"]: {"documents": row[f"{side}_kept"], "bytes": row[f"{side}_bytes"]}
                for row in rows
            }
            for name, rows in groups.items()
        },
    }


def _turned(tally: Tally) -> dict[str, Any]:
    return {
        "newly_dropped": {
            "documents": tally.turned["before"], "bytes": tally.turned_bytes["before"],
        },
        "rescued": {"documents": tally.turned["after"], "bytes": tally.turned_bytes["after"]},
        "other_reason": tally.other_reason,
    }  # fmt: skip


def _changes(planned: Sequence[tuple[Subject, Settings]]) -> list[dict[str, Any]]:
    """Every key that differs, and for which snapshots."""
    found: list[dict[str, Any]] = []
    for subject, settings in planned:
        for change in settings.changes:
            one = asdict(change)
            same = next((f for f in found if {k: f[k] for k in one} == one), None)
            if same is None:
                found.append({**one, "snapshots": [subject.name]})
            else:
                same["snapshots"].append(subject.name)
    return found


def _rules(tally: Tally, planned: Sequence[tuple[Subject, Settings]]) -> list[dict[str, Any]]:
    """What each rule removes; in the order in which rules are asked, sets of rules last."""
    names = dict.fromkeys(name for side in SIDES for name in tally.rules[side])
    ordered = sorted(names, key=lambda name: "." not in name)
    return [
        {"rule": name, **{side: _share(tally, side, name) for side in SIDES}} for name in ordered
    ]


def _share(tally: Tally, side: str, name: str) -> dict[str, int] | None:
    """None where the rule is off."""
    sums: RuleSums | None = tally.rules[side].get(name)
    if sums is None:
        return None
    return {
        "fails": sums.fails,
        "first": sum(
            n
            for reason, n in tally.reasons[side].items()
            if name in (reason, reason.partition(".")[0])
        ),
        "alone": sums.alone,
        "alone_bytes": sums.alone_bytes,
        "kept_without": tally.kept[side] + sums.alone,
    }


def _brief(subject: Subject, own: Tally) -> dict[str, Any]:
    return {
        "snapshot": subject.name,
        "manifest": subject.dataset.manifest.hash,
        "records_in": own.records_in,
        **{side: {"kept": own.kept[side], "bytes": own.bytes[side]} for side in SIDES},
    }
