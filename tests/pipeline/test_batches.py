"""Batches do not show: whatever portions rows come in, files, counts and figures are the same."""

from __future__ import annotations

import json
import tempfile
from contextlib import nullcontext
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import batches
from pipeline.config.extract import ExtractConfig
from pipeline.config.filter import FilterConfig
from pipeline.config.score import ScoreConfig
from pipeline.config.scrub import ScrubConfig
from pipeline.dataset import file_checksum, read_part
from pipeline.driver import PartTask, Receipt, StageSpec, run_part
from pipeline.errors import ContractError, DamagedPartError, StorageError
from pipeline.figures import batch_figures, joined_figures, part_figures
from pipeline.inputs import Source, TableSource, file_input
from pipeline.part import PartResult
from pipeline.part_files import TableFile
from pipeline.part_sums import PartSums
from pipeline.quality import score_documents
from pipeline.stages.crawl import WarcSource, _extract
from pipeline.stages.curation import _filter, _scrub
from resources.storage import open_store
from tests.pipeline.warcs import PAGE, response, write

SIZES = st.lists(st.integers(0, 30), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=6)
SIGNALS = {"language": pl.String, "n_words": pl.Int32, "ratio": pl.Float32}
LOOSE = FilterConfig.model_validate(
    {"gopher": {"repetition": False, "min_words": 60}, "fineweb": {"enabled": False}}
)
SENTENCE = "Where the water of the upper pond is low, the miller of the mill waits for the rain. "


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "ROW_GROUP_ROWS", 7)
    monkeypatch.setattr(batches, "ROW_GROUP_BYTES", 50)


def table(sizes: list[int], kind: str = "parts") -> pl.DataFrame:
    """Documents with texts of these sizes, or signals of so many."""
    ids = pl.Series("doc_id", [f"{i:032x}" for i in range(len(sizes))], pl.String)
    if kind == "signals":
        rows = {name: [None] * len(sizes) for name in SIGNALS}
        frame = pl.DataFrame(rows, schema=SIGNALS)
        return frame.with_columns(n_words=pl.Series(sizes, dtype=pl.Int32)).insert_column(0, ids)
    texts = pl.Series("text", ["x" * size for size in sizes], pl.String)
    colours = pl.Series("colour", [None] * len(sizes), pl.Null)
    return pl.DataFrame([ids, texts, colours])


def pieces(frame: pl.DataFrame, cuts: list[int]) -> list[pl.DataFrame]:
    bounds = [0, *sorted(min(cut, len(frame)) for cut in cuts), len(frame)]
    return [frame[start:end] for start, end in pairwise(bounds)]


def written(frames: list[pl.DataFrame], kind: str = "parts") -> tuple[str, list[int]]:
    """The checksum of a file, and the rows of its groups."""
    with tempfile.TemporaryDirectory() as folder:
        file = TableFile(Path(folder, "x.parquet"), "stage", kind)
        for frame in frames:
            file.append(frame)
        file.close()
        assert file.rows == sum(map(len, frames))
        about = pq.read_metadata(file.path)
        rows = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
        return file_checksum(file.path), rows


@given(sizes=SIZES, cuts=CUTS, kind=st.sampled_from(["parts", "signals"]))
def test_a_file_does_not_show_in_what_batches_it_came(
    sizes: list[int], cuts: list[int], kind: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "ROW_GROUP_ROWS", 7)
        patch.setattr(batches, "ROW_GROUP_BYTES", 50)
        frame = table(sizes, kind)
        assert written(pieces(frame, cuts), kind) == written([frame], kind)


@given(sizes=SIZES)
def test_slices_are_row_groups(sizes: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "ROW_GROUP_ROWS", 7)
        patch.setattr(batches, "ROW_GROUP_BYTES", 50)
        frame = table(sizes)
        parts = batches.slices(frame)
        assert pl.concat(parts).equals(frame)
        assert [len(part) for part in parts] == written([frame])[1]


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], [0]),
        ([49], [1]),
        ([50, 1], [1, 1]),
        ([49, 1, 1], [2, 1]),
        ([1] * 7, [7]),
        ([1] * 8, [7, 1]),
        ([200, 200], [1, 1]),
    ],
)
def test_where_row_groups_end(sizes: list[int], groups: list[int]) -> None:
    assert written([table(sizes)])[1] == groups


def test_a_small_table_is_what_pyarrow_writes_at_once(tmp_path: Path) -> None:
    frame = table([5, 0, 9])
    file = TableFile(tmp_path / "grown.parquet", "stage", "index")
    for piece in pieces(frame, [1, 2]):
        file.append(piece)
    file.close()
    pq.write_table(frame.to_arrow(), tmp_path / "whole.parquet", compression="zstd")
    assert file.path.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_batches_have_the_columns_of_the_first(tmp_path: Path) -> None:
    first = table([3])
    file = TableFile(tmp_path / "x.parquet", "stage", "parts")
    file.append(first)
    file.append(first.with_columns(colour=pl.lit("red")))  # nulls alone become text
    for later in (first.drop("colour"), first.with_columns(colour=pl.lit(1))):
        with pytest.raises(ContractError, match="a batch has other columns") as refused:
            file.append(later)
        assert "colour" in (refused.value.hint or "")


def test_a_full_disk_is_a_storage_error() -> None:
    file = TableFile(Path("/dev/full"), "stage", "parts")
    file.append(table([3]))
    with pytest.raises(StorageError, match="cannot write /dev/full"):
        file.close()


VALUES = st.sampled_from([None, "none", "en", "CC-BY-4.0", "https://claims.example/"])
ROWS = st.lists(st.tuples(st.text(max_size=3), VALUES, VALUES, st.none() | st.floats(0, 1)))


