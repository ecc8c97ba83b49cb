"""The documents of a step: proved by the checksum that the training program logged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assets.cli import main
from assets.runtrace import documents_of_step
from pipeline.config import Config, load_config
from pipeline.errors import ContractError, UsageError
from resources.storage import open_store
from tests.s3_server import moto_server
from tests.training.miniature import lines, program, write_documents, write_run
from training.shards import Shard
from training.spikes.ledger import open_ledger

NAME = "mini"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a run that stopped after 3 steps, left 3 samples out, and went on to the 6th."""
    root = tmp_path_factory.mktemp("root")
    ramp = [{"until_tokens": 128, "global_batch": 2}]
    for keys in ({"stop_after": 3}, {}):
        run = write_run(root, NAME, steps=6, batch_ramp=ramp, eval_every=0, **keys)
        done = program(run)
        assert done.returncode == 0, done.stderr
        if keys:  # steps 1 and 2 took 2 samples each, step 3 took 4
            event = {"kind": "leave_out", "step": 3, "from_sample": 9, "to_sample": 12}
            open_ledger(root / "checkpoints" / NAME).enter(event)
    return root


def config_of(root: str, **storage: Any) -> Config:
    return load_config(overrides={"storage": {"root": root} | storage})


def traced(root: Path, step: int) -> dict[str, Any]:
    return documents_of_step(open_store(str(root)), config_of(str(root)), NAME, step)


def test_every_step_of_a_resumed_run_is_found_and_proved(root: Path) -> None:
    wanted = [range(2), range(2, 4), range(4, 8), [8, 12, 13, 14], range(15, 19), range(19, 23)]
    for step, indices in enumerate(wanted, 1):
        found = traced(root, step)
        assert found["verified"] is True
        assert found["loss"] == lines(root / "runs" / f"{NAME}.yaml")[step - 1]["loss"]
        documents = found["documents"]
        assert list(dict.fromkeys(row["sequence"] for row in documents)) == list(indices)
        assert sum(row["tokens"] for row in documents) == found["tokens"] <= 32 * len(indices)
    row = documents[0]
    assert {"source", "epoch", "shard", "document", "doc_id", "url", "language"} <= row.keys()
    shard = Shard.open(root / "shards" / row["shard"])
    assert shard.document_at(row["first_token"]) == row["document"]


def test_the_command_lists_them(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--root", str(root), "--step", f"{NAME}:4"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith(f"step 4 of {NAME}, loss ")
    assert "samples 8 to 14" in shown[0]
    assert shown[0].endswith("checked against the step's batch checksum")
    assert sum(line.startswith("sequence ") for line in shown) == 4
    assert main(["trace", "--root", str(root), "--step", f"{NAME}:4", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == traced(root, 4)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("mini:7", "run mini has no step 7: 6 of 6 are done and logged"),
        ("other:1", "there is no run other"),
        ("mini:0", "is no RUN:N"),
        ("mini", "is no RUN:N"),
        ("mini:" + "9" * 5000, "is no RUN:N"),
        ("mini:9999999999999999999", "run mini has no step 9999999999999999999: 6 of 6"),
        (":1", "cannot be the name of a run"),
        ("../mini:1", "cannot be the name of a run"),
    ],
)
def test_a_run_or_step_that_is_not_there(
    root: Path, step: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", "--root", str(root), "--step", step]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert "hint: " in error


def test_a_line_that_is_half_written_ends_the_log(root: Path) -> None:
    file = root / "checkpoints" / NAME / "metrics.jsonl"
    whole = file.read_bytes()
    try:
        file.write_bytes(whole + b'{"step": 7, "loss"\n')
        with pytest.raises(UsageError, match="has no step 7: 6 of 6"):
            traced(root, 7)
        assert traced(root, 6)["verified"] is True
    finally:
        file.write_bytes(whole)


def test_of_a_bucket_only_indices_are_brought(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with moto_server() as server, server.environment():
        url = f"s3://{server.bucket()}/store"
        config = config_of(url, scratch=str(tmp_path), part_mb=5)
        store = open_store(url, options=config.storage)
        for path in root.rglob("*"):
            if path.is_file() and "step-" not in str(path):
                store.write(path.relative_to(root).as_posix(), path.read_bytes())
        found = documents_of_step(store, config, NAME, 4)
        assert found == traced(root, 4) | {"verified": None}
        names = {path.suffix for path in tmp_path.rglob("shards/*")}
        assert names == {".json", ".idx"}
        with pytest.raises(UsageError, match="no run was started as other"):
            documents_of_step(store, config, "other", 1)


@pytest.fixture
def replaced(root: Path) -> Iterator[Path]:
    """The store with another shard in place of one that was trained on."""
    files = {path: path.read_bytes() for path in (root / "shards").glob("web-0.*")}
    yield root
    for path, data in files.items():
        path.write_bytes(data)


def test_data_that_were_replaced_are_not_told_as_what_was_trained_on(replaced: Path) -> None:
    write_documents(replaced / "shards" / "web-0", 120, seed=9, source="web", split="train")
    with pytest.raises(ContractError, match="are not those that it was started with"):
        traced(replaced, 1)
    record = replaced / "checkpoints" / NAME / "run.json"
    text = record.read_text()
    try:  # a run of a version that did not write the hash: the checksum of the step still tells
        record.write_text(json.dumps({k: v for k, v in json.loads(text).items() if k != "data"}))
        with pytest.raises(ContractError, match="tokens of step 1 are not those"):
            traced(replaced, 1)
    finally:
        record.write_text(text)
