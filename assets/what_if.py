"""The question "what if" in the web UI: materialise `what_if` with other settings, read the tables.

Nothing else in the graph reads it, and nothing makes it by itself. It has a page of its own, so
that answers stay side by side in its history.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from assets import display
from assets.curation import filtered_text
from assets.materialise import guarded, options, progress
from assets.millwork import Launch, MillResource
from pipeline.excerpts import clean

ROWS = display.ROWS
SIDES = ("before", "after")


class Ask(Launch):
    """What the launchpad asks: `overrides: {filter: {gopher: {min_words: 100}}}`."""

    snapshots: list[str] = []  # noqa: RUF012 (Dagster's Config copies it)
    """Only these snapshots; all that are filtered where it is empty."""


@dg.asset(
    **options("curation", "pipeline.filters.run", "polars"),
    deps=[filtered_text],
    metadata={"configuration": "filter"},
)
def what_if(
    context: dg.AssetExecutionContext, config: Ask, mill: MillResource
) -> dg.MaterializeResult:
    """What other thresholds of the filter would keep, in seconds, from the stored signals.

    **In:** the signals and decisions of `filtered_text`; in the launchpad, for example `overrides:
    {filter: {gopher: {min_words: 100}}}` (without any, the configuration as it stands today is
    compared with what the snapshots were made with). **Falls:** nothing; no data is changed. Keys
    that the signals cannot tell about are refused by name. **Next:** read `rescued` and
    `newly_dropped` before the sums; what convinces goes into `gristmill.yaml`, then materialise
    `filtered_text`.
    """
    from pipeline.what_if.answer import what_if as answer
    from pipeline.what_if.question import question
    from pipeline.what_if.subjects import filtered_snapshots

    with guarded(context), mill.open(config.overrides) as opened:
        result = answer(
            list(filtered_snapshots(opened.root, config.snapshots)),
            question(config.overrides, opened.config),
            display=opened.config.display,
            open_store=opened.open_store,
            progress=progress(context),
        )
    before, after = (result[side] for side in SIDES)
    context.log.info(f"kept {before['kept']:,} -> {after['kept']:,} of {before['records_in']:,}")
    return dg.MaterializeResult(metadata=dict(tables(result)))


JOB = dg.define_asset_job(
    "mill_what_if",
    selection=dg.AssetSelection.assets(what_if),
    description="Asks what other thresholds of the filter would keep. Changes nothing.",
)


def tables(result: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The answer as metadata: key figures, then tables."""
    turned = result["turned"]
    for side in SIDES:
        yield f"kept_{side}", result[side]["kept"]
        yield f"bytes_{side}", result[side]["bytes"]
    for key in ("newly_dropped", "rescued"):
        yield f"{key}_documents", turned[key]["documents"]
    yield "dropped_for_another_reason", turned["other_reason"]
    yield "seconds", result["seconds"]
    yield "settings", display.table(_settings(result["settings"]))
    yield "by_snapshot", display.table(_snapshots(result["snapshots"]))
    for key in ("newly_dropped", "rescued"):
        if result[key]:
            yield key, display.table(_pages(result[key]))
    for name in ("language", "host"):
        yield f"by_{name}", display.table(_groups(result, name))
    yield "reasons", display.table(_reasons(result))
    yield "rules", display.table(_rules(result["rules"]))


def _settings(changes: list[dict[str, Any]]) -> Iterator[display.Row]:
    for one in changes:
        values = {side: clean(str(one[side])) for side in SIDES}
        yield {"setting": one["key"], **values, "snapshots": clean(", ".join(one["snapshots"]))}
    if not changes:
        yield {"setting": "(none differs)"}


def _snapshots(each: list[dict[str, Any]]) -> Iterator[display.Row]:
    for one in each:
        kept = {f"kept {side}": one[side]["kept"] for side in SIDES}
        sizes = {f"bytes {side}": one[side]["bytes"] for side in SIDES}
        yield {"snapshot": one["snapshot"], "documents in": one["records_in"], **kept, **sizes}


def _groups(result: Mapping[str, Any], name: str) -> Iterator[display.Row]:
    before, after = (result[side][f"by_{name}"] for side in SIDES)
    for key, old in list(before.items())[:ROWS]:
        new = after[key]
        yield {
            name: clean(key),
            "documents before": old["documents"],
            "documents after": new["documents"],
            "change": new["documents"] - old["documents"],
            "bytes before": old["bytes"],
            "bytes after": new["bytes"],
        }


def _reasons(result: Mapping[str, Any]) -> Iterator[display.Row]:
    before, after = (result[side]["reasons"] for side in SIDES)
    ordered = sorted({*before, *after}, key=lambda r: (-before.get(r, 0), -after.get(r, 0), r))
    for reason in ordered:
        counts = before.get(reason, 0), after.get(reason, 0)
        yield {
            "reason": reason,
            **dict(zip(SIDES, counts, strict=True)),
            "change": counts[1] - counts[0],
        }


def _rules(rules: list[dict[str, Any]]) -> Iterator[display.Row]:
    """Rules that some document fails; sets of rules last."""
    nothing = {"fails": 0, "first": 0, "alone": 0, "kept_without": None}
    for one in rules:
        old, new = (one[side] or nothing for side in SIDES)
        if old["fails"] or new["fails"]:
            yield {
                "rule": one["rule"],
                "decides before": old["first"],
                "decides after": new["first"],
                "fail it before": old["fails"],
                "fail it after": new["fails"],
                "it alone removes before": old["alone"],
                "it alone removes after": new["alone"],
                "kept without it after": new["kept_without"],
            }


def _pages(pages: list[dict[str, Any]]) -> Iterator[display.Row]:
    for page in pages:
        yield {
            "page": page["url"] or page["doc_id"],
            "language": page["language"],
            "reason": page["reason"],
            "value": page["value"],
            "threshold": page["threshold"],
            "fails": ", ".join(page["fails"]),
            "text": page["excerpt"],
        }
