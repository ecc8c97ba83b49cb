"""The answer: every part of the filtered datasets decided twice from its signals.

First under the configuration that the manifest names, which must give the stored decisions again,
row for row; then under the one that is asked about. Texts are read for the examples only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from pipeline.config.display import DisplayConfig
from pipeline.dataset import Dataset
from pipeline.errors import ContractError
from pipeline.filters.run import CODE_VERSION, rules
from pipeline.manifest import Entry
from pipeline.store import Store
from pipeline.what_if.examples import Examples, Place
from pipeline.what_if.question import STAGE, Question, Settings, settings_of
from pipeline.what_if.subjects import Subject
from pipeline.what_if.tally import SIDES, Judged, RuleSums, Side, Tally, judge_batch

TOP = 20
"""Hosts that an answer names."""
BATCH_ROWS = 200_000
"""Documents decided at once: 40 signals and twice as many verdicts of each, some 50 MB."""

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
    for done, (signals_entry, decisions_entry) in enumerate(pairs, start=1):
        signals, decisions = dataset.read(signals_entry), dataset.read(decisions_entry)
        place = Place(dataset, signals_entry, subject.upstream, open_store)
        examples.begin(place)
        _check_signals(signals, decisions, sides, place)
        for start in range(0, signals.height, BATCH_ROWS):
            batch = signals.slice(start, BATCH_ROWS)
            stored = decisions.slice(start, batch.height)
            judged = judge_batch(batch, stored["url"], sides)
            _check_decisions(judged, stored, place)
            tally.add(judged)
            examples.add(judged)
        tally.reject(dict(decisions.slice(signals.height)["reason"].value_counts().iter_rows()))
        progress(subject.name, done, len(pairs))
    return tally


def _pairs(dataset: Dataset) -> Iterator[tuple[Entry, Entry]]:
    """Signals and decisions of each part."""
    content = dataset.manifest.content
    decisions = {entry.key: entry for entry in content.decisions}
    for entry in content.entries("signals"):
        yield entry, decisions[entry.key]


def _check_signals(
    signals: pl.DataFrame, decisions: pl.DataFrame, sides: dict[str, Side], place: Place
) -> None:
    """ContractError where signals lack a column, or are not of the documents that were decided."""
    needed = {"n_bytes", "language"}.union(*(side.signals for side in sides.values()))
    missing = sorted(needed - set(signals.columns))
    if missing:
        message = f"{_where(place)} lacks the signal {missing[0]!r}"
        raise ContractError(message, hint=_versions(place))
    if not decisions["doc_id"].head(signals.height).equals(signals["doc_id"]):
        message = f"{_where(place)} has signals of other documents than it has decisions of"
        raise ContractError(message, hint=_REMAKE)


def _check_decisions(judged: Judged, stored: pl.DataFrame, place: Place) -> None:
    """ContractError where the rules do not decide from the signals what was decided."""
    again = judged.decided["before"]
    wrong = again["reason"].ne_missing(stored["reason"]) | (again["kept"] != stored["kept"])
    for name in ("value", "threshold"):
        # a signal is stored in half the digits that its decision was
        numbers = [frame[name].cast(pl.Float32) for frame in (again, stored)]
        wrong |= numbers[0].ne_missing(numbers[1])
    if not wrong.any():
        return
    at = int(wrong.arg_max() or 0)
    verdicts = [frame.select("reason", "value", "threshold").row(at) for frame in (stored, again)]
    then, now = (f"{r} ({v} against {t})" if r else "kept" for r, v, t in verdicts)
    message = (
        f"{_where(place)}: document {stored['doc_id'][at]} was decided {then}, its signals say "
        f"{now}; {wrong.sum():,} of {stored.height:,} differ"
    )
    raise ContractError(message, hint=_versions(place))


def _versions(place: Place) -> str:
    version = place.dataset.manifest.content.code_version
    return f"made by version {version} of the filter, this is {CODE_VERSION}: {_REMAKE}"


def _where(place: Place) -> str:
    return f"{place.dataset.store.url}/{place.entry.path}"


_REMAKE = f"materialise {STAGE} again"


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
