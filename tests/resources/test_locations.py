"""Files by their location: the same bytes from a path, from S3 and over HTTP."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Config, load_config
from pipeline.errors import StorageError, UsageError
from resources.locations import Fetch, Opener, read_range
from tests.s3_server import moto_server

DATA = bytes(range(256)) * 5000
NAME = "CC-MAIN-0.warc.gz"


class Ranged(SimpleHTTPRequestHandler):
    """Serves a folder, and ranges of its files."""

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not path.is_file() or asked is None:
            return super().do_GET()
        data = path.read_bytes()
        first, last = int(asked[1]), int(asked[2] or len(data) - 1)
        self.send_response(206)
        self.send_header("Content-Length", str(len(data[first : last + 1])))
        self.end_headers()
        self.wfile.write(data[first : last + 1])
        return None

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Scheme -> the folder that holds the file."""
    folder = tmp_path_factory.mktemp("files")
    (folder / NAME).write_bytes(DATA)
    handler = partial(Ranged, directory=str(folder))
    with (
        moto_server() as server,
        server.environment(),
        ThreadingHTTPServer(("127.0.0.1", 0), handler) as web,
    ):
        thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        bucket = server.bucket()
        client = server.client()
        client.put_object(Bucket=bucket, Key=f"crawl/{NAME}", Body=DATA)
        client.close()
        yield {
            "path": str(folder),
            "file": f"file://{folder}",
            "s3": f"s3://{bucket}/crawl",
            "http": f"http://127.0.0.1:{web.server_port}",
        }
        web.shutdown()
        thread.join()


@pytest.fixture(params=["path", "file", "s3", "http"])
def location(request: pytest.FixtureRequest, places: dict[str, str]) -> str:
    return f"{places[request.param]}/{NAME}"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(
        overrides={"storage": {"scratch": str(tmp_path)}, "snapshots": {"attempts": 1}}
    )


def local_copy(location: str, config: Config) -> AbstractContextManager[Path]:
    fetch: Fetch = pickle.loads(pickle.dumps(Fetch(Opener(config))))  # as worker processes get it
    return fetch(location)


def test_a_range_is_the_bytes_asked_for(location: str, config: Config) -> None:
    assert read_range(location, 0, 10, config) == DATA[:10]
    assert read_range(location, 70_000, 1000, config) == DATA[70_000:71_000]


def test_a_copy_lives_as_long_as_its_context(location: str, config: Config, tmp_path: Path) -> None:
    with local_copy(location, config) as path:
        assert path.name == NAME
        assert path.read_bytes() == DATA
    assert path.exists() == (not location.startswith(("s3", "http")))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_is_not_there_is_said_in_one_sentence(location: str, config: Config) -> None:
    missing = location.replace("0.warc", "1.warc")
    with pytest.raises((StorageError, UsageError), match="is not there any more"):
        read_range(missing, 0, 10, config)
    with pytest.raises((StorageError, UsageError), match="is not there any more"):  # noqa: SIM117
        with local_copy(missing, config):
            pass


def test_an_error_of_the_reader_is_not_the_locations(location: str, config: Config) -> None:
    with pytest.raises(FileNotFoundError, match="mine"), local_copy(location, config):  # noqa: PT012
        message = "mine"
        raise FileNotFoundError(message)


def test_unknown_schemes_are_refused(config: Config) -> None:
    with pytest.raises(UsageError, match="unknown scheme"):
        read_range("ftp://host/file", 0, 1, config)
