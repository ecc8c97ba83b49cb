"""A polite https client for crawl archives: names itself, backs off, resumes.

Public crawl hosts answer 503 under load and block clients that do not slow down. So every refusal
waits longer than the one before, with jitter so that workers do not knock together, and never less
than the Retry-After the host asks for. A broken download goes on where it stopped, from a `.part`
file that is renamed only when its size is right.
"""

import email.utils
import hashlib
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import requests

from pipeline.config.snapshots import SnapshotsConfig
from pipeline.errors import StorageError
from pipeline.store import ObjectInfo

RETRIED = {408, 425, 429, 500, 502, 503, 504, 509, 520, 522, 524}
BROKEN = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
)
BLOCK = 64 << 10
"""What a broken connection may cost: requests drops an unfinished block."""
T = TypeVar("T")


class _Again(Exception):
    """A refusal worth another try, after at least `wait` seconds."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


def _short(came: int, size: int) -> _Again:
    return _Again(f"{came:,} of {size:,} bytes came")


class CommonCrawl:
    """Reads files over https. Picklable: a worker opens its own connection."""

    def __init__(
        self,
        user_agent: str,
        *,
        attempts: int = 8,
        first_wait: float = 1.0,
        longest_wait: float = 120.0,
        timeout: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.user_agent = user_agent
        self.attempts = attempts
        self.first_wait = first_wait
        self.longest_wait = longest_wait
        self.timeout = timeout
        self.sleep = sleep
        self._session: requests.Session | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def read(self, url: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes at `url`, or `length` of them from `offset`.

        Raises FileNotFoundError (404, 410) and StorageError (any other refusal, after all tries).
        """
        ranged = offset > 0 or length is not None
        last = "" if length is None else str(offset + length - 1)
        headers = {"Range": f"bytes={offset}-{last}"} if ranged else {}

        def once() -> bytes:
            with self._get(url, headers) as answer:
                if ranged and answer.status_code != 206:
                    message = f"{url} does not serve ranges (HTTP {answer.status_code})"
                    raise StorageError(message, hint="download the file and give its folder")
                data: bytes = answer.content
                expected = _content_length(answer)
                if expected is not None and len(data) != expected:
                    raise _short(len(data), expected)
                return data

        return self._persist(url, once)

    def stat(self, url: str) -> ObjectInfo:
        """Size and ETag of the file at `url`."""

        def once() -> ObjectInfo:
            with self._get(url, {}, method="HEAD") as answer:
                size = _content_length(answer)
                if size is None:
                    message = f"{url} does not tell its size"
                    raise StorageError(message, hint="download the file and give its folder")
                return ObjectInfo(url, size, answer.headers.get("ETag"))

        return self._persist(url, once)

    @contextmanager
    def download(self, url: str) -> Iterator[Path]:
        """A local copy of `url` that lives as long as the context."""
        with tempfile.TemporaryDirectory(prefix="gristmill-") as folder:
            path = Path(folder) / url.rsplit("/", 1)[-1]
            self.fetch(url, path)
            yield path

    def fetch(self, url: str, path: Path) -> ObjectInfo:
        """Fetch `url` into the file `path`, going on from an earlier attempt's `.part` file.

        The part file's name carries the ETag: a file that changed on the host starts afresh.
        """
        info = self.stat(url)
        version = hashlib.sha256(f"{info.etag} {info.size}".encode()).hexdigest()[:12]
        part = path.with_name(f"{path.name}.{version}.part")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._persist(url, lambda: self._resume(url, part, info), progress=lambda: _size(part))
        part.replace(path)
        return info

    def _resume(self, url: str, part: Path, info: ObjectInfo) -> None:
        have = _size(part)
        if have > info.size:
            part.unlink()
            have = 0
        if have == info.size and part.exists():
            return
        headers: dict[str, str] = {}
        if have:
            headers["Range"] = f"bytes={have}-"
            if info.etag and not info.etag.startswith("W/"):
                headers["If-Range"] = info.etag
        with (
            self._get(url, headers) as answer,
            part.open("ab" if answer.status_code == 206 else "wb") as file,
        ):
            for block in answer.iter_content(BLOCK):
                file.write(block)
        if _size(part) != info.size:
            raise _short(_size(part), info.size)

    @contextmanager
    def _get(
        self, url: str, headers: dict[str, str], method: str = "GET"
    ) -> Iterator[requests.Response]:
        """One request: the answer if it is one, `_Again` if it is worth another try."""
        if self._session is None:
            self._session = requests.Session()
            self._session.headers["User-Agent"] = self.user_agent
            self._session.headers["Accept-Encoding"] = "identity"
        try:
            with self._session.request(
                method,
                url,
                headers=headers,
                timeout=self.timeout,
                stream=True,
                allow_redirects=True,
            ) as answer:
                if answer.status_code in RETRIED:
                    why = f"HTTP {answer.status_code}"
                    raise _Again(why, retry_after(answer.headers.get("Retry-After")))
                if answer.status_code in (404, 410):
                    raise FileNotFoundError(url)
                if answer.status_code not in (200, 206):
                    message = f"{url} was refused with HTTP {answer.status_code}"
                    raise StorageError(message, hint="check the address and your access to it")
                yield answer
        except BROKEN as error:
            why = f"connection broke ({type(error).__name__})"
            raise _Again(why) from error

    def _persist(
        self, url: str, once: Callable[[], T], progress: Callable[[], int] = lambda: 0
    ) -> T:
        """Try, and wait longer after each refusal; progress starts the count afresh."""
        refused = 0
        reached = progress()
        while True:
            try:
                return once()
            except _Again as again:
                refused = 0 if progress() > reached else refused
                reached = progress()
                refused += 1
                if refused >= self.attempts:
                    message = f"{url}: {again}, {refused} times"
                    hint = "the host is busy or blocks you: try later, or set snapshots.user_agent"
                    raise StorageError(message, hint=hint) from again
                self.sleep(max(self.wait(refused), again.wait))

    def wait(self, refused: int) -> float:
        """Seconds before the next try: doubling, between half and all of it by chance."""
        longest = min(self.longest_wait, self.first_wait * 2.0 ** (refused - 1))
        return longest * random.uniform(0.5, 1.0)

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._session is not None:
            self._session.close()
            self._session = None


def open_client(config: SnapshotsConfig) -> CommonCrawl:
    """The client as the section `snapshots` wants it."""
    return CommonCrawl(config.user_agent, attempts=config.attempts)


def retry_after(value: str | None) -> float:
    """Seconds that a Retry-After header asks for: a number or a date; 0 for neither."""
    if not value:
        return 0.0
    if value.strip().isdigit():
        return float(value)
    try:
        moment = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return 0.0
    return max(0.0, moment.timestamp() - time.time())


def _content_length(answer: requests.Response) -> int | None:
    value = answer.headers.get("Content-Length", "")
    encoded = answer.headers.get("Content-Encoding", "identity") != "identity"
    return int(value) if value.isdigit() and not encoded else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
