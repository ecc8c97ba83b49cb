"""Places by their address: a folder or file, `s3://`, `https://`.

Where WARC files lie is no concern of a stage: it asks for a local copy, or for a range of bytes.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipeline.config import Config
from pipeline.errors import StorageError, UsageError
from pipeline.store import Store
from resources.storage import open_store


@dataclass(frozen=True)
class Opener:
    """Opens stores with the options of the configuration; picklable."""

    config: Config

    def __call__(self, url: str) -> Store:
        """The store at a folder, an `s3://` prefix or an `https://` address (read-only)."""
        if url.startswith(("https://", "http://")):
            from resources.commoncrawl import open_client
            from resources.storage_http import HttpStore

            return HttpStore(url, open_client(self.config.snapshots))
        return open_store(url, options=self.config.storage)


@dataclass(frozen=True)
class Fetch:
    """A local file with the bytes of a location; picklable."""

    opener: Opener

    @contextmanager
    def __call__(self, location: str) -> Iterator[Path]:
        """The file itself, or a copy that lives as long as the context.

        Raises UsageError where a local file is absent, StorageError where a remote one is absent
        or its service refuses.
        """
        if "://" not in location:
            yield _existing(location)
            return
        folder, _, name = location.rpartition("/")
        with ExitStack() as stack:
            try:
                path = stack.enter_context(self.opener(folder).local(name))
            except FileNotFoundError as error:
                raise _gone(location) from error
            yield path


def read_range(location: str, offset: int, length: int, config: Config) -> bytes:
    """`length` bytes of `location` from `offset`, by one ranged read. Raises as `Fetch`."""
    if "://" in location:
        folder, _, name = location.rpartition("/")
        try:
            return Opener(config)(folder).read(name, offset=offset, length=length)
        except FileNotFoundError as error:
            raise _gone(location) from error
    with _existing(location).open("rb") as stream:
        stream.seek(offset)
        return stream.read(length)


def _existing(place: str) -> Path:
    path = Path(place)
    if not path.is_file():
        message = f"{path} is not there any more"
        raise UsageError(message, hint="put the file back, or materialise snapshots again")
    return path


def _gone(location: str) -> StorageError:
    message = f"{location} is not there any more"
    return StorageError(message, hint="materialise snapshots again, or check the address")
