"""The section `storage`: where the store is and how patiently it is talked to."""

from __future__ import annotations

from pydantic import Field, field_validator

from pipeline.config.base import Section, without_password


class StorageConfig(Section):
    """A folder or an S3 bucket.

    Credentials never stand here: AWS_ACCESS_KEY_ID and its kin, a profile, or the machine's role.
    """

    root: str | None = Field(default=None, min_length=1)
    """Folder, or `s3://bucket/prefix`, that holds every dataset."""
    endpoint_url: str | None = Field(default=None, pattern="^https?://")
    """Address of an S3 server other than Amazon's; else AWS_ENDPOINT_URL."""
    region: str | None = Field(default=None, min_length=1)
    """Region of the bucket; else AWS_REGION or the profile's."""
    profile: str | None = Field(default=None, min_length=1)
    """Profile of the AWS credentials file."""
    anonymous: bool = False
    """Read a public bucket without signing the requests."""
    attempts: int = Field(default=9, ge=1, le=20)
    """Requests sent before giving up: the store may be away for about a minute."""
    wait_seconds: float = Field(default=0.25, gt=0, le=60)
    """Longest first wait; each further one doubles, by a random share of 50 to 100 %."""
    timeout_seconds: float = Field(default=60.0, gt=0, le=3600)
    """How long one request may stay without an answer."""
    part_mb: int = Field(default=16, ge=5, le=5120)
    """MiB a part of a multipart upload; S3 refuses less than 5. Smaller files go whole."""
    parallel: int = Field(default=4, ge=1, le=64)
    """Parts of one file under way at once; 4 x 16 MiB stay in memory."""
    scratch: str | None = Field(default=None, min_length=1)
    """Folder for temporary copies of remote files; else the system's."""

    _no_password = field_validator("root", "endpoint_url")(without_password)
