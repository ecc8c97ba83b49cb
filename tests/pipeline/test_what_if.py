"""What another threshold would do: as a real re-run does it, by numbers worked out by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.commit import publish
from pipeline.config import load_config, section_json
from pipeline.config.display import DisplayConfig
from pipeline.config.filter import FilterConfig
from pipeline.dataset import Dataset
from pipeline.errors import ConfigError, ContractError, UsageError
from pipeline.filters.rules import Rule, above, below
from pipeline.filters.run import filter_documents
from pipeline.inputs import dataset_input, file_input
from pipeline.manifest import Content
from pipeline.mill import register_snapshot
from pipeline.stages.curation import filter_input
from pipeline.what_if import examples, question, tally
from pipeline.what_if.answer import what_if
from pipeline.what_if.question import Question, flat, refusal
from pipeline.what_if.subjects import Subject, filtered_folder, filtered_snapshots
from pipeline.what_if.tally import Groups, Judged, Side, Tally, judge_batch
from resources.mill import open_mill
from resources.storage import open_store

LONG = "The {} of the {} was with {} when a {} and that {} had to leave {} for the {}."
SHORT = "The {} came to the {} with a {} and {}."
GERMAN = "Der {} in der {} war mit {} hier, als ein {} und die {} von {} nach dem {} gingen."
THINGS = (
    "lighthouse wheel weaver morning engineer chart vineyard tide reservoir nurse almanac village "
    "shepherd ladder barrel station teacher mason lemon miller bridge grain harbour garden river "
    "library museum market chapel baker porter pilot painter clerk letter winter orchard kettle"
)
DINGE = (
    "Leuchtturm Klippe Schiff Lehrer Abend Stausee Mühle Schäfer Herbst Bahnhof Salz Fass Dorf "
    "Leiter Wagen Garten Brücke Hafen Markt Kapelle Bäcker Maler Winter Brief Fluss Museum"
)
MAIL = "Write to the old miller at miller@mill-pond.org and she will know what to do with it."
ODD = ["{ not: prose }", "# # # # # # # #", "lorem ipsum dolor sit amet", "click here", "and ..."]
PERMISSIVE = {
    "language": {"enabled": False},
    "gopher": {"quality": False, "repetition": False},
    "c4": {"enabled": False},
    "fineweb": {"enabled": False},
}


def pages(n: int = 60) -> list[dict[str, Any]]:
    """Made-up pages: prose of many lengths, at times repeated, with what rules look for."""
    chance = random.Random(7)
    made = []
    for k in range(n):
        form = GERMAN if k % 5 == 0 else (LONG, SHORT)[k % 2]
        words = (DINGE if form == GERMAN else THINGS).split()
        lines = [form.format(*chance.sample(words, 7)) for _ in range(k % 13)]
        lines += lines[: chance.choice([0, 0, 0, 1, 4])]
        lines[1:1] = chance.choices(ODD, k=chance.choice([0, 0, 0, 1, 3]))
        lines[:0] = [MAIL] * (k % 4 == 0)
        host = chance.choice(["a.example", "b.example", "c.example"])
        made.append({"id": str(k), "url": f"http://{host}/{k}", "text": "\n".join(lines)})
    return made


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def run(folder: Path, given: Any, **sections: Any) -> Dataset:
    """A real run of the stage."""
    config = load_config(
        overrides={
            "storage": {"root": str(folder)},
            "engine": {"workers": 1},
            "filter": sections,
        }
    )
    mill = open_mill(config)
    with mill.engine:
        return Dataset(mill.root, filter_input(mill, given, mill.root, None))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`in`: a dataset of all pages in two parts; `out`: what the default rules keep of it."""
    place = tmp_path_factory.mktemp("what-if")
    rows = pages()
    files = [write(place / "one.jsonl", rows[:25]), write(place / "two.jsonl", rows[25:])]
    incoming = run(place / "in", file_input(files), **PERMISSIVE)
    run(place / "out", dataset_input(incoming), gopher={"min_words": 40})
    return place


def ask(*subjects: Subject | Path, display: DisplayConfig | None = None, **sections: Any) -> Any:
    chosen = [filtered_folder(open_store(str(s))) if isinstance(s, Path) else s for s in subjects]
    return what_if(
        chosen, Question(sections), display=display or DisplayConfig(), open_store=open_store
    )


