"""Ports of `gristmill up`, and the way from MLflow's runs to the Dagster UI that is up."""

import socket
from collections.abc import Iterator

import pytest

from assets.links import changed
from assets.up import HOST, LAST_PORT, PORTS_TRIED, free_port
from pipeline.errors import UsageError

UI = "http://127.0.0.1:3001"


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_stepped_over(taken: int) -> None:
    found = free_port(taken)
    assert taken < found < taken + PORTS_TRIED


def test_without_a_free_port_nothing_starts(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assets.up.PORTS_TRIED", 1)
    with pytest.raises(UsageError, match=f"no port from {taken} to {taken} is free") as caught:
        free_port(taken)
    assert caught.value.hint == "give another one with --port N"


@pytest.mark.parametrize("port", [-1, 0, LAST_PORT + 1])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UsageError, match=f"{port} is no port"):
        free_port(port)


def test_a_run_gets_the_address_of_now() -> None:
    url = f"{UI}/runs/abc"
    note = {"mlflow.note.content": f"Dagster run: {url}"}
    assert changed({"dagster.run_id": "abc"}, UI) == {"dagster.url": url} | note
    old = {"dagster.run_id": "abc", "dagster.url": "http://127.0.0.1:3000/runs/abc"}
    assert changed(old | note, UI) == {"dagster.url": url}
    assert changed(old | note | {"dagster.url": url}, UI) == {}


def test_what_a_person_wrote_about_a_run_stays() -> None:
    tags = {"dagster.run_id": "abc", "mlflow.note.content": "the good one"}
    assert "mlflow.note.content" not in changed(tags, UI)
