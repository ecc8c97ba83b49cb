"""Labels over real HTTP, from a small endpoint on this machine."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from assets.cli import main
from pipeline.config import load_config
from pipeline.config.labeller import LabellerConfig
from pipeline.errors import ConfigError, GristmillError, UsageError
from resources.label_client import ChatClient
from resources.labeller import label_documents

KEY = "top-secret-key-0123456789"


class Endpoint(ThreadingHTTPServer):
    """Answers chat completions: a grade is the number of the words `good` in the message."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[str | None] = []
        self.faults: list[Any] = []  # taken one by one: a status, or a text to say, or "slow", ...
        self.usage = True
        self.said = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the game."""


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.said:
            self.server.requests.append(body)
            self.server.headers.append(self.headers.get("Authorization"))
            fault = self.server.faults.pop(0) if self.server.faults else None
        if isinstance(fault, int):
            return self._send(fault, json.dumps({"error": f"no, {KEY}"}), {"Retry-After": "0.01"})
        if fault == "slow":
            time.sleep(0.6)
        elif fault == "garbage":
            return self._send(200, "<html>busy</html>")
        elif fault == "deep":
            return self._send(200, "[" * 100_000)
        elif fault == "cut":
            return self._send(200, "{}", {"Content-Length": "900"})
        message = body["messages"][0]["content"]
        answer = fault["say"] if isinstance(fault, dict) else _grade(message)
        reply: dict[str, Any] = {"choices": [{"message": {"content": answer}}]}
        if self.server.usage:
            reply["usage"] = {"prompt_tokens": 100, "completion_tokens": 1}
        return self._send(200, json.dumps(reply))

    def _send(self, status: int, body: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        given = {"Content-Length": str(len(body.encode()))} | (headers or {})
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())
        self.close_connection = "900" in given.values()


def _grade(message: str) -> str:
    if "\n[1]\n" not in f"\n{message}":
        return str(min(message.count("good"), 5))
    parts = message.split("\n\n")
    numbered = [part for part in parts if part.startswith("[")]
    return "\n".join(f"{k}: {min(p.count('good'), 5)}" for k, p in enumerate(numbered, start=1))


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def config(endpoint: Endpoint, tmp_path: Path) -> LabellerConfig:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("{text}")
    return LabellerConfig(
        base_url=endpoint.url, model="m", prompt=str(prompt), cache=str(tmp_path / "kept.sqlite"),
        price_input=1.0, price_output=2.0, first_wait=0.001, timeout=0.3, attempts=4,
        concurrency=2, max_tokens=4,
    )  # fmt: skip


def documents(n: int = 6) -> pl.DataFrame:
    texts = [f"text {k} " + "good " * (k % 6) for k in range(n)]
    return pl.DataFrame({"doc_id": [f"d{k}" for k in range(n)], "text": texts})


def labels(frame: pl.DataFrame, config: LabellerConfig, **more: Any) -> Any:
    return label_documents(frame, config, say=lambda _: None, **more)


def by_text(result: Any) -> dict[str, Any]:
    return {row["doc_id"]: row["label"] for row in result.rows}


EXPECTED = {f"d{k}": k for k in range(6)}


def test_grades_and_a_second_run_that_asks_nothing(
    endpoint: Endpoint, config: LabellerConfig
) -> None:
    first = labels(documents(), config)
    assert by_text(first) == EXPECTED
    assert first.figures["labels"] == {str(k): 1 for k in range(6)}
    assert first.figures["tokens"] == {"in": 600, "out": 6}
    assert first.figures["spent"] == pytest.approx(612 / 1e6)
    assert len(endpoint.requests) == 6
    again = labels(documents().sample(fraction=1, shuffle=True, seed=1), config)
    assert len(endpoint.requests) == 6
    assert again.to_jsonl() == first.to_jsonl()
    assert again.figures["answers_kept"] == 6
    assert again.figures["spent"] == 0


def test_equal_texts_are_asked_about_once_and_empty_ones_never(
    endpoint: Endpoint, config: LabellerConfig
) -> None:
    frame = pl.DataFrame({"doc_id": ["a", "b", "c", "d"], "text": ["good", "good", " ", None]})
    result = labels(frame, config)
    assert by_text(result) == {"a": 1}
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("fault", [429, 500, 503, "slow", "garbage", "deep", "cut"])
def test_what_passes_is_asked_again(endpoint: Endpoint, config: LabellerConfig, fault: Any) -> None:
    endpoint.faults = [fault, fault]
    assert by_text(labels(documents(), config)) == EXPECTED
    assert len(endpoint.requests) == 8


def test_retry_after_is_the_least_wait(endpoint: Endpoint, config: LabellerConfig) -> None:
    waits: list[float] = []
    client = ChatClient(config, None, sleep=waits.append)
    endpoint.faults = [429, 429, 500]
    assert client.ask("good good", 4).text == "2"
    assert len(waits) == 3
    assert min(waits[:2]) >= 0.01


def test_an_endpoint_that_is_down_ends_the_run(endpoint: Endpoint, config: LabellerConfig) -> None:
    few = config.model_copy(update={"attempts": 1, "concurrency": 1})
    endpoint.faults = [*[None] * 3, *[500] * 400]
    with pytest.raises(GristmillError, match="no answer to 10 requests"):
        labels(documents(40), few)
    endpoint.faults.clear()
    asked = len(endpoint.requests)
    labels(documents(40), few)
    assert len(endpoint.requests) - asked == 37  # three were kept


def test_no_answer_at_all_is_a_failure(endpoint: Endpoint, config: LabellerConfig) -> None:
    endpoint.faults = [500] * 100
    with pytest.raises(GristmillError, match="no answer to any request"):
        labels(documents(2), config)


def test_one_text_without_an_answer_is_a_counted_row(
    endpoint: Endpoint, config: LabellerConfig
) -> None:
    endpoint.faults = [500] * 4
    result = labels(documents(), config.model_copy(update={"concurrency": 1}))
    assert result.figures["reasons"] == {"labeller.no_answer": 1}
    assert result.figures["labelled"] == 5


def test_chatter_is_asked_again_once_and_then_counted(
    endpoint: Endpoint, config: LabellerConfig
) -> None:
    single = config.model_copy(update={"concurrency": 1})
    endpoint.faults = [{"say": "I would give it a 4"}] * 2
    result = labels(documents(1), single)
    assert result.rows[0]["label"] is None
    assert result.rows[0]["label_error"] == "labeller.unparsable"
    assert len(endpoint.requests) == 2
    assert labels(documents(1), single).figures["to_ask"] == 0
    endpoint.faults = [{"say": "Well, 3 or 4"}]
    assert by_text(labels(documents(2), single))["d1"] == 1


def test_an_answer_that_is_no_text_is_counted(endpoint: Endpoint, config: LabellerConfig) -> None:
    endpoint.faults = [{"say": "\ud800"}] * 2
    assert labels(documents(1), config).figures["reasons"] == {"labeller.unparsable": 1}


@pytest.mark.parametrize(
    "address", ["ftp://host.example", "host.example:80", "http://", "http://[v1", "http://a..b/v1",
                "http://host.example:99999/v1", "http://host example/v1"],
)  # fmt: skip
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"labeller\.base_url"):
        load_config(overrides={"labeller": {"base_url": address}})


def test_a_cache_that_is_none_is_refused(config: LabellerConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"labeller\.cache"):
        labels(documents(1), config.model_copy(update={"cache": str(tmp_path)}))


def test_batches_and_partial_answers(endpoint: Endpoint, config: LabellerConfig) -> None:
    many = config.model_copy(update={"batch": 3, "concurrency": 1})
    assert by_text(labels(documents(), many)) == EXPECTED
    assert len(endpoint.requests) == 2
    frame = documents(9).tail(3)
    endpoint.faults = [{"say": "1: 2\n3: six"}]
    result = labels(frame, many)
    assert len(endpoint.requests) == 5  # one for three texts, and one for each of two more
    assert result.figures["labelled"] == 3


def test_a_refused_text_is_a_row(endpoint: Endpoint, config: LabellerConfig) -> None:
    endpoint.faults = [400]
    result = labels(documents(), config.model_copy(update={"concurrency": 1}))
    assert result.figures["reasons"] == {"labeller.refused": 1}


def test_the_price_is_said_before_and_refused_over_the_limit(
    endpoint: Endpoint, config: LabellerConfig
) -> None:
    dear = config.model_copy(update={"price_input": 1e6})
    said: list[str] = []
    with pytest.raises(UsageError, match=r"over labeller\.max_cost"):
        label_documents(documents(), dear, say=said.append)
    assert "6 texts to ask about" in said[0]
    assert endpoint.requests == []
    unknown = config.model_copy(update={"price_input": None})
    with pytest.raises(UsageError, match="not known"):
        labels(documents(), unknown)
    assert labels(documents(), unknown, estimate_only=True).figures["to_ask"] == 6
    assert endpoint.requests == []
    assert by_text(labels(documents(), dear, accept_cost=True)) == EXPECTED


def test_nothing_more_is_asked_once_the_money_is_spent(
    endpoint: Endpoint, config: LabellerConfig
) -> None:
    # the endpoint counts 100 tokens where 20 or so were estimated
    tight = config.model_copy(
        update={"concurrency": 1, "price_input": 1e4, "price_output": 0.0, "max_cost": 2.5}
    )
    result = labels(documents(), tight)
    assert result.figures["spent"] <= 3.0
    assert result.figures["reasons"]["labeller.over_limit"] >= 2
    assert len(endpoint.requests) == result.figures["labelled"]


def test_a_key_is_sent_and_never_shown(
    endpoint: Endpoint, config: LabellerConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = config.model_copy(update={"api_key_env": "LABEL_TEST_KEY"})
    with pytest.raises(ConfigError, match="LABEL_TEST_KEY is not set"):
        labels(documents(), secret)
    monkeypatch.setenv("LABEL_TEST_KEY", KEY)
    labels(documents(), secret)
    assert set(endpoint.headers) == {f"Bearer {KEY}"}
    for status in (401, 403, 404, 302):
        endpoint.faults = [status] * 8
        with pytest.raises(GristmillError, match=f"HTTP {status}") as caught:
            labels(documents(20), secret)
        assert KEY not in str(caught.value)
    stored = (tmp_path / "kept.sqlite").read_bytes()
    assert KEY.encode() not in stored
    monkeypatch.setenv("LABEL_TEST_KEY", f"{KEY}\nX: y")
    with pytest.raises(ConfigError) as refused:
        labels(documents(), secret)
    assert KEY not in str(refused.value)


def test_a_key_in_the_configuration_is_refused_unseen() -> None:
    for pasted in ("sk-abc123def456", "sk_live_0123456789abcdef", "my key"):
        with pytest.raises(ConfigError) as caught:
            load_config(overrides={"labeller": {"api_key_env": pasted}})
        assert pasted not in str(caught.value)
    with pytest.raises(ConfigError, match="base_url"):
        load_config(overrides={"labeller": {"base_url": "https://user:pw@host.example/v1"}})


def test_a_prompt_needs_one_place_for_the_text(config: LabellerConfig, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("How good is it?")
    with pytest.raises(ConfigError, match="0 times"):
        labels(documents(), config.model_copy(update={"prompt": str(path)}))


def test_another_prompt_or_model_is_another_question(
    endpoint: Endpoint, config: LabellerConfig, tmp_path: Path
) -> None:
    labels(documents(), config)
    other = tmp_path / "other.txt"
    other.write_text("Grade: {text}")
    labels(documents(), config.model_copy(update={"prompt": str(other)}))
    labels(documents(), config.model_copy(update={"model": "n"}))
    assert len(endpoint.requests) == 18


KILLED = """
import polars as pl, sys
from pipeline.config.labeller import LabellerConfig
from resources.labeller import label_documents
config = LabellerConfig.model_validate_json(sys.argv[1])
label_documents(pl.read_ndjson(sys.argv[2]), config, say=lambda _: None)
"""


def test_a_killed_run_loses_no_answer(
    endpoint: Endpoint, config: LabellerConfig, tmp_path: Path
) -> None:
    slow = config.model_copy(update={"concurrency": 1, "timeout": 20.0})
    path = tmp_path / "documents.jsonl"
    documents(30).write_ndjson(path)
    endpoint.faults = [*[None] * 7, *["slow"] * 30]
    child = subprocess.Popen([sys.executable, "-c", KILLED, slow.model_dump_json(), str(path)])
    while len(endpoint.requests) < 10:
        time.sleep(0.02)
        assert child.poll() is None
    child.kill()
    child.wait()
    kept = sqlite3.connect(str(config.cache)).execute("SELECT count(*) FROM answers").fetchone()[0]
    assert kept >= 9  # all that were answered; the tenth was under way
    endpoint.faults.clear()
    asked = len(endpoint.requests)
    result = labels(documents(30), slow)
    assert len(endpoint.requests) - asked == 30 - kept
    assert result.figures["labelled"] == 30


def test_the_verb(
    endpoint: Endpoint, config: LabellerConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "labels.jsonl"
    source.write_text("".join(json.dumps({"text": f"page {k} " + "good " * (k % 6)}) + "\n"
                              for k in range(40)))  # fmt: skip
    settings = tmp_path / "gristmill.yaml"
    settings.write_text(json.dumps({"labeller": config.model_dump(mode="json")}))
    call = ["classifier", "label", str(source), "--out", str(out), "--config", str(settings)]
    assert main([*call, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["labelled"] == 40
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert {row["label"] for row in rows} == {0, 1, 2, 3, 4, 5}
    model = tmp_path / "model.bin"
    train = ["classifier", "train", str(out), "--out", str(model), "--json"]
    assert main([*train, "--set", "score.classifier.bucket=1000"]) == 0
    assert json.loads(capsys.readouterr().out)["graded"] is True
    assert main([*call[:-2], "--set", "labeller.model=x"]) == 2  # no endpoint