def check_sums(result: dict[str, Any]) -> None:
    """Everything adds up, on both sides, and what turned explains the difference."""
    for side in ("before", "after"):
        one = result[side]
        assert one["kept"] + one["dropped"] == one["records_in"]
        assert sum(one["reasons"].values()) == one["dropped"]
        for group in ("by_language", "by_host"):
            assert sum(g["documents"] for g in one[group].values()) == one["kept"]
            assert sum(g["bytes"] for g in one[group].values()) == one["bytes"]
        assert sum(s[side]["kept"] for s in result["snapshots"]) == one["kept"]
        assert sum(s[side]["bytes"] for s in result["snapshots"]) == one["bytes"]
        rules = [one for one in result["rules"] if "." in one["rule"] and one[side]]
        read = {name: n for name, n in one["reasons"].items() if not name.startswith("input.")}
        assert {r["rule"]: r[side]["first"] for r in rules if r[side]["first"]} == read
    turned, before, after = result["turned"], result["before"], result["after"]
    for what, key in (("documents", "kept"), ("bytes", "bytes")):
        change = turned["rescued"][what] - turned["newly_dropped"][what]
        assert after[key] - before[key] == change


def test_before_is_what_the_manifest_says(folder: Path) -> None:
    result = ask(folder / "out", gopher={"min_words": 60})
    check_sums(result)
    content = Dataset.open(open_store(str(folder / "out"))).manifest.content
    assert result["before"]["records_in"] == content.counts.records_in
    assert result["before"]["kept"] == content.counts.kept
    assert result["before"]["reasons"] == content.counts.reasons
    assert result["before"]["bytes"] == content.summary["text_bytes"]
    kept = {k: v for k, v in result["before"]["by_language"].items() if v["documents"]}
    assert kept == {
        language: {"documents": n, "bytes": size}
        for language, (n, size) in content.summary["language"].items()
    }
    assert result["settings"] == [
        {"key": "filter.gopher.min_words", "before": 40, "after": 60,
         "snapshots": [str(folder / "out")]}
    ]  # fmt: skip


@pytest.mark.parametrize(
    "sections",
    [
        {"gopher": {"min_words": 60}},
        {"gopher": {"min_words": 20, "duplicated_5_n_grams": None}, "c4": {"min_sentences": 2}},
        {"gopher": {"repetition": False, "quality": False}},
        {"language": {"keep": ["de"], "min_score": 0.9}, "c4": {"curly_bracket": False}},
        {"fineweb": {"enabled": False}, "c4": {"lorem_ipsum": False, "min_sentences": None}},
    ],
)
def test_after_is_what_a_run_with_the_settings_makes(
    folder: Path, tmp_path: Path, sections: dict[str, Any]
) -> None:
    result = ask(folder / "out", **sections)
    check_sums(result)
    again = question.lay({"gopher": {"min_words": 40}}, sections)
    incoming = Dataset.open(open_store(str(folder / "in")))
    content = run(tmp_path / "again", dataset_input(incoming), **again).manifest.content
    assert result["after"]["kept"] == content.counts.kept
    assert result["after"]["reasons"] == content.counts.reasons
    assert result["after"]["bytes"] == content.summary["text_bytes"]


@lru_cache(maxsize=1)
def frame() -> pl.DataFrame:
    rows = pages(80)
    frame = pl.DataFrame(rows).with_columns(doc_id=pl.format("d{}", "id"))
    return frame.select("doc_id", "url", "text")


@lru_cache(maxsize=2)
def measured(dclm: bool) -> pl.DataFrame:
    config = FilterConfig.model_validate({"dclm": {"enabled": dclm}})
    return filter_documents(frame(), config).tables["signals"]


def limits() -> Iterator[tuple[str, Any]]:
    """Every numeric key that is answered, with values around its default, and two of languages."""
    for key, value in flat(section_json(FilterConfig())).items():
        if refusal(key) is None and isinstance(value, int | float) and not isinstance(value, bool):
            near = st.integers(0, 4 * value + 5) if isinstance(value, int) else st.floats(0, 1)
            yield key, st.one_of(st.none(), near) if "threshold" not in key else st.integers(1, 5)
    yield "per_language.de.gopher.min_words", st.one_of(st.none(), st.integers(0, 200))
    yield "per_language.en.fineweb.line_punct_ratio", st.one_of(st.none(), st.floats(0, 1))
    yield "language.min_scores", st.dictionaries(st.sampled_from(["de", "en"]), st.floats(0, 1))


LIMITS = dict(limits())


