"""The wiring of deduplication over snapshots: order, what is missing, what failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipeline.config import merge, validate
from pipeline.errors import GateError, UsageError
from pipeline.mill import Mill
from pipeline.stages.corpus import dedup_corpus
from pipeline.stages.curation import scrub_text
from resources.mill import open_mill
from tests import miniature, miniature_input
from tests.miniature_input import FIRST, SECOND

UPSTREAM = ("snapshots", "extracted_text", "filtered_text", "scored_text")


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mill]:
    given = miniature_input.build(tmp_path_factory.mktemp("input"))
    opened = open_mill(miniature.config(str(tmp_path_factory.mktemp("root")), given))
    stages = [f"{stage}/{name}" for name in (FIRST, SECOND) for stage in UPSTREAM]
    miniature.perform(opened, ["quality_labels", "quality_classifier", *stages])
    yield opened
    opened.engine.close()


def changed(mill: Mill, **sections: object) -> Mill:
    return replace(mill, config=validate(merge(mill.config.model_dump(), sections)))


def test_an_absent_or_failed_earlier_snapshot_can_be_left_out(mill: Mill) -> None:
    skipping = changed(mill, dedup={"skip_missing": [FIRST]})
    with pytest.raises(UsageError, match=f"comes after deduped_corpus/{FIRST}"):
        dedup_corpus(mill, SECOND)
    alone = dedup_corpus(skipping, SECOND).content
    assert (alone.summary["skipped"], alone.summary["chain"]) == ([FIRST], [])

    strict = {"min_sample": 1, "yields": {"deduped_corpus": {"low": 0.99}}}
    failed = dedup_corpus(changed(mill, gates=strict), FIRST)
    assert [gate.name for gate in failed.failed_gates()] == ["yield"]
    with pytest.raises(GateError, match="failed its gate 'yield'"):
        dedup_corpus(mill, SECOND)
    assert dedup_corpus(skipping, SECOND).content.output == alone.output

    dedup_corpus(mill, FIRST)
    together = dedup_corpus(skipping, SECOND).content
    assert together.summary["skipped"] == []
    assert [name for name, _ in together.summary["chain"]] == [FIRST]
    assert together.counts.kept < alone.counts.kept


def test_a_snapshot_behind_a_changed_one_is_refused_unless_accepted(mill: Mill) -> None:
    dedup_corpus(mill, FIRST)
    dedup_corpus(mill, SECOND)
    scrub_text(mill, SECOND)

    dedup_corpus(changed(mill, dedup={"ngram": 1, "threshold": 0.05}), FIRST)
    with pytest.raises(GateError, match=f"was compared with {FIRST}, which changed since"):
        scrub_text(mill, SECOND)
    known = {"name": "chain", "reason": "the change is in pages that this one lacks"}
    assert scrub_text(changed(mill, accept_gate=known), SECOND).content.counts.kept

    dedup_corpus(mill, FIRST)
    assert scrub_text(mill, SECOND).content.counts.kept
