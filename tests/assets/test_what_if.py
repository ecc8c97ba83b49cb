"""The verb and the asset `what_if`: one answer, asked from a terminal or from the launchpad."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.cli import main
from pipeline.config import load_config
from pipeline.dataset import Dataset
from pipeline.inputs import dataset_input, file_input
from pipeline.mill import Mill, register_snapshot
from pipeline.stages.curation import filter_input
from resources.mill import open_mill
from tests.s3_server import moto_server

LINE = "The {0} of the {1} was with a {2} when the {3} came, and that {4} had to leave for {5}."
WORDS = (
    "lighthouse wheel weaver morning engineer chart vineyard tide reservoir nurse almanac village "
    "shepherd ladder barrel station teacher mason lemon miller bridge grain harbour garden river "
    "library museum market chapel baker porter pilot painter clerk letter winter orchard kettle"
)
SHORT = "gopher_quality.gopher_short_doc"
KEEP_ALL = {
    "language": {"enabled": False},
    "gopher": {"quality": False, "repetition": False},
    "c4": {"enabled": False},
    "fineweb": {"enabled": False},
}
ASK = {"filter": {"gopher": {"min_words": 130}, "c4": {"curly_bracket": False}}}
SETS = ["--set=filter.gopher.min_words=130", "--set=filter.c4.curly_bracket=false"]


def page(k: int) -> dict[str, Any]:
    """A page of 4 to 12 lines without a word twice in a line; page 3 holds a bracket."""
    words = WORDS.split()
    lines = [LINE.format(*(words[(7 * k + 11 * n + 5 * i) % 38] for i in range(6)))
             for n in range(4 + k % 9)]  # fmt: skip
    if k == 3:
        lines[2] += " { and more"
    url = f"http://{'ab'[k % 2]}.example/<script>{k}</script>"
    return {"id": str(k), "url": url, "text": "\n".join(lines)}


def build(root: str, folder: Path, **storage: Any) -> None:
    """A store with two filtered snapshots."""
    for name in ("A", "B"):
        file = folder / f"{name}.jsonl"
        rows = (page(k) for k in range(20 if name == "A" else 12))
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        with opened(root, **storage) as mill:
            register_snapshot(mill.root, name)
            incoming = mill.folder("extracted_text", name)
            config = load_config(overrides={"filter": KEEP_ALL})
            filter_input(_with(mill, config), file_input([file]), incoming, name)
            given = dataset_input(Dataset.open(incoming))
            filter_input(mill, given, mill.folder("filtered_text", name), name)


def opened(root: str, **storage: Any) -> Any:
    import contextlib

    @contextlib.contextmanager
    def managed() -> Iterator[Mill]:
        values = {"storage": {"root": root, **storage}, "engine": {"workers": 1}}
        mill = open_mill(load_config(overrides=values))
        with mill.engine:
            yield mill

    return managed()


def _with(mill: Mill, config: Any) -> Mill:
    from dataclasses import replace

    return replace(mill, config=config)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("what-if-store")
    build(str(folder / "root"), folder)
    return folder / "root"


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code = main(["what-if", *words, "--json"])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(["what-if", *words, "--json"])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert "\nhint: " in err
    return err


def test_the_verb_answers_for_a_store(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = asked(capsys, "--root", str(store), *SETS)
    assert {"before", "after", "newly_dropped", "rescued"} <= set(result)
    assert [one["snapshot"] for one in result["snapshots"]] == ["A", "B"]
    assert result["before"]["records_in"] == 32
    assert result["turned"]["newly_dropped"]["documents"] == len(result["newly_dropped"]) > 0
    assert result["turned"]["rescued"]["documents"] == len(result["rescued"]) == 2
    assert {page["reason"] for page in result["rescued"]} == {"c4.curly_bracket"}
    assert {page["reason"] for page in result["newly_dropped"]} == {SHORT}
    for page in (*result["newly_dropped"], *result["rescued"]):
        assert "<" not in page["url"]
        assert page["excerpt"].startswith("The ")
    only = asked(capsys, "--root", str(store), "--snapshot", "B", *SETS)
    assert only["before"]["records_in"] == 12


def test_the_verb_answers_for_a_folder_as_for_the_store(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = asked(capsys, "--root", str(store), "--snapshot", "A", *SETS)
    folder = asked(capsys, str(store / "filtered_text" / "A"), *SETS)
    for key in ("before", "after", "newly_dropped", "rescued", "rules"):
        assert folder[key] == whole[key]


def test_a_terminal_gets_tables(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["what-if", "--root", str(store), *SETS]) == 0
    out = capsys.readouterr().out
    for words in ("filter.gopher.min_words: 50 -> 130  (A, B)", "before ", "after ", "A: ",
                  "language", "host", SHORT, "set of rules", "newly dropped, ",
                  "rescued, 2 of 2", "against 130"):  # fmt: skip
        assert words in out
    assert "<script>" not in out


def test_wrong_questions_leave_2_and_a_sentence(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ("--root", str(store))
    assert "filter.c4.javascript cannot" in refused(
        capsys, *root, "--set=filter.c4.javascript=false"
    )
    assert "score.min_quality" in refused(capsys, *root, "--set=score.min_quality=0.5")
    assert "unknown key" in refused(capsys, *root, "--set=filter.gopher.words=5")
    assert "min_words: -5" in refused(capsys, *root, "--set=filter.gopher.min_words=-5")
    assert "filtered_text/C is not there" in refused(capsys, *root, "--snapshot=C", *SETS)
    assert "is no number" in refused(capsys, *root, "--top=0", *SETS)
    folder = str(store / "filtered_text" / "A")
    assert "nothing was asked" in refused(capsys, folder)
    assert "both" in refused(capsys, folder, *root, *SETS)
    assert "holds" not in refused(capsys, str(tmp_path), *SETS)
    assert "is not there" in refused(capsys, str(tmp_path / "absent"), *SETS)
    assert "no store was named" in refused(capsys, *SETS)


def test_with_a_store_alone_it_compares_with_todays_configuration(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(capsys, "--root", str(store))["settings"] == []
    result = asked(capsys, "--root", str(store), "--preset", "fineweb")
    assert [one["key"] for one in result["settings"]] == ["filter.language.keep"]
    assert "filter.c4.min_line_words" in refused(capsys, "--root", str(store), "--preset", "demo")
    (store / "gristmill.yaml").write_text("filter: {gopher: {min_words: 130}}\n")
    try:
        [change] = asked(capsys, "--root", str(store))["settings"]
    finally:
        (store / "gristmill.yaml").unlink()
    assert (change["key"], change["after"]) == ("filter.gopher.min_words", 130)


def test_a_bucket_is_asked_like_a_folder(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with moto_server() as server, server.environment():
        root = f"s3://{server.bucket()}/store"
        build(root, tmp_path)
        there = asked(capsys, "--root", root, *SETS)
    here = asked(capsys, "--root", str(store), *SETS)
    for key in ("before", "after", "newly_dropped", "rescued", "rules", "settings"):
        assert there[key] == here[key], key


def launch(store: Path, **asks: Any) -> dg.ExecuteInProcessResult:
    """The job of the web UI, in this process, on a real instance of its own."""
    from assets.definitions import defs

    settings = load_config(
        overrides={"storage": {"root": str(store)}, "engine": {"workers": 1}}
    ).model_dump_json()
    with dg.DagsterInstance.ephemeral() as instance:
        return defs.resolve_job_def("mill_what_if").execute_in_process(
            instance=instance,
            raise_on_error=False,
            run_config={
                "ops": {"what_if": {"config": asks}},
                "resources": {"mill": {"config": {"settings": settings}}},
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
            },
        )


def test_the_asset_shows_the_answer_as_tables(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = launch(store, overrides=ASK)
    assert result.success
    [made] = result.asset_materializations_for_node("what_if")
    answer = asked(capsys, "--root", str(store), *SETS)
    assert made.metadata["kept_before"].value == answer["before"]["kept"]
    assert made.metadata["kept_after"].value == answer["after"]["kept"]
    assert made.metadata["bytes_after"].value == answer["after"]["bytes"]
    for name in ("settings", "by_snapshot", "by_language", "by_host", "reasons", "rules",
                 "newly_dropped", "rescued"):  # fmt: skip
        assert isinstance(made.metadata[name], dg.TableMetadataValue), name
    pages = made.metadata["rescued"].records
    assert [page.data["text"] for page in pages] == [p["excerpt"] for p in answer["rescued"]]
    hosts = made.metadata["by_host"].records
    assert sum(row.data["documents after"] for row in hosts) == answer["after"]["kept"]


def test_the_asset_takes_snapshots_and_refuses_in_one_sentence(store: Path) -> None:
    only = launch(store, overrides=ASK, snapshots=["B"])
    [made] = only.asset_materializations_for_node("what_if")
    assert [row.data["snapshot"] for row in made.metadata["by_snapshot"].records] == ["B"]
    assert launch(store).success, "without overrides it compares with today's configuration"
    failed = launch(store, overrides={"filter": {"c4": {"javascript": False}}})
    assert not failed.success
    [step] = failed.get_step_failure_events()
    failure = step.step_failure_data.user_failure_data
    assert failure is not None
    assert failure.description is not None
    assert failure.description.startswith("filter.c4.javascript cannot be told from the signals")


def test_nothing_makes_it_by_itself_and_nothing_reads_it() -> None:
    from assets.definitions import defs

    graph = defs.resolve_asset_graph()
    node = graph.get(dg.AssetKey("what_if"))
    assert node.automation_condition is None
    assert node.child_keys == set()
    jobs = [job.name for job in defs.get_repository_def().get_all_jobs()
            if dg.AssetKey("what_if") in job.asset_layer.executable_asset_keys]  # fmt: skip
    assert [name for name in jobs if not name.startswith("__")] == ["mill_what_if"]