@settings(max_examples=40, deadline=None)
@given(st.fixed_dictionaries({}, optional=LIMITS), st.booleans())
def test_signals_decide_as_a_run_does_for_any_thresholds(
    values: dict[str, Any], dclm: bool
) -> None:
    sections: dict[str, Any] = {"dclm": {"enabled": dclm}}
    for key, value in values.items():
        nested: Any = value
        for name in reversed(key.split(".")):
            nested = {name: nested}
        sections = question.lay(sections, nested)
    try:
        config = FilterConfig.model_validate(sections)
    except ValueError:
        return  # a limit that the configuration refuses
    again = filter_documents(frame(), config).tables
    side = {"before": Side.of(_rules(config)), "after": Side.of(_rules(config))}
    judged = judge_batch(measured(dclm), frame()["url"], side)
    assert judged.decided["after"]["reason"].equals(again["decisions"]["reason"])
    total = Tally()
    total.add(judged)
    assert total.bytes["after"] == again["parts"]["text"].str.len_bytes().sum()
    assert total.kept["after"] == again["parts"].height


def _rules(config: FilterConfig) -> list[Rule]:
    from pipeline.filters.run import rules

    return rules(config)


def test_thresholds_of_one_language(folder: Path, tmp_path: Path) -> None:
    german = {"de": {"gopher": {"min_words": 150}}}
    result = ask(folder / "out", per_language=german)
    check_sums(result)
    [change] = result["settings"]
    assert change["key"] == "filter.per_language.de.gopher.min_words"
    assert result["newly_dropped"]
    assert {page["language"] for page in result["newly_dropped"]} == {"de"}
    assert {page["threshold"] for page in result["newly_dropped"]} == {150}
    incoming = Dataset.open(open_store(str(folder / "in")))
    run(tmp_path / "out", dataset_input(incoming), gopher={"min_words": 40}, per_language=german)
    again = ask(tmp_path / "out", per_language={"de": {"gopher": {"min_words": 40}}})
    assert again["before"]["reasons"] == result["after"]["reasons"]
    assert again["after"]["reasons"] == result["before"]["reasons"]
    assert ask(tmp_path / "out", per_language={})["after"] == again["after"]


def test_files_of_languages_are_answered_but_for_their_stop_words(
    folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "deu_Latn.yml"
    file.write_text("language_score: 0.5\nmax_avg_word_length: 4\n")
    result = ask(folder / "out", language_files=[str(file)])
    assert [one["key"] for one in result["settings"]] == [
        "filter.language.min_scores.de", "filter.per_language.de.gopher.max_word_length",
    ]  # fmt: skip
    assert {page["language"] for page in result["newly_dropped"]} == {"de"}
    file.write_text("stopwords: [der, die, das]\n")
    with pytest.raises(ConfigError, match=r"filter\.gopher\.stop_words\.de cannot be told"):
        ask(folder / "out", language_files=[str(file)])


def test_every_key_of_the_filter_is_answered_or_refused_with_a_reason() -> None:
    keys = flat(section_json(FilterConfig()))
    unsaid = [key for key in keys if refusal(key) == refusal("a_key_nobody_knows")]
    assert unsaid == []
    answered = {key for key in keys if refusal(key) is None}
    assert {"gopher.min_words", "fineweb.list_ratio", "language.keep"} <= answered
    assert "gopher.stop_words.en" not in answered


REFUSED = {
    "gopher.stop_words": {"en": ["a"]},
    "c4.javascript": False,
    "c4.enabled": False,
    "fineweb.short_line_length": 10,
    "urls.domains": __file__,
    "language.min_chars": 99,
    "plugins.shouting": {},
}


@pytest.mark.parametrize(("key", "value"), REFUSED.items())
def test_what_signals_cannot_tell_is_refused_by_name(folder: Path, key: str, value: Any) -> None:
    section, _, name = key.partition(".")
    sections: dict[str, Any] = {section: {name: value}}
    with pytest.raises(ConfigError, match=rf"filter\.{key}.* cannot be told from the signals"):
        ask(folder / "out", **sections)


def test_an_emptied_list_and_a_removed_file_are_refused_too(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="stop_words"):
        ask(folder / "out", gopher={"stop_words": {}})
    listed = tmp_path / "hosts.txt"
    listed.write_text("a.example\n")
    incoming = Dataset.open(open_store(str(folder / "in")))
    run(tmp_path / "out", dataset_input(incoming), urls={"domains": str(listed)})
    result = ask(tmp_path / "out", gopher={"min_words": 60})
    assert [one["key"] for one in result["settings"]] == ["filter.gopher.min_words"]
    assert result["before"]["reasons"]["url.listed"] > 5
    assert ask(tmp_path / "out", urls={"domains": str(listed)})["settings"] == []
    with pytest.raises(ConfigError, match=r"filter\.urls\.domains"):
        ask(tmp_path / "out", urls={"domains": None})


def test_wrong_values_and_unknown_keys_are_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"filter\.gopher\.min_words: -1 is not allowed"):
        ask(folder / "out", gopher={"min_words": -1})
    with pytest.raises(ConfigError, match=r"filter\.gopher\.min_wrods: unknown key"):
        ask(folder / "out", gopher={"min_wrods": 1})


