"""What is shown of strangers' pages: scrubbed, without markup, short, or off."""

from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from assets import display
from pipeline.config.display import DisplayConfig
from pipeline.manifest import Content, Counts

SCRIPT = "<script>alert(1)</script> **bold** [x](javascript:1) a|b `c` \u202eevil\x07 \n\n end"


def test_text_is_one_line_without_markup_or_control_characters() -> None:
    shown = display.clean(SCRIPT)
    assert not set(shown) & set("<>`|\n\x07\u202e")
    assert shown.endswith("evil end")
    assert len(display.clean("word " * 100)) == 200


def test_excerpts_are_scrubbed_and_short() -> None:
    text = "Write to jane.doe@mill-example.com or call +1 212 555 0123. " + "More words here. " * 50
    frame = pl.DataFrame({"doc_id": ["a", "b"], "url": ["u", "v"], "text": [text, None]})
    first, second = display.scrubbed(frame, DisplayConfig(excerpt_chars=120))
    assert "jane.doe" not in first
    assert "555" not in first
    assert len(first) == 120
    assert second == ""


def test_a_url_is_shown_without_the_address_in_it() -> None:
    url = "https://news.mill-example.com/2026/11/20261128?mail=jane.doe@mill-example.com&b=<i>"
    shown = display.page_name("d", url)
    assert "jane.doe" not in shown
    assert shown.startswith("https://news.mill-example.com/2026/11/20261128?mail=")
    assert "<i>" not in shown
    assert display.page_name("d", None) == "d"


def content(summary: dict[str, object]) -> Content:
    counts = Counts(records_in=10, kept=6, dropped=4, reasons={"c4.policy": 1, "url.listed": 3})
    return Content.model_validate(
        {
            "stage": "filtered_text", "partition": "A", "inputs": [], "config": {},
            "code_version": "1", "libraries": {}, "parts": [], "decisions": [], "output": "x",
            "counts": counts, "damaged": [{"file": "<a>", "offset": 3, "what": "gzip"}],
            "gates": [], "summary": summary,
        }
    )  # fmt: skip


def rows(shown: object) -> list[dict[str, object]]:
    assert isinstance(shown, dg.TableMetadataValue)
    return [dict(record.data) for record in shown.records]


def test_the_funnel_is_in_order_of_what_was_taken() -> None:
    shown = rows(display.tables(content({}))["funnel"])
    assert [row["reason"] for row in shown] == ["(in)", "(kept)", "url.listed", "c4.policy"]
    assert [row["records"] for row in shown] == [10, 6, 3, 1]


def test_groups_histograms_and_damage_are_tables() -> None:
    shown = display.tables(
        content({"language": {"en": [4, 900], "de": [2, 100]}, "quality_histogram": [1] * 20})
    )
    assert [row["language"] for row in rows(shown["by_language"])] == ["en", "de"]
    assert len(rows(shown["quality_scores"])) == 20
    assert rows(shown["damaged"]) == [{"file": "‹a›", "offset": 3, "what": "gzip"}]


def test_many_groups_end_in_one_row_of_the_others() -> None:
    groups = {f"l{n:02}": [1, 10] for n in range(50)}
    shown = rows(display.group_table("language", groups))
    assert len(shown) == display.ROWS
    assert shown[-1]["language"] == "(21 others)"
    assert sum(int(str(row["documents"])) for row in shown) == 50


def test_a_summary_of_any_shape_becomes_numbers_and_tables() -> None:
    shown = display.own_figures(
        {
            "tokens": {"train": 5},
            "languages": {"en": {"bytes": 8, "tokens": 2}, "de": {"bytes": 3, "tokens": 1}},
            "report": {"vocab_size": 9, "measured": {"by_language": {"en": {"tokens": 1}}}},
            "chain": [["A", "hash"]],
            "told": [{"documents": 7, "language": "en"}, {"documents": 2, "language": "de"}],
            "total": 3,
            "nothing": None,
        }
    )
    assert shown["total"] == 3
    assert rows(shown["languages"])[0]["bytes_per_token"] == 4.0
    assert rows(shown["report"]) == [{" ": "vocab_size", "value": 9}]
    assert "report.measured.by_language" in shown
    assert rows(shown["chain"]) == [{" ": "A", "value": "hash"}]
    assert [next(iter(row.items())) for row in rows(shown["told"])] == [
        ("language", "en"), ("language", "de"),
    ]  # fmt: skip


@pytest.mark.parametrize(("share", "length"), [(0, 0), (0.001, 1), (1, 24), (2, 24), (-1, 0)])
def test_bars_stay_within_their_room(share: float, length: int) -> None:
    assert len(display.bar(share)) == length


def test_nothing_is_shown_of_a_dataset_without_tables(tmp_path: Path) -> None:
    from resources.storage import open_store

    assert display.kept_examples(open_store(str(tmp_path)), [], DisplayConfig()) == []
    assert display.column_schema(open_store(str(tmp_path)), []) is None
