"""The section `snapshots`: where crawl snapshots are and which slice of them is taken."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from pipeline.config.base import Section, without_password


class SnapshotsConfig(Section):
    """Where WARC files come from, how many, and how they are grouped."""

    location: str | None = Field(
        default=None,
        description="parent folder or s3:// prefix with one folder a snapshot, or a pattern with "
        "{snapshot}: a folder, an s3:// prefix, or a listing such as "
        "https://data.commoncrawl.org/crawl-data/{snapshot}/warc.paths.gz",
    )
    base: str | None = Field(
        default=None,
        description="what the paths of a listing are relative to (folder, s3:// or https://); by "
        "default the listing's own host for https, else the folder that makes them exist",
    )
    files: int | None = Field(
        default=None, ge=1, description="take the first N files of the listing"
    )
    sample: float | None = Field(
        default=None,
        gt=0.0,
        le=1.0,
        description="take this share of the files, chosen by hash and seed",
    )
    sample_seed: int = Field(default=0, ge=0, description="seed of `sample`")
    group_text_bytes: float = Field(
        default=1e9,
        ge=1e6,
        description="text of a part group, which token shards never cross; about 1 GB keeps a "
        "group within a worker's memory and a snapshot within some hundred groups",
    )
    text_ratio: float = Field(
        default=0.15,
        gt=0.0,
        le=10.0,
        description="estimated text bytes for each compressed WARC byte of a broad crawl; only the "
        "size of groups depends on it",
    )
    checksum: Literal["auto", "sha256", "etag"] = Field(
        default="auto",
        description="auto: SHA-256 by reading, but the store's ETag where a remote slice is larger "
        "than 10 GB, since reading it twice would cost more than it proves",
    )
    user_agent: str = Field(
        default="gristmill/0.1 (set snapshots.user_agent to your contact address)",
        min_length=5,
        description="how the https client names itself to the host that serves a crawl",
    )
    attempts: int = Field(
        default=8, ge=1, le=100, description="tries of a refused https request, with growing waits"
    )

    _no_password = field_validator("location", "base")(without_password)

    @model_validator(mode="after")
    def _one_slice(self) -> SnapshotsConfig:
        if self.files is not None and self.sample is not None:
            message = "snapshots.files and snapshots.sample exclude each other; give one of them"
            raise ValueError(message)
        return self
