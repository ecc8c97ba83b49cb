"""The driver: nothing lost, nothing half-done, equal output is one data version."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from pipeline.commit import publish
from pipeline.config import Config
from pipeline.dataset import Dataset, find_rows, read_part
from pipeline.driver import StageSpec
from pipeline.errors import ConflictError, ContractError, DamagedPartError, GateError, UsageError
from pipeline.inputs import Input, dataset_input, file_input
from pipeline.manifest import Manifest
from pipeline.mill import Mill, register_snapshot, registered_snapshots, run_stage
from pipeline.part import PartResult
from resources.engine import LocalEngine
from resources.storage import open_store
from resources.storage_local import LocalStore


def keep_long(frame: pl.DataFrame, *, at_least: int) -> PartResult:
    """A stage in miniature: texts of at least so many characters."""
    size = frame["text"].str.len_chars()
    kept = size >= at_least
    decisions = frame.select("doc_id", "url").with_columns(
        stage=pl.lit("long"),
        kept=kept,
        reason=pl.when(~kept).then(pl.lit("extract.empty")),
        value=size.cast(pl.Float64),
        threshold=pl.lit(float(at_least)),
    )
    return PartResult({"parts": frame.filter(kept), "decisions": decisions})


def lose_one(frame: pl.DataFrame) -> PartResult:
    """A stage with a fault: its last document has no fate."""
    result = keep_long(frame, at_least=1)
    return PartResult({"parts": result.tables["parts"], "decisions": frame_head(result)})


def frame_head(result: PartResult) -> pl.DataFrame:
    return result.tables["decisions"].head(-1)


@dataclass(frozen=True)
class Raced(LocalStore):
    """A store whose pointer somebody else moves, to their result or to ours, before we do."""

    theirs: bytes | None = b"somebody else\n"

    def swap(self, key: str, new: bytes, *, expected: bytes | None) -> None:
        self.write(key, self.theirs or new)
        super().swap(key, new, expected=expected)


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return make_mill(tmp_path / "root")


def make_mill(root: Path, workers: int = 1) -> Mill:
    return Mill(
        root=open_store(str(root)),
        config=Config(),
        engine=LocalEngine(workers),
        fetch=lambda place: pytest.fail(f"nothing fetches {place}"),
        open_store=open_store,
    )


@pytest.fixture
def given(tmp_path: Path) -> Input:
    paths = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.jsonl"
        rows = [{"text": f"{name}{i}" * (i + 1), "url": f"https://{name}/{i}"} for i in range(6)]
        lines = [*map(json.dumps, rows), "{broken"]
        path.write_text("\n".join(lines) + "\n")
        paths.append(path)
    return file_input(paths)


def run(mill: Mill, given: Input, at_least: int = 5, partition: str | None = None) -> Manifest:
    spec = StageSpec("long", "1", ("polars",), partition, {"at_least": at_least})
    return run_stage(mill, spec, given, partial(keep_long, at_least=at_least), mill.root)


def test_every_row_has_a_fate_bad_lines_too(mill: Mill, given: Input) -> None:
    manifest = run(mill, given)
    counts = manifest.content.counts
    assert (counts.records_in, counts.kept, counts.dropped) == (14, 8, 6)
    assert counts.reasons == {"extract.empty": 4, "input.bad_line": 2}
    dataset = Dataset.open(mill.root)
    assert dataset.load("decisions")["stage"].unique().to_list() == ["long"]
    assert dataset.load().height == 8
    assert [gate.verdict for gate in manifest.content.gates] == ["pass", "pass"]


def test_the_same_again_does_nothing(mill: Mill, given: Input) -> None:
    first = run(mill, given)
    before = {info.key: mill.root.read(info.key) for info in mill.root.list()}
    assert run(mill, given).hash == first.hash
    assert {info.key: mill.root.read(info.key) for info in mill.root.list()} == before


def test_order_of_arguments_and_workers_are_in_no_hash(tmp_path: Path, given: Input) -> None:
    paths = [Path(place) for place in given.locations]
    one = run(make_mill(tmp_path / "one"), file_input(paths))
    two = make_mill(tmp_path / "two", workers=2)
    with two.engine:
        assert run(two, file_input(paths[::-1])).hash == one.hash


def test_equal_output_under_another_configuration_is_the_same_data(
    mill: Mill, given: Input
) -> None:
    loose, tight = run(mill, given, at_least=5), run(mill, given, at_least=6)
    assert loose.hash != tight.hash
    assert loose.content.output == tight.content.output


def test_a_missing_part_is_made_again(mill: Mill, given: Input) -> None:
    first = run(mill, given)
    mill.root.delete([first.content.parts[0].path])
    assert run(mill, given).hash == first.hash
    assert read_part(mill.root, first.content.parts[0]).height == 4


def test_a_damaged_part_is_refused_by_name(mill: Mill, given: Input) -> None:
    entry = run(mill, given).content.parts[1]
    mill.root.write(entry.path, b"x" * entry.bytes)
    with pytest.raises(DamagedPartError, match=entry.path):
        Dataset.open(mill.root).load()


def test_only_files_of_the_manifest_are_read(mill: Mill, given: Input) -> None:
    run(mill, given)
    mill.root.write("part-stray.parquet", b"")
    assert Dataset.open(mill.root).load().height == 8


def test_a_stage_that_loses_a_document_fails_its_gate(mill: Mill, given: Input) -> None:
    spec = StageSpec("loses", "1", (), None, {})
    manifest = run_stage(mill, spec, given, lose_one, mill.root)
    assert [gate.name for gate in manifest.failed_gates()] == ["conserved"]
    with pytest.raises(GateError, match="conserved"):
        Dataset.open(mill.root)


def test_a_failed_gate_can_be_accepted_with_a_reason(mill: Mill, given: Input) -> None:
    accepting = Config.model_validate({"accept_gate": {"name": "conserved", "reason": "a trial"}})
    spec = StageSpec("loses", "1", (), None, {})
    trusting = Mill(mill.root, accepting, mill.engine, mill.fetch, mill.open_store)
    manifest = run_stage(trusting, spec, given, lose_one, mill.root)
    assert manifest.content.accepted_gates == [{"name": "conserved", "reason": "a trial"}]
    assert Dataset.open(mill.root).load().height == 12


def test_a_dataset_is_the_input_of_the_next(mill: Mill, given: Input) -> None:
    first = run(mill, given)
    spec = StageSpec("longer", "1", ("polars",), None, {})
    out = mill.root.child("next")
    source = dataset_input(Dataset.open(mill.root))
    second = run_stage(mill, spec, source, partial(keep_long, at_least=10), out)
    assert [ref.hash for ref in second.content.inputs] == [first.hash]
    assert second.content.counts.records_in == first.content.counts.kept
    assert {entry.source for entry in second.content.parts} == {"a.jsonl", "b.jsonl"}


def test_rows_are_found_by_value_none_for_no_value(mill: Mill, given: Input) -> None:
    made = run(mill, given)
    entry = made.content.parts[0]
    first = read_part(mill.root, entry)["doc_id"][0]
    assert find_rows(mill.root, entry, "doc_id", [first, "absent"]).num_rows == 1
    nothing = find_rows(mill.root, entry, "doc_id", [])
    assert (nothing.num_rows, "text" in nothing.column_names) == (0, True)


def test_an_altered_manifest_is_refused(mill: Mill, given: Input) -> None:
    key = f"manifests/{run(mill, given).hash}.json"
    text = mill.root.read(key).replace(b'"kept": 8', b'"kept": 9')
    mill.root.write(key, text)
    with pytest.raises(ContractError, match="has the content of"):
        Dataset.open(mill.root)


def test_two_runs_cannot_both_move_the_pointer(mill: Mill, given: Input, tmp_path: Path) -> None:
    run(mill, given, at_least=5)
    rival = run(make_mill(tmp_path / "other"), given, at_least=7)
    with pytest.raises(ConflictError, match="another run"):
        publish(Raced(tmp_path / "root"), rival)
    assert mill.root.read("current") == b"somebody else\n"


def test_two_runs_with_the_same_result_both_end_well(
    mill: Mill, given: Input, tmp_path: Path
) -> None:
    run(mill, given, at_least=5)
    rival = run(make_mill(tmp_path / "other"), given, at_least=7)
    publish(Raced(tmp_path / "root", theirs=None), rival)
    assert Dataset.open(mill.root).manifest.hash == rival.hash


def test_nothing_there_is_a_usage_error(mill: Mill) -> None:
    with pytest.raises(UsageError, match="filtered_text/S is not there yet"):
        mill.open("filtered_text", "S")


def test_snapshots_are_numbered_for_good(mill: Mill) -> None:
    assert [register_snapshot(mill.root, name) for name in ("B", "A", "B")] == [0, 1, 0]
    assert registered_snapshots(mill.root) == ["B", "A"]


@pytest.mark.shared
def test_partition_names(mill: Mill, shared: Path) -> None:
    names = json.loads((shared / "cases/orchestration/partition-names.json").read_text())
    for name in names:
        if name in ("CC-MAIN-2026-05",):
            register_snapshot(mill.root, name)
        else:
            with pytest.raises(UsageError):
                register_snapshot(mill.root, name)
    assert registered_snapshots(mill.root) == ["CC-MAIN-2026-05"]