@given(rows=ROWS, cuts=CUTS)
def test_figures_of_batches_are_those_of_all(rows: list[tuple[Any, ...]], cuts: list[int]) -> None:
    schema = {"text": pl.String, "language": pl.String, "licence": pl.String,
              "quality_score": pl.Float32}  # fmt: skip
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    assert joined_figures(map(batch_figures, pieces(frame, cuts))) == part_figures(frame)


@given(hosts=st.lists(st.sampled_from("abcdefgh"), max_size=40), cuts=CUTS)
def test_hosts_of_batches_are_those_of_all(hosts: list[str], cuts: list[int]) -> None:
    urls = pl.Series("url", [f"https://{host}.example/" for host in hosts], pl.String)
    kept = pl.Series("kept", [i % 3 > 0 for i in range(len(hosts))], pl.Boolean)
    reason = pl.Series("reason", [None if k else "c4.x" for k in kept], pl.String)
    frame = pl.DataFrame([urls, kept, reason])
    whole, parts = PartSums(), PartSums()
    whole.add(PartResult({"decisions": frame}))
    for piece in pieces(frame, cuts):
        parts.add(PartResult({"decisions": piece}))
    assert (parts.hosts, parts.counts) == (whole.hosts, whole.counts)


def run(root: Path, source: Source, work: Any, *, by_rows: bool = True) -> Receipt:
    spec = StageSpec("stage", "1", (), None, {})
    task = PartTask(spec, "key", source, work, open_store(str(root)), by_rows)
    return run_part(task)


def compare(one: Receipt, other: Receipt) -> None:
    """All that is hashed of two parts is equal, but for where their row groups end."""
    assert one.entries.keys() == other.entries.keys()
    drop = {"entries", "cost"}
    assert one.model_dump(exclude=drop) == other.model_dump(exclude=drop)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Some kept, some dropped, a bad line, a second row with the same id."""
    rows = [
        {"text": SENTENCE * (i % 5) * 3 + f"Write to miller{i}@mill.example.", "colour": None,
         "url": f"https://{i % 3}.example/{i}", "licence": "CC-BY-4.0" if i > 20 else None}
        for i in range(30)
    ]  # fmt: skip
    lines = [*map(json.dumps, rows), "{broken", json.dumps({"id": "1", "text": "again"})]
    path = tmp_path / "pages.jsonl"
    path.write_text("\n".join(lines))
    return path


def stages() -> dict[str, Any]:
    return {
        "filter": partial(_filter, config=LOOSE),
        "scrub": partial(_scrub, config=ScrubConfig(), stage="stage"),
        "score": partial(
            score_documents, config=ScoreConfig(), quality_model=None, safety_model=None
        ),
    }


@pytest.mark.parametrize("stage", stages())
def test_a_part_in_batches_is_the_part_at_once(
    stage: str, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = stages()[stage]
    (source,) = file_input([documents]).sources
    whole = run(tmp_path / "whole", source, work, by_rows=False)
    monkeypatch.setattr(batches, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(batches, "ROW_GROUP_BYTES", 500)
    pieces = run(tmp_path / "pieces", source, work)
    compare(whole, pieces)
    for kind, (entry,) in whole.entries.items():
        one = read_part(open_store(str(tmp_path / "whole")), entry)
        other = read_part(open_store(str(tmp_path / "pieces")), pieces.entries[kind][0])
        assert one.equals(other), kind
        assert one.schema == other.schema
    # and the pieces, read one row group after the other, are an input like any other
    again = TableSource(open_store(str(tmp_path / "pieces")), pieces.entries["parts"][0])
    assert len(list(again.batches())) > 1
    compare(run(tmp_path / "a", again, work, by_rows=False), run(tmp_path / "b", again, work))


def test_a_part_read_in_batches_is_verified(documents: Path, tmp_path: Path) -> None:
    (source,) = file_input([documents]).sources
    store = open_store(str(tmp_path / "out"))
    (entry,) = run(tmp_path / "out", source, stages()["scrub"]).entries["parts"]
    (batch,) = batches.read_batches(store, entry)
    assert batch.equals(read_part(store, entry))
    with pytest.raises(DamagedPartError, match="rows"):
        list(batches.read_batches(store, entry.model_copy(update={"rows": 1})))
    data = store.read(entry.path)
    store.write(entry.path, b"x" + data[1:])
    with pytest.raises(DamagedPartError, match="another checksum"):
        list(batches.read_batches(store, entry))
    store.delete([entry.path])
    with pytest.raises(DamagedPartError, match="is not there"):
        list(batches.read_batches(store, entry))


@pytest.mark.parametrize("records", [1, 3, 1000])
def test_extraction_in_batches(
    records: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [PAGE.replace("mill", word) for word in ("smithy", "bakery", "brewery", "dairy")]
    some = [response(body, url=f"http://{i}.example/") for i, body in enumerate(bodies)]
    path = write(tmp_path / "a.warc.gz", some[0], response(kind="request"), *some[1:])
    path.write_bytes(path.read_bytes()[:-9])  # the last one is cut
    source = WarcSource(str(path), path.name, "sha256:0", 1, lambda place: nullcontext(Path(place)))
    work = partial(_extract, snapshot="S", config=ExtractConfig())
    whole = run(tmp_path / "whole", source, work, by_rows=False)
    monkeypatch.setattr("pipeline.extract.BATCH_RECORDS", records)
    pieces = run(tmp_path / "pieces", source, work, by_rows=False)
    assert whole.model_dump(exclude={"cost"}) == pieces.model_dump(exclude={"cost"})
    assert whole.counts.reasons == {"damage.truncated": 1, "record.request": 1}
    assert whole.extra["records"] == {"damage": 1, "request": 1, "response": 3}
    assert set(whole.entries) == {"parts", "decisions", "index"}
