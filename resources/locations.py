"""Files by their location: a path, an `s3://` object, an `https://` address.

Where WARC files lie is no concern of a stage: it asks for a local copy, or for a range of bytes.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.config import Config
from pipeline.errors import UsageError
from resources.storage import open_store


@contextmanager
def local_copy(location: str, config: Config) -> Iterator[Path]:
    """A local file with the bytes of `location`: itself, or a copy that lives as long as the context.

    Raises UsageError where a local file is absent, StorageError where a service refuses.
    """
    scheme, separator, _ = location.partition("://")
    if not separator or scheme == "file":
        yield _existing(location.removeprefix("file://"))
    elif scheme == "s3":
        folder, _, name = location.rpartition("/")
        with open_store(folder, options=config.storage).local(name) as path:
            yield path
    else:
        from resources.commoncrawl import open_client

        with open_client(config.snapshots).download(location) as path:
            yield path


def read_range(location: str, offset: int, length: int, config: Config) -> bytes:
    """`length` bytes of `location` from `offset`, by one ranged read."""
    scheme, separator, _ = location.partition("://")
    if not separator or scheme == "file":
        with _existing(location.removeprefix("file://")).open("rb") as stream:
            stream.seek(offset)
            return stream.read(length)
    if scheme == "s3":
        folder, _, name = location.rpartition("/")
        store = open_store(folder, options=config.storage)
        return store.read(name, offset=offset, length=length)
    from resources.commoncrawl import open_client

    return open_client(config.snapshots).read(location, offset=offset, length=length)


def _existing(place: str) -> Path:
    path = Path(place)
    if not path.is_file():
        message = f"{path} is not there any more"
        raise UsageError(message, hint="put the file back, or materialise snapshots again")
    return path
