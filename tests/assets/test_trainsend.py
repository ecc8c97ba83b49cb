"""A run goes to the bucket while it trains, whatever the bucket does meanwhile."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assets import trainsend
from assets.trainrun import bring_run, steps_in
from assets.trainsend import Sender, files_beside, held, sending
from pipeline.config import load_config
from pipeline.errors import StorageError
from resources.mirror import Mirror, checksum
from resources.retry import Retry
from resources.storage import open_store
from resources.storage_s3 import S3Store
from tests.s3_server import S3Server, moto_server
from tests.tcp_proxy import Proxy, proxy
from training.verify import METADATA, RECORD, complete_steps, fault_of, step_of


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with moto_server() as made:
        yield made


@pytest.fixture
def gate(server: S3Server) -> Iterator[Proxy]:
    with proxy(int(server.endpoint_url.rpartition(":")[2])) as made:
        yield made


@pytest.fixture
def remote(server: S3Server, gate: Proxy, tmp_path: Path) -> Iterator[Mirror]:
    """A run folder, and its place in a bucket behind a proxy; impatient."""
    through = dataclasses.replace(server, endpoint_url=f"http://127.0.0.1:{gate.port}")
    (tmp_path / "run").mkdir()
    with through.environment():
        yield Mirror(store_of(f"s3://{server.bucket()}/checkpoints/mini"), tmp_path / "run")


def store_of(url: str) -> S3Store:
    options = load_config(overrides={"storage": {"part_mb": 5}}).storage
    store = open_store(url, options=options)
    assert isinstance(store, S3Store)
    return dataclasses.replace(store, retry=Retry(attempts=2, wait_seconds=0.01))


def checkpoint(folder: Path, step: int, content: bytes = b"", rewinds: int = 0) -> Path:
    """A complete checkpoint as `training.saving.saver` leaves it."""
    aside = folder / "checkpoints" / f"step-{step}.tmp"
    aside.mkdir(parents=True)
    for name in (METADATA, "__0_0.distcp"):
        (aside / name).write_bytes(content or f"{name} of {step}".encode())
    files = {p.name: {"bytes": p.stat().st_size, "checksum": checksum(p)} for p in aside.iterdir()}
    record = {"step": step, "files": files, "stamps": {}, "progress": {"rewinds": rewinds}}
    (aside / RECORD).write_text(json.dumps(record))
    return aside.rename(aside.with_name(f"step-{step}"))


def until(true: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def keys(remote: Mirror) -> set[str]:
    return {info.key for info in remote.store.list()}


def latest(remote: Mirror) -> bytes:
    """What the pointer in the bucket says; it follows the checkpoint."""
    key = "checkpoints/latest"
    return remote.store.read(key) if remote.store.exists(key) else b""


def test_checkpoints_go_up_when_they_are_published(
    remote: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainsend, "LOOK_SECONDS", 0.05)
    out = remote.folder
    (out / "run.json").write_text("{}")
    (out / "metrics.jsonl").write_text('{"step": 1}\n')
    (out / ".lock").write_text("hidden")
    (out / "spikes").mkdir()
    (out / "spikes/step-1.json").write_text("{}")
    with sending(remote, print, 1, 3):
        for step in (1, 3, 4):
            path = checkpoint(out, step)
            until(lambda: steps_in(remote)[:1] == [step])  # noqa: B023
            until(lambda: latest(remote) == f"step-{step}\n".encode())  # noqa: B023
            if step == 1:
                shutil.rmtree(path)
        until(lambda: steps_in(remote) == [4, 3])
        checkpoint(out, 6).joinpath("__0_0.distcp").write_bytes(b"another length")
        (out / "result.json").write_text("{}")
        (out / "metrics-before-rewind-1.jsonl").write_text('{"step": 2}\n')
        assert "result.json" not in keys(remote), "it tells of the end"
    assert steps_in(remote) == [4, 3], "a damaged one is not sent"
    assert remote.store.read("checkpoints/latest") == b"step-4\n"
    beside = {key for key in keys(remote) if not key.startswith("checkpoints/")}
    assert beside == {"run.json", "metrics.jsonl", "metrics-before-rewind-1.jsonl", "result.json",
                      "spikes/step-1.json"}  # fmt: skip
    assert not (out / "checkpoints/.sending").exists()
    second = Mirror(remote.store, tmp_path / "second")
    bring_run(second, print)
    assert set(files_beside(second.folder)) == beside, "all of it comes to another machine"
    assert fault_of(second.folder / "checkpoints/step-4") is None


def test_what_a_rewind_took_back_does_not_come_from_the_bucket(
    remote: Mirror, tmp_path: Path
) -> None:
    for step in (2, 4, 6):
        checkpoint(remote.folder, step)
    (remote.folder / "run.json").write_text("{}")
    back = {"kind": "rewind", "step": 7, "rewinds": 0, "to_step": 4,
            "from_sample": 32, "to_sample": 72}  # fmt: skip
    (remote.folder / "ledger.jsonl").write_text(f"{json.dumps(back)}\n")
    Sender(remote, print, 3, None).rest()
    second, said = Mirror(remote.store, tmp_path / "second"), list[str]()
    bring_run(second, said.append)
    assert "step-6" in said[0]
    assert said[0].endswith("was skipped: a rewind took it back")
    folder = second.folder / "checkpoints"
    assert [step_of(path) for path in complete_steps(folder)] == [4]
    assert (folder / "latest").read_text() == "step-4\n"
    checkpoint(remote.folder, 5, rewinds=1)
    Sender(remote, print, 4, None).rest()
    bring_run(second, said.append)
    assert [step_of(path) for path in complete_steps(folder)] == [5, 4], "of the new history"


def test_a_history_that_was_taken_back_goes(remote: Mirror) -> None:
    for step in (2, 4, 6):
        checkpoint(remote.folder, step)
    Sender(remote, print, 3, None).rest()
    assert steps_in(remote) == [6, 4, 2]
    for step in (4, 6):
        shutil.rmtree(remote.folder / f"checkpoints/step-{step}")
    checkpoint(remote.folder, 3)
    Sender(remote, print, 3, None).rest()
    assert steps_in(remote) == [3, 2]
    assert remote.store.read("checkpoints/latest") == b"step-3\n"


def test_a_store_that_is_gone_for_a_while_stops_nothing(
    remote: Mirror, gate: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainsend, "LOOK_SECONDS", 0.05)
    said: list[str] = []
    with sending(remote, said.append, 2, None):
        checkpoint(remote.folder, 1)
        until(lambda: steps_in(remote) == [1])
        gate.down()
        checkpoint(remote.folder, 2)
        until(lambda: said)
        assert "waits, training goes on" in said[0]
        gate.up()
        until(lambda: steps_in(remote) == [2, 1])
        until(lambda: len(said) == 2)
    assert said[1].endswith("goes on")


def test_at_the_end_the_bucket_must_have_it(remote: Mirror, gate: Proxy) -> None:
    remote.store.write("probe", b"an endpoint that has answered")
    patience: list[float] = []
    retry = Retry(attempts=2, wait_seconds=0.01, sleep=patience.append)
    impatient = dataclasses.replace(remote, store=dataclasses.replace(remote.store, retry=retry))
    said: list[str] = []
    checkpoint(remote.folder, 1)
    gate.down()
    lacks = r"has ended, and s3://.* lacks what it saved"
    with pytest.raises(StorageError, match=lacks) as caught, sending(impatient, print, 1, None):
        pass
    assert str(remote.folder) in str(caught.value.hint)
    assert len(patience) == trainsend.LAST_ATTEMPTS - 1, "asked again, longer each time"
    with pytest.raises(ZeroDivisionError), sending(impatient, said.append, 1, None):
        raise ZeroDivisionError
    assert "lacks what the run saved last" in said[-1], "the run's own error counts"
    gate.up()
    with sending(remote, said.append, 1, None):
        pass
    assert steps_in(remote) == [1], "the next start sends it"


def test_training_may_remove_what_is_being_sent(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, 5)
    with held(path) as folder:
        shutil.rmtree(path)
        assert folder is not None
        assert fault_of(folder) is None
    assert not folder.exists()
    with held(path) as gone:
        assert gone is None


def test_without_hard_links_the_folder_itself_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = checkpoint(tmp_path, 5)
    with held(path) as folder:
        assert folder == path
    assert path.exists()
