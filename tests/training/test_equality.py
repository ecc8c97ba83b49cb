from __future__ import annotations

from typing import Any

import pytest

from training.equality import NOT_RUN, ROWS, measure, table


@pytest.fixture(scope="module")
def matrix() -> list[dict[str, Any]]:
    return measure()


@pytest.mark.slow
@pytest.mark.long
def test_every_layout_has_the_losses_of_one_process(matrix: list[dict[str, Any]]) -> None:
    text = table(matrix)
    print(text)
    assert [row["name"] for row in matrix if not row["holds"]] == [], text
    assert all(len(row["one"]["losses"]) == 5 for row in matrix)
    moved = [row["one"]["losses"][0] - row["one"]["held_out"][0] for row in matrix]
    assert min(moved) > 0.05, "five steps of training, not of standing still"


@pytest.mark.slow
@pytest.mark.long
def test_the_weights_are_really_shared(matrix: list[dict[str, Any]]) -> None:
    for row in matrix:
        copies = row["parallel"].get("replicate", 1)
        share = copies / row["world"]
        # layers, rows of norms and experts do not divide evenly in the small model
        assert share <= row["many"]["held"] < 1.35 * share, row["name"]


def test_what_is_not_run_is_said() -> None:
    assert len(ROWS) >= 12
    assert len({row.name for row in ROWS}) == len(ROWS)
    shown = table([])
    assert all(f"not run: {why}" in shown for why in NOT_RUN.values())