@pytest.mark.parametrize("key", ["score.min_quality", "extract.mode", "dedup.threshold"])
def test_keys_outside_the_filter_are_refused(key: str) -> None:
    laid = question.settings([f"{key}=0.5", "filter.gopher.min_words=3"])
    with pytest.raises(ConfigError, match=key):
        question.question(laid, load_config())


def test_settings_are_laid_on_what_was_stored_and_presets_replace_it() -> None:
    given = load_config(preset="fineweb", overrides={"filter": {"gopher": {"min_words": 9}}})
    laid = question.settings(["filter.gopher.min_words=9", "display.excerpts=false"])
    assert question.question(laid, given).changes == {"gopher": {"min_words": 9}}
    assert question.question(laid, given, whole=True).whole == given.filter
    assert question.question({"preset": "fineweb", **laid}, given).whole == given.filter
    assert question.question({"display": {"excerpts": False}}, given).whole == given.filter


def three() -> tuple[pl.DataFrame, dict[str, Side]]:
    """Six documents and three rules, of which `after` has another limit and no third."""
    signals = pl.DataFrame(
        {
            "doc_id": ["a", "b", "c", "d", "e", "f"],
            "language": ["en", "en", "de", "de", "en", "und"],
            "n_bytes": [10, 20, 30, 40, 50, 60],
            "words": [100, 10, 10, 30, 100, 30],
            "dots": [0.0, 0.0, 0.5, 0.0, 0.5, None],
            "rows": [1, 1, 1, 9, 9, 1],
        }
    )
    before = [
        *below("g.short", "words", 20),
        *above("g.dots", "dots", 0.2),
        *above("h.rows", "rows", 5),
    ]
    after = [*below("g.short", "words", 40), *above("g.dots", "dots", 0.2)]
    return signals, {"before": Side.of(before), "after": Side.of(after)}


def judged_three() -> Judged:
    signals, sides = three()
    urls = pl.Series("url", ["http://A.example/1", "http://u:p@a.example:80/", "http://b.example",
                             None, "http://<b>/", "http://b.example/x"])  # fmt: skip
    return judge_batch(signals, urls, sides)


def test_shares_of_rules_by_hand() -> None:
    total = Tally()
    total.add(judged_three())
    assert (total.kept["before"], total.bytes["before"]) == (2, 70)  # a, f
    assert (total.kept["after"], total.bytes["after"]) == (1, 10)  # a
    assert total.turned == Counter(before=1)  # f
    assert total.turned_bytes == Counter(before=60)
    assert total.reasons["before"] == Counter({"g.short": 2, "g.dots": 1, "h.rows": 1})
    assert total.reasons["after"] == Counter({"g.short": 4, "g.dots": 1})
    assert total.other_reason == 1  # d: rows, then short
    alone = {name: (s.fails, s.alone, s.alone_bytes) for name, s in total.rules["before"].items()}
    assert alone == {
        "g.short": (2, 1, 20),  # b and c; c has dots as well
        "g.dots": (2, 0, 0),  # c is short and e has rows
        "h.rows": (2, 1, 40),  # d and e; e has dots
        "g": (3, 2, 50),  # b, c, e; e has rows
    }
    assert {name: s.alone for name, s in total.rules["after"].items()} == {
        "g.short": 3, "g.dots": 1, "g": 5,
    }  # fmt: skip


