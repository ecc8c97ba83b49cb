"""What S3 can answer: overload, outages, refusals, lost answers. A scripted server over HTTP."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pipeline.config.storage import StorageConfig
from pipeline.errors import ConflictError, StorageError
from resources import s3_errors
from resources.retry import Retry
from resources.storage_s3 import S3Store
from tests.s3_server import S3Server

Answer = tuple[int, str]
"""HTTP status and S3 code; (200, "") works; status 0 closes the connection without an answer."""


class Script:
    """A bucket whose answers are written down; the objects are real once it says 200."""

    def __init__(self) -> None:
        self.answers: Iterator[Answer] = iter(())
        self.each: list[Answer] = []
        """Answers that every operation on every object meets first."""
        self.series: dict[str, Iterator[Answer]] = {}
        self.applied_before_failing = False
        self.requests: list[str] = []
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def next(self, request: str) -> Answer:
        with self.lock:
            self.requests.append(request)
            series = self.series.setdefault(request, iter(self.each))
            return next(series, None) or next(self.answers, (200, ""))


def handler_of(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.serve(lambda: script.objects.get(self.path))

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers["If-None-Match"] == "*" and self.path in script.objects:
                script.next(f"PUT {self.path}")
                return self.send(412, self.error("PreconditionFailed"))

            def put() -> bytes:
                script.objects[self.path] = body
                return b""

            return self.serve(put)

        do_HEAD = do_GET
        do_DELETE = do_GET
        do_POST = do_GET

        def serve(self, work: Callable[[], bytes | None]) -> None:
            status, code = script.next(f"{self.command} {self.path}")
            if status == 200 or script.applied_before_failing:
                found = work()
            if status == 0:
                self.close_connection = True
            elif status != 200:
                self.send(status, self.error(code))
            elif found is None:
                self.send(404, self.error("NoSuchKey"))
            else:
                self.send(200, found)

        def error(self, code: str) -> bytes:
            return f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode()

        def send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("ETag", '"etag"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    script = Script()
    with ThreadingHTTPServer(("127.0.0.1", 0), handler_of(script)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        for name, value in S3Server(f"http://127.0.0.1:{server.server_port}").variables().items():
            monkeypatch.setenv(name, value)
        yield script
        server.shutdown()
        thread.join()


def open_recorded(waits: list[float], **options: object) -> S3Store:
    config = StorageConfig.model_validate({"wait_seconds": 0.25, "timeout_seconds": 5, **options})
    return S3Store("bucket", "x", config, Retry(9, 0.25, sleep=waits.append))


SLOW: list[Answer] = [(503, "SlowDown"), (503, "SlowDown"), (500, "InternalError")]


@pytest.mark.parametrize("operation", ["GET", "PUT"])
def test_a_few_slow_downs_are_waited_out(script: Script, operation: str) -> None:
    waits: list[float] = []
    store = open_recorded(waits)
    script.objects["/bucket/x/a"] = b"data"
    script.answers = iter(SLOW)
    if operation == "GET":
        assert store.read("a") == b"data"
    else:
        store.write("a", b"data")
    assert script.requests == [f"{operation} /bucket/x/a"] * 4
    assert len(waits) == 3
    for number, wait in enumerate(waits):
        assert 0.125 * 2**number <= wait <= 0.25 * 2**number


@pytest.mark.shared
def test_the_shared_case(script: Script, shared: Path) -> None:
    case = json.loads((shared / "cases/storage/slow-down.json").read_text())
    answers = [(int(a.split()[0]), a.partition(" ")[2]) for a in case["answers_in_order"]]
    waits: list[float] = []
    store = open_recorded(waits)

    def put_and_get(number: int) -> bytes:
        store.write(f"part-{number}", b"%d" % number)
        return store.read(f"part-{number}")

    script.each = answers
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(put_and_get, range(8))) == [b"%d" % number for number in range(8)]
    assert len(waits) == 3 * 2 * 8
    assert len(set(waits)) == len(waits)


def test_the_ninth_failure_in_a_row_is_the_last(script: Script) -> None:
    waits: list[float] = []
    script.answers = itertools.repeat((503, "SlowDown"))
    with pytest.raises(StorageError, match=r"s3://bucket/x/a: .*503 SlowDown.*attempt 9 of") as e:
        open_recorded(waits).write("a", b"data")
    assert len(script.requests) == 9
    assert waits == sorted(waits)
    assert len(waits) == 8
    assert 30 < sum(waits) < 64
    assert "run again" in (e.value.hint or "")


def test_eight_failures_in_a_row_are_not(script: Script) -> None:
    script.answers = iter([(503, "SlowDown")] * 8)
    open_recorded([]).write("a", b"data")
    assert script.objects["/bucket/x/a"] == b"data"


def test_a_cut_connection_is_tried_again(script: Script) -> None:
    script.objects["/bucket/x/a"] = b"data"
    script.answers = iter([(0, ""), (0, "")])
    assert open_recorded([]).read("a") == b"data"


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (403, "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "AWS_ACCESS_KEY_ID"),
        (403, "AccessDenied", "lack the right"),
        (400, "ExpiredToken", "renew"),
        (404, "NoSuchBucket", "create the bucket"),
        (403, "QuotaExceeded", "gristmill prune"),
    ],
)
def test_refusals_are_one_sentence_at_once(
    script: Script, status: int, code: str, hint: str
) -> None:
    waits: list[float] = []
    store = open_recorded(waits)
    for use in (lambda: store.write("a", b""), lambda: store.read("a"), lambda: keys(store)):
        script.answers = iter([(status, code)])
        with pytest.raises(StorageError, match=code) as caught:
            use()
        assert hint in (caught.value.hint or "")
        assert "\n" not in caught.value.message
    assert waits == []


def keys(store: S3Store) -> list[str]:
    return [info.key for info in store.list()]


def test_a_missing_bucket_is_no_missing_key(script: Script) -> None:
    script.answers = iter([(404, ""), (404, "NoSuchBucket")])
    with pytest.raises(StorageError, match="NoSuchBucket"):
        open_recorded([]).exists("a")


def test_an_address_without_a_server_says_so_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_errors, "_answered", set())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    waits: list[float] = []
    store = open_recorded(waits, endpoint_url="http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"no answer from http://127\.0\.0\.1:9") as caught:
        store.check()
    assert "storage.endpoint_url" in (caught.value.hint or "")
    assert len(waits) == 2
    s3_errors.answered(store.config)  # one that has answered before is waited for
    with pytest.raises(StorageError, match="attempt 9 of at most 9"):
        store.read("a")


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StorageError) as caught:
        open_recorded([], endpoint_url="http://127.0.0.1:9", region="eu-central-2").read("a")
    assert "AWS_ACCESS_KEY_ID" in (caught.value.hint or "")
    with pytest.raises(StorageError) as caught:
        open_recorded([], endpoint_url="http://127.0.0.1:9", profile="nobody").read("a")
    assert "storage.profile" in (caught.value.hint or "")


def test_a_pointer_that_moved_although_the_answer_was_lost(script: Script) -> None:
    script.answers = iter([(500, "InternalError")])
    script.applied_before_failing = True
    open_recorded([]).swap("current", b"new", expected=None)
    assert script.objects["/bucket/x/current"] == b"new"
    assert len([r for r in script.requests if r.startswith("PUT")]) == 2


def test_a_pointer_that_another_moved_meanwhile(script: Script) -> None:
    script.objects["/bucket/x/current"] = b"theirs"
    with pytest.raises(ConflictError):
        open_recorded([]).swap("current", b"new", expected=None)
    assert script.objects["/bucket/x/current"] == b"theirs"


def test_retries_do_not_shape_the_store() -> None:
    one = open_recorded([])
    assert one == replace(one, retry=Retry(9, 0.25))
