"""Stores by their address: a folder or an S3 bucket, one interface (`pipeline.store`)."""

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pipeline.config.storage import StorageConfig
from pipeline.errors import UsageError
from pipeline.store import Store
from resources.storage_local import LocalStore

BUCKET = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]{1,253}[A-Za-z0-9]"
)  # old ones may be long, or upper


def open_store(url: str, *, options: StorageConfig | None = None) -> Store:
    """The store at `url`: `/folder`, `folder`, `file:///folder` or `s3://bucket/prefix`.

    Nothing is created or asked for yet (`check()` does). Raises UsageError for any other address.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        path = Path(unquote(urlsplit(url).path)) if separator else Path(url).expanduser()
        if not url or "\0" in url:
            message = f"storage address {url!r} is empty or holds a NUL byte"
            raise UsageError(message, hint="a folder, file:///folder or s3://bucket/prefix")
        return LocalStore(Path(path).absolute())
    if scheme != "s3":
        message = f"storage address {url!r} has the unknown scheme {scheme!r}"
        raise UsageError(message, hint="a folder, file:///folder or s3://bucket/prefix")
    return open_bucket(rest, options or StorageConfig())


def open_bucket(address: str, options: StorageConfig) -> Store:
    """The store at `bucket/prefix`."""
    from resources.retry import Retry  # boto3 takes 0.3 s: only where a bucket is used
    from resources.storage_s3 import S3Store

    bucket, _, prefix = address.partition("/")
    prefix = prefix.strip("/")
    if not BUCKET.fullmatch(bucket) or any(p in ("", ".", "..") for p in prefix.split("/")[1:]):
        message = f"s3://{address} names no bucket and prefix"
        raise UsageError(message, hint="s3://bucket/prefix; lower-case letters, digits, '.', '-'")
    return S3Store(bucket, prefix, options, Retry(options.attempts, options.wait_seconds))