def test_leaving_a_rule_out_keeps_what_it_alone_removes(folder: Path) -> None:
    result = ask(folder / "out", gopher={"min_words": 110})
    share = {one["rule"]: one["after"] for one in result["rules"]}[
        "gopher_quality.gopher_short_doc"
    ]
    without = ask(folder / "out", gopher={"min_words": None})
    assert share["kept_without"] == without["after"]["kept"]
    assert share["alone"] > 0
    of_set = {one["rule"]: one["after"] for one in result["rules"]}["gopher_quality"]
    off = ask(folder / "out", gopher={"min_words": 110, "quality": False})
    assert of_set["kept_without"] == off["after"]["kept"]
    gone = {one["rule"]: one["after"] for one in off["rules"]}
    assert gone["gopher_quality.gopher_short_doc"] is None


def test_hosts_are_told_apart_by_name_only() -> None:
    total = Tally()
    total.add(judged_three())
    hosts = {row["name"]: row["records_in"] for row in total.hosts.top(9)}
    assert hosts == {"a.example": 2, "b.example": 2, "(no host)": 1, "(odd host)": 1}


def test_the_rest_of_the_hosts_is_one_row_and_nothing_is_lost(monkeypatch: Any) -> None:
    monkeypatch.setattr(tally, "PENDING", 3)
    monkeypatch.setattr(tally, "HOSTS", 4)
    groups = Groups()
    for k in range(20):
        groups.add(pl.DataFrame({"name": [f"h{k % 7}"], **{key: [1] for key in tally.SUMS}}))
    rows = groups.top(2)
    assert [row["name"] for row in rows] == ["h0", "h1", "(others)"]
    assert sum(row["records_in"] for row in rows) == 20


def test_sums_of_snapshots_add_up() -> None:
    whole, parts = Tally(), [Tally(), Tally()]
    for part in parts:
        part.add(judged_three())
        whole.merge(part)
    assert whole.records_in == 12
    assert whole.kept == Counter(before=4, after=2)
    assert whole.rules["before"]["g"].alone_bytes == 100
    assert whole.languages.table()["records_in"].sum() == 12


def test_examples_say_what_drops_them_and_show_no_personal_data(folder: Path) -> None:
    result = ask(folder / "out", gopher={"min_words": 110, "duplicated_5_n_grams": None})
    dropped = result["newly_dropped"]
    assert 0 < len(dropped) <= 10
    kept = Dataset.open(open_store(str(folder / "out"))).load()
    for page in dropped:
        assert page["reason"] == "gopher_quality.gopher_short_doc"
        assert (page["value"] < 110, page["threshold"]) == (True, 110)
        assert page["reason"] in page["fails"]
        [text] = kept.filter(pl.col("doc_id") == page["doc_id"])["text"]
        assert page["excerpt"][:20] == text[:20]
        assert len(page["excerpt"]) <= 200
        assert "miller@" not in page["excerpt"]
    assert (
        dropped
        == ask(folder / "out", gopher={"min_words": 110, "duplicated_5_n_grams": None})[
            "newly_dropped"
        ]
    )
    rescued = ask(folder / "out", gopher={"repetition": False, "min_words": 10})["rescued"]
    incoming = Dataset.open(open_store(str(folder / "in"))).load()
    for page in rescued:
        [text] = incoming.filter(pl.col("doc_id") == page["doc_id"])["text"]
        assert page["excerpt"][:15] == text.replace("\n", " ")[:15]
        assert page["reason"].split(".")[0] in ("gopher_repetition", "gopher_quality")
    assert len({page["reason"] for page in rescued}) > 1, "every rule has its turn"


def test_pages_of_files_are_found_in_the_file(tmp_path: Path) -> None:
    file = write(tmp_path / "pages.jsonl", pages())
    file.write_text(file.read_text() + "no JSON\n")
    run(tmp_path / "out", file_input([file]))
    result = ask(tmp_path / "out", gopher={"repetition": False})
    check_sums(result)
    assert result["before"]["reasons"]["input.bad_line"] == 1
    assert result["after"]["reasons"]["input.bad_line"] == 1
    assert result["rescued"]
    assert all(page["excerpt"] for page in result["rescued"])
    write(file, pages(30))
    assert not any(
        p["excerpt"] for p in ask(tmp_path / "out", gopher={"repetition": False})["rescued"]
    )
    file.unlink()
    again = ask(tmp_path / "out", gopher={"repetition": False})
    assert [p["doc_id"] for p in again["rescued"]] == [p["doc_id"] for p in result["rescued"]]
    assert not any(page["excerpt"] for page in again["rescued"])


def test_excerpts_can_be_off(folder: Path) -> None:
    result = ask(folder / "out", display=DisplayConfig(excerpts=False), gopher={"min_words": 110})
    assert result["newly_dropped"]
    assert not any(page["excerpt"] for page in result["newly_dropped"])


