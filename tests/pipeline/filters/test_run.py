"""The stage as a whole: one decision a document, signals for all, edits that can be followed."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import schema
from pipeline.config.filter import FilterConfig
from pipeline.filters import run
from pipeline.filters.rules import decide

PROSE = [
    "The lighthouse holds a small wheel, which the weaver lifted under a clear sky that morning.",
    "The engineer opened an old chart near the vineyard when the tide turned, and sat to read.",
    "To reach the reservoir you pass a frozen glasshouse and then follow the nurse to the almanac.",
    "Nobody in the village could say with certainty why the shepherd had painted his ladder green.",
    "Every other week a barrel of salt arrived from the station and was left with the teacher.",
    "It is well known that the mason prefers to have his tea without sugar, but with much lemon.",
]
PERMISSIVE = FilterConfig.model_validate(
    {
        "language": {"enabled": False},
        "gopher": {"quality": False, "repetition": False},
        "c4": {"min_sentences": None, "lorem_ipsum": False, "curly_bracket": False},
        "fineweb": {"enabled": False},
    }
)


def frame(*texts: str | None, **more: pl.Series) -> pl.DataFrame:
    schema_ = {"doc_id": pl.String, "url": pl.String, "text": pl.String}
    rows = [(f"d{k}", f"http://a.example/{k}", text) for k, text in enumerate(texts)]
    return pl.DataFrame(rows, schema=schema_, orient="row").with_columns(**more)


def test_good_prose_is_kept_as_it_is() -> None:
    result = run.filter_documents(frame("\n".join(PROSE)), FilterConfig())
    parts = result.tables["parts"]
    assert parts["text"].to_list() == ["\n".join(PROSE)]
    assert parts["edits"].to_list() == [None]
    assert parts["language"].to_list() == ["en"]
    schema.conform(parts, schema.document_schema(parts.columns))
    schema.conform(result.tables["decisions"], schema.DECISIONS)


def test_one_decision_a_document_in_order_with_value_and_threshold() -> None:
    given = frame("\n".join(PROSE), "", None, " \n\t", "Wir sind hier. " * 4, "\n".join(PROSE))
    result = run.filter_documents(given, FilterConfig())
    decisions = result.tables["decisions"]
    assert decisions["doc_id"].to_list() == given["doc_id"].to_list()
    assert decisions["kept"].to_list() == [True, False, False, False, False, True]
    dropped = decisions.filter(~pl.col("kept"))
    assert dropped.select("reason", "value", "threshold").null_count().row(0) == (0, 0, 0)
    assert decisions.filter(pl.col("kept"))["reason"].null_count() == 2
    assert json.loads(decisions["detail"][1]) == {"language": "und"}
    assert result.tables["signals"]["doc_id"].to_list() == given["doc_id"].to_list()
    assert result.tables["parts"]["doc_id"].to_list() == ["d0", "d5"]


def test_signals_are_compact_and_decide_again() -> None:
    result = run.filter_documents(frame("\n".join(PROSE), "a b c", ""), FilterConfig())
    signals = result.tables["signals"]
    types = set(signals.drop("doc_id", "language").dtypes)
    assert types == {pl.Float32, pl.Int32}
    again = decide(signals, run.rules(FilterConfig()))
    assert again["reason"].to_list() == result.tables["decisions"]["reason"].to_list()
    strict = FilterConfig.model_validate({"gopher": {"min_words": 200}})
    assert decide(signals, run.rules(strict))["reason"][0] == "gopher_quality.gopher_short_doc"


def test_an_empty_frame_gives_empty_tables_with_types() -> None:
    result = run.filter_documents(frame(), FilterConfig())
    assert [len(table) for table in result.tables.values()] == [0, 0, 0]
    schema.conform(result.tables["decisions"], schema.DECISIONS)


def test_an_empty_text_is_dropped_even_with_every_rule_set_off() -> None:
    decisions = run.filter_documents(frame("", "x"), PERMISSIVE).tables["decisions"]
    assert decisions["reason"].to_list() == ["extract.empty", None]


def test_batches_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    given = frame(*PROSE, *reversed(PROSE), None, "")
    whole = run.filter_documents(given, FilterConfig())
    monkeypatch.setattr(run, "BATCH_BYTES", 100)
    pieces = run.filter_documents(given, FilterConfig())
    for kind, table in whole.tables.items():
        assert table.equals(pieces.tables[kind]), kind


def test_unknown_columns_pass_through() -> None:
    given = frame("\n".join(PROSE), colour=pl.Series(["red"]))
    assert run.filter_documents(given, FilterConfig()).tables["parts"]["colour"].to_list() == [
        "red"
    ]


LINES = st.sampled_from(
    [
        *PROSE, "", "two words", "  blanks around this line  ", "see [1] and [٢] or [edit] here",
        "we use cookies on this page", "please enable JavaScript now",
        "über [citation needed] alles", "[3] leads this line", "this line ends so [12]",
        "[1] [2] [3]", "x\u2028y z w",
        "一 二 三 四",
    ]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(LINES, max_size=8), min_size=1, max_size=4), st.booleans())
def test_every_span_of_an_edit_is_the_same_bytes(pages: list[list[str]], crlf: bool) -> None:
    texts = [("\r\n" if crlf else "\n").join(page) for page in pages]
    parts = run.filter_documents(frame(*texts), PERMISSIVE).tables["parts"]
    before = dict(zip(frame(*texts)["doc_id"], texts, strict=True))
    for doc_id, text, edits in parts.select("doc_id", "text", "edits").rows():
        old, new = before[doc_id].encode(), text.encode()
        if edits is None:
            assert old == new
            continue
        covered = 0
        for span in edits:
            out, source, length = span["out"], span["in"], span["length"]
            assert length > 0
            assert out >= covered
            assert new[covered:out] in (b"", b"\n")
            assert new[out : out + length] == old[source : source + length]
            covered = out + length
        assert new[covered:] in (b"", b"\n")


def test_edits_are_composed_with_those_that_came_in() -> None:
    text = "one two three\nwe use cookies here\nfour five six"
    earlier = [{"out": 0, "in": 100, "length": len(text)}]
    column = pl.Series([earlier], dtype=pl.List(pl.Struct(dict.fromkeys(earlier[0], pl.UInt32))))
    parts = run.filter_documents(frame(text, edits=column), PERMISSIVE).tables["parts"]
    assert parts["text"][0] == "one two three\nfour five six"
    assert [tuple(span.values()) for span in parts["edits"].to_list()[0]] == [
        (0, 100, 13), (13, 133, 14),
    ]  # fmt: skip


def test_explain_says_what_a_document_is_dropped_for() -> None:
    rows = run.explain("a b c { d e f " * 20, None, FilterConfig())
    failed = [r.rule for r in rows if not r.passes]
    assert "gopher_repetition.top_2_gram" in failed
    assert "c4.curly_bracket" in failed
    assert len({r.rule for r in rows}) == len(rows)


@pytest.mark.shared
def test_hard_cases(shared: Path) -> None:
    def decided(name: str) -> dict[str, str | None]:
        given = pl.read_ndjson(shared / "cases/filters" / name).rename({"id": "doc_id"})
        decisions = run.filter_documents(given, FilterConfig()).tables["decisions"]
        return dict(decisions.select("doc_id", "reason").iter_rows())

    assert decided("blank-lines.jsonl") == {"bl": None}
    share = decided("alpha-share.jsonl")
    assert share == {"a90": None, "a55": "gopher_quality.gopher_below_alpha_threshold"}
    empty = decided("empty.jsonl")
    assert all(empty[name] for name in ("e1", "e2", "e3", "e4"))
    for reason in decided("no-spaces.jsonl").values():
        assert not (reason or "").startswith("gopher_quality")


def test_what_is_remembered_does_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline import words

    given = frame(*["\n".join(PROSE), "Ein Satz (mit Klammern).", "東京タワー。" * 9, ""] * 5)
    once = run.filter_documents(given, FilterConfig()).tables
    monkeypatch.setattr(words, "_TOKENIZER", words.Tokenizer(most_known=1))
    monkeypatch.setattr(run, "BATCH_BYTES", 200)
    again = run.filter_documents(given, FilterConfig()).tables
    for name, table in once.items():
        assert table.equals(again[name]), name
