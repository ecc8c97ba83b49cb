"""One boto3 client a process and configuration; clients may be used by several threads."""

import functools
import os
from typing import Any

from pipeline.config.storage import StorageConfig

CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
)


def client_for(config: StorageConfig) -> Any:
    """The client for `config` and the credentials in the environment now."""
    return _client(config, os.getpid(), tuple(os.environ.get(name) for name in CREDENTIALS))


@functools.lru_cache(maxsize=8)
def _client(config: StorageConfig, process: int, environment: tuple[str | None, ...]) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    session = boto3.Session(profile_name=config.profile)
    region = config.region or os.environ.get("AWS_REGION") or session.region_name or "us-east-1"
    options: dict[str, Any] = {
        "retries": {"total_max_attempts": 1},  # ours are in resources.retry
        "connect_timeout": min(10.0, config.timeout_seconds),
        "read_timeout": config.timeout_seconds,
        "max_pool_connections": max(10, config.parallel + 2),
    }
    if config.anonymous:
        options["signature_version"] = UNSIGNED
    return session.client(
        "s3", endpoint_url=config.endpoint_url, region_name=region, config=Config(**options)
    )