def test_sums_do_not_depend_on_the_parts_that_examples_are_of(
    folder: Path, monkeypatch: Any
) -> None:
    whole = ask(folder / "out", gopher={"min_words": 60})
    monkeypatch.setattr(examples, "PARTS", 1)
    assert ask(folder / "out", gopher={"min_words": 60})["before"] == whole["before"]


def test_batches_do_not_show(folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    whole = ask(folder / "out", gopher={"min_words": 60})
    monkeypatch.setattr("pipeline.batches.ROW_GROUP_ROWS", 7)
    monkeypatch.setattr("pipeline.what_if.part.BATCH_ROWS", 7)
    monkeypatch.setattr("pipeline.what_if.part.ROW_GROUP_ROWS", 7)
    incoming = Dataset.open(open_store(str(folder / "in")))
    run(tmp_path / "out", dataset_input(incoming), gopher={"min_words": 40})
    pieces = ask(tmp_path / "out", gopher={"min_words": 60})
    for key in ("before", "after", "turned", "rules", "newly_dropped", "rescued"):
        assert pieces[key] == whole[key], key


def test_all_snapshots_of_a_store_in_order(folder: Path, tmp_path: Path) -> None:
    root = open_store(str(tmp_path))
    incoming = Dataset.open(open_store(str(folder / "in")))
    for name, words in (("B", 40), ("A", 50)):
        register_snapshot(root, name)
        run(tmp_path / "filtered_text" / name, dataset_input(incoming), gopher={"min_words": words})
    register_snapshot(root, "C")
    result = what_if(
        list(filtered_snapshots(root)),
        Question({"gopher": {"min_words": 60}}),
        display=DisplayConfig(),
        open_store=open_store,
    )
    check_sums(result)
    assert [one["snapshot"] for one in result["snapshots"]] == ["B", "A"]
    changes = [(one["before"], one["after"], one["snapshots"]) for one in result["settings"]]
    assert changes == [(40, 60, ["B"]), (50, 60, ["A"])]
    assert [s.name for s in filtered_snapshots(root, ["A"])] == ["A"]
    with pytest.raises(UsageError, match="filtered_text/C is not there"):
        list(filtered_snapshots(root, ["C"]))
    with pytest.raises(UsageError, match="has no filtered_text"):
        list(filtered_snapshots(open_store(str(tmp_path / "empty"))))


def altered(folder: Path, place: Path, **more: Any) -> Subject:
    """The dataset under a manifest whose content says something else."""
    subject = filtered_folder(open_store(str(folder / "out")))
    content = subject.dataset.manifest.content
    values = {**content.model_dump(), **more}
    manifest = subject.dataset.manifest.model_copy(update={"content": Content(**values)})
    return replace(subject, dataset=Dataset(subject.dataset.store, manifest))


def test_decisions_that_do_not_follow_from_the_signals_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    content = filtered_folder(open_store(str(folder / "out"))).dataset.manifest.content
    config = {**content.config, "gopher": {**content.config["gopher"], "min_words": 45}}
    with pytest.raises(ContractError, match=r"was decided .*, its signals say .* differ"):
        ask(altered(folder, tmp_path, config=config), gopher={"min_words": 60})
    config = {**content.config, "gone": 1}
    with pytest.raises(ContractError, match="this version cannot read gone"):
        ask(altered(folder, tmp_path, config=config), gopher={"min_words": 60})


def test_signals_of_an_earlier_version_are_refused(folder: Path, tmp_path: Path) -> None:
    content = filtered_folder(open_store(str(folder / "out"))).dataset.manifest.content
    kept = [entry.model_dump() for entry in content.parts]
    paired = [{**k, "key": s.key} for k, s in zip(kept, content.entries("signals"), strict=True)]
    with pytest.raises(ContractError, match="lacks the signal"):
        ask(altered(folder, tmp_path, signals=paired), gopher={"min_words": 60})


def test_another_stage_has_no_signals(folder: Path, tmp_path: Path) -> None:
    dataset = Dataset.open(open_store(str(folder / "out")))
    content = dataset.manifest.content.model_copy(update={"stage": "scored_text"})
    store = open_store(str(tmp_path))
    publish(store, dataset.manifest.model_copy(update={"content": content}))
    with pytest.raises(UsageError, match="holds scored_text, which has no signals"):
        filtered_folder(store)
