"""Against a real server that is rude on purpose."""

import email.utils
import gzip
import pickle
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Config
from pipeline.config.snapshots import SnapshotsConfig
from pipeline.errors import GristmillError, StorageError
from pipeline.snapshots import list_snapshot
from pipeline.store import Store
from resources.commoncrawl import BLOCK, CommonCrawl, open_client, retry_after
from resources.storage_http import HttpStore

DATA = bytes(range(256)) * 4000


class Rude(BaseHTTPRequestHandler):
    """Serves files of the server's dict; `server.tricks` is used up one a request."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        server: Any = self.server
        server.seen.append((self.command, self.path, dict(self.headers)))
        trick = server.tricks.pop(0) if server.tricks and body else None
        data = server.files.get(self.path)
        if isinstance(trick, int):
            return self._send(trick, b"", {"Retry-After": server.retry_after})
        if data is None:
            return self._send(404, b"", {})
        start, end = 0, len(data)
        span = self.headers.get("Range")
        if span and self.headers.get("If-Range", server.etag) == server.etag and trick != "whole":
            first, _, last = span.removeprefix("bytes=").partition("-")
            start, end = int(first), int(last) + 1 if last else len(data)
            end = min(end, len(data))
        status = 206 if end - start < len(data) or (span and trick != "whole") else 200
        self._send(status, data[start:end] if body else data, {"ETag": server.etag}, trick, body)

    def _send(
        self, status: int, data: bytes, fields: dict[str, str], trick: Any = None, body: bool = True
    ) -> None:
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[: len(data) // 2] if trick == "cut" else data)
        if trick == "cut":
            self.close_connection = True

    def log_message(self, *args: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Rude)
    server.files = {"/crawl/a.warc.gz": DATA}
    server.tricks, server.seen, server.etag, server.retry_after = [], [], '"v1"', ""
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def client(waits: list[float]) -> Iterator[CommonCrawl]:
    client = CommonCrawl("tests/1.0 (mailto:a@a.example)", attempts=5, sleep=waits.append)
    yield client
    client.close()


def test_it_names_itself_and_reads_ranges(server: Any, client: CommonCrawl) -> None:
    url = f"{server.url}/crawl/a.warc.gz"
    assert client.read(url) == DATA
    assert client.read(url, offset=10, length=5) == DATA[10:15]
    assert client.read(url, offset=len(DATA) - 3) == DATA[-3:]
    info = client.stat(url)
    assert (info.size, info.etag) == (len(DATA), '"v1"')
    assert {seen[2]["User-Agent"] for seen in server.seen} == {client.user_agent}


def test_refusals_are_waited_out_with_growing_waits(
    server: Any, client: CommonCrawl, waits: list[float]
) -> None:
    server.tricks = [503, 429, 500, "cut"]
    assert client.read(f"{server.url}/crawl/a.warc.gz") == DATA
    assert len(waits) == 4
    assert all(2**n / 2 <= wait <= 2**n for n, wait in enumerate(waits))


def test_retry_after_is_honoured(server: Any, client: CommonCrawl, waits: list[float]) -> None:
    server.tricks, server.retry_after = [503], "77"
    client.read(f"{server.url}/crawl/a.warc.gz")
    assert waits == [77.0]
    later = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert 97 < retry_after(later) <= 100
    assert retry_after("soon") == retry_after(None) == 0.0


def test_it_gives_up_with_a_sentence(server: Any, client: CommonCrawl, waits: list[float]) -> None:
    server.tricks = [503] * 9
    with pytest.raises(StorageError, match="HTTP 503, 5 times") as caught:
        client.read(f"{server.url}/crawl/a.warc.gz")
    assert "user_agent" in str(caught.value)
    assert len(waits) == 4


@pytest.mark.parametrize(("status", "error"), [(403, StorageError), (404, FileNotFoundError)])
def test_refusals_for_good_are_not_repeated(
    server: Any, client: CommonCrawl, waits: list[float], status: int, error: type[Exception]
) -> None:
    server.tricks = [status]
    with pytest.raises(error):
        client.read(f"{server.url}/crawl/a.warc.gz")
    assert waits == []


def test_a_broken_download_goes_on_where_it_stopped(
    server: Any, client: CommonCrawl, waits: list[float], tmp_path: Path
) -> None:
    server.tricks = ["cut", 503, "cut", "cut"]
    path = tmp_path / "a.warc.gz"
    client.fetch(f"{server.url}/crawl/a.warc.gz", path)
    assert path.read_bytes() == DATA
    assert [p.name for p in tmp_path.iterdir()] == ["a.warc.gz"]
    starts = [int(s[2]["Range"][6:-1]) for s in server.seen if "Range" in s[2]]
    assert starts == sorted(starts)
    assert starts[0] == starts[1] == len(DATA) // 2 // BLOCK * BLOCK
    assert len(set(starts)) == 3


def test_another_process_goes_on_too(server: Any, client: CommonCrawl, tmp_path: Path) -> None:
    path, url = tmp_path / "a.warc.gz", f"{server.url}/crawl/a.warc.gz"
    server.tricks = ["cut", 403]
    with pytest.raises(StorageError):
        client.fetch(url, path)
    assert not path.exists()
    server.seen.clear()
    client.fetch(url, path)
    assert path.read_bytes() == DATA
    assert any("Range" in seen[2] for seen in server.seen)


def test_a_file_that_changed_meanwhile_starts_afresh(
    server: Any, client: CommonCrawl, tmp_path: Path
) -> None:
    path, url = tmp_path / "a.warc.gz", f"{server.url}/crawl/a.warc.gz"
    server.tricks = ["cut", 403]
    with pytest.raises(StorageError):
        client.fetch(url, path)
    server.files["/crawl/a.warc.gz"], server.etag = DATA[::-1], '"v2"'
    client.fetch(url, path)
    assert path.read_bytes() == DATA[::-1]


def test_a_host_without_ranges_is_read_whole(
    server: Any, client: CommonCrawl, tmp_path: Path
) -> None:
    url = f"{server.url}/crawl/a.warc.gz"
    server.tricks = ["cut", "whole"]
    client.fetch(url, tmp_path / "a.warc.gz")
    assert (tmp_path / "a.warc.gz").read_bytes() == DATA
    server.tricks = ["whole"]
    with pytest.raises(StorageError, match="does not serve ranges"):
        client.read(url, offset=5, length=5)


def test_a_host_that_is_not_there(client: CommonCrawl, waits: list[float]) -> None:
    with pytest.raises(StorageError, match="connection broke"):
        client.read("http://127.0.0.1:9/x")
    assert len(waits) == 4


def test_a_pickled_client_opens_its_own_connection(server: Any, client: CommonCrawl) -> None:
    client.sleep = time.sleep
    client.read(f"{server.url}/crawl/a.warc.gz", length=1)
    copy = pickle.loads(pickle.dumps(client))
    with copy.download(f"{server.url}/crawl/a.warc.gz") as path:
        assert path.read_bytes() == DATA
    assert not path.exists()
    copy.close()


class Web:
    """What `list_snapshot` needs of a mill, over https."""

    def __init__(self, client: CommonCrawl, **section: Any) -> None:
        self.client = client
        self.config = Config(snapshots=SnapshotsConfig(**section))

    def open_store(self, url: str) -> Store:
        return HttpStore(url, self.client)


def test_a_snapshot_behind_a_web_host(server: Any, client: CommonCrawl) -> None:
    lines = b"crawl/b.warc.gz\ncrawl/a.warc.gz\ncrawl/c.warc.gz\n"
    server.files |= {"/data/S/warc.paths.gz": gzip.compress(lines), "/crawl/b.warc.gz": b"bb"}
    where = {"location": f"{server.url}/data", "base": server.url}
    found = list_snapshot(Web(client, **where, files=2), "S")
    assert found.files["warc_file"].to_list() == ["a.warc.gz", "b.warc.gz"]
    assert found.files["size_bytes"].to_list() == [len(DATA), 2]
    assert found.locations["b.warc.gz"] == f"{server.url}/crawl/b.warc.gz"
    assert all(c.startswith("sha256:") for c in found.files["checksum"])
    by_etag = list_snapshot(
        Web(client, location=f"{server.url}/data", files=2, checksum="etag"), "S"
    )
    assert by_etag.files["checksum"].to_list() == ["etag:v1", "etag:v1"]
    with pytest.raises(GristmillError, match=r"c\.warc\.gz is listed but not there"):
        list_snapshot(Web(client, **where), "S")


def test_a_web_host_is_a_store_to_read_from(server: Any, client: CommonCrawl) -> None:
    store = HttpStore(server.url, client).child("crawl")
    assert store.exists("a.warc.gz")
    assert not store.exists("b.warc.gz")
    assert store.read("a.warc.gz", offset=1, length=2) == DATA[1:3]
    assert list(store.leftovers()) == []
    for refused in (
        lambda: store.write("x", b""),
        lambda: store.delete(["x"]),
        lambda: store.swap("x", b"", expected=None),
        lambda: store.upload(Path("x"), "x"),
        store.check,
    ):
        with pytest.raises(StorageError, match="cannot be written"):
            refused()
    with pytest.raises(StorageError, match="cannot be listed"):
        store.list()


def test_the_client_takes_the_section() -> None:
    client = open_client(SnapshotsConfig(user_agent="mine/1.0", attempts=3))
    assert (client.user_agent, client.attempts) == ("mine/1.0", 3)
