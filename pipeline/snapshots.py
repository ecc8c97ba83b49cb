"""`snapshots`: the WARC files of a crawl snapshot, with size, checksum and part group.

Three kinds of place: a folder, an `s3://` prefix, and a listing `warc.paths(.gz)` as Common Crawl
publishes it, whose paths are relative to a base (folder, s3, https). The listing is sorted by base
name, so it does not depend on how a store orders its keys; where a file lies is not part of its
identity, so locations stand beside the table and are never hashed.
"""

from __future__ import annotations

import gzip
import hashlib
import posixpath
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import xxhash

from pipeline.config.snapshots import SnapshotsConfig
from pipeline.errors import ConfigError, GristmillError, UsageError
from pipeline.layout import check_name
from pipeline.store import Store

if TYPE_CHECKING:
    import polars as pl

    from pipeline.config import Config

CODE_VERSION = "1"
LIBRARIES = ("xxhash",)

ENDINGS = (".warc", ".warc.gz")
LISTINGS = ("warc.paths.gz", "warc.paths")
ETAG_ABOVE = 10_000_000_000
"""Bytes of a remote slice above which `checksum: auto` trusts ETags rather than read it twice."""
BLOCK = 16 << 20
OpenStore = Callable[[str], Store]


class Places(Protocol):
    """What is needed of a `Mill`: the configuration, and stores by address, https ones included."""

    @property
    def config(self) -> Config:
        """The section `snapshots` of it is used."""
        ...

    @property
    def open_store(self) -> OpenStore:
        """The store at a folder, `s3://` or `https://` address (read-only, not listable)."""
        ...


@dataclass(frozen=True)
class Listing:
    """The files of a snapshot (`schema.WARC_FILES`, sorted by name) and where each one lies."""

    files: pl.DataFrame
    locations: dict[str, str]
    """Base name -> absolute path, s3:// or https:// address."""


@dataclass(frozen=True)
class Extent:
    """How much a whole snapshot is, whatever slice of it is taken."""

    files: int
    size_bytes: int | None
    """Null where the listing has no sizes, and each file would have to be asked for."""


@dataclass(frozen=True)
class _File:
    """A file that is listed; one from a listing has no size before it is asked for."""

    name: str
    location: str
    key: str
    store: Store
    size: int | None = None
    etag: str | None = None


def list_snapshot(places: Places, snapshot: str, earlier: pl.DataFrame | None = None) -> Listing:
    """The WARC files of a snapshot, or the slice of them that the section asks for.

    Files that the `earlier` listing of the same snapshot has stay in their part group; files that
    arrived since form new ones. Raises ConfigError without a location, UsageError where there is no
    such place, GristmillError for an empty snapshot or two files of one base name.
    """
    check_name("snapshot", snapshot)
    config = places.config.snapshots
    place = snapshot_location(snapshot, config)
    found = _unique(_find(place, config, places.open_store), place)
    if not found:
        message = f"snapshot {snapshot}: no *.warc or *.warc.gz at {place}"
        raise GristmillError(message, hint="check snapshots.location and the snapshot's name")
    chosen = [_measured(file) for file in slice_files(found, config)]
    total = sum(file.size or 0 for file in chosen)
    sizes = [(file.name, file.size or 0) for file in chosen]
    checksums = [_checksum(file, config, total) for file in chosen]
    groups = cut_groups(sizes, config, earlier)
    table = _table(sizes, checksums, groups)
    return Listing(table, {file.name: file.location for file in chosen})


def extent(places: Places, snapshot: str) -> Extent:
    """The whole of a snapshot from its listing alone: one request, no file is touched.

    Raises what `list_snapshot` raises where there is no such place or listing.
    """
    config = places.config.snapshots
    place = snapshot_location(snapshot, config)
    files = _unique(_find(place, config, places.open_store), place)
    sizes = [file.size for file in files if file.size is not None]
    return Extent(len(files), sum(sizes) if len(sizes) == len(files) else None)


def snapshot_location(snapshot: str, config: SnapshotsConfig) -> str:
    """Where a snapshot lies: the pattern filled in, or its folder below the location."""
    if not config.location:
        message = "snapshots.location is not set"
        hint = "set it to the folder or s3:// prefix that holds a folder a snapshot"
        raise ConfigError(message, hint=hint)
    if "{snapshot}" in config.location:
        return config.location.replace("{snapshot}", snapshot)
    place = f"{config.location.rstrip('/')}/{snapshot}"
    return f"{place}/{LISTINGS[0]}" if place.startswith(("https://", "http://")) else place


def slice_files(files: list[_File], config: SnapshotsConfig) -> list[_File]:
    """The first `files`, or the share `sample` of them by hash: a choice that later files keep."""
    if config.files is not None:
        return files[: config.files]
    if config.sample is None:
        return files
    share = config.sample * 2**64
    key = f"{config.sample_seed}\x00"
    ranked = sorted(
        (xxhash.xxh3_64_intdigest((key + file.name).encode()), file.name) for file in files
    )
    names = {name for value, name in ranked if value < share} or {ranked[0][1]}
    return [file for file in files if file.name in names]


def cut_groups(
    sizes: list[tuple[str, int]], config: SnapshotsConfig, earlier: pl.DataFrame | None
) -> list[int]:
    """The part group of each file: known files keep theirs, the others fill new ones in order."""
    known = dict(earlier.select("warc_file", "group").iter_rows()) if earlier is not None else {}
    group = max(known.values(), default=-1) + 1
    filled = 0.0
    groups = []
    for name, size in sizes:
        if name in known:
            groups.append(known[name])
            continue
        text = size * config.text_ratio
        if filled and filled + text > config.group_text_bytes:
            group, filled = group + 1, 0.0
        filled += text
        groups.append(group)
    return groups


def _find(place: str, config: SnapshotsConfig, open_store: OpenStore) -> Iterator[_File]:
    if place.endswith(LISTINGS):
        yield from _listed(place, config, open_store)
        return
    if not place.startswith("s3://") and not Path(place).is_dir():
        message = f"{place} is not a folder"
        raise UsageError(message, hint="snapshots.location names the parent of snapshot folders")
    store = open_store(place)
    listing = None
    any_file = False
    for entry in store.list():
        name = entry.key.rsplit("/", 1)[-1]
        if name in LISTINGS:
            listing = listing or entry.key
        if name.endswith(ENDINGS) and not name.startswith("."):
            any_file = True
            where = f"{store.url.rstrip('/')}/{entry.key}"
            yield _File(name, where, entry.key, store, entry.size, entry.etag)
    if listing and not any_file:
        yield from _listed(f"{place.rstrip('/')}/{listing}", config, open_store)


def _listed(listing: str, config: SnapshotsConfig, open_store: OpenStore) -> Iterator[_File]:
    """Files named by a `warc.paths(.gz)`, relative to the base."""
    folder, _, key = listing.rpartition("/")
    try:
        data = open_store(folder).read(key)
    except FileNotFoundError as error:
        message = f"listing {listing} is not there"
        hint = "check snapshots.location: a folder, an s3:// prefix or a warc.paths(.gz)"
        raise UsageError(message, hint=hint) from error
    paths = _lines(data, listing)
    store = open_store(config.base or _base_of(listing, paths, open_store))
    for path in paths:
        if not path.endswith(ENDINGS):
            message = f"listing {listing} names {path!r}, which is no *.warc or *.warc.gz"
            raise GristmillError(message, hint="use the listing warc.paths(.gz), not wet or wat")
        name = path.rsplit("/", 1)[-1]
        yield _File(name, f"{store.url.rstrip('/')}/{path}", path, store)


def _lines(data: bytes, listing: str) -> list[str]:
    try:
        text = gzip.decompress(data).decode() if data[:2] == b"\x1f\x8b" else data.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        message = f"listing {listing} cannot be read: {error}"
        raise GristmillError(message, hint="download it again") from error
    paths = [
        posixpath.normpath(line.strip()).lstrip("/") for line in text.splitlines() if line.strip()
    ]
    for path in paths:
        if path.startswith("../") or path in (".", "..") or "\0" in path:
            message = f"listing {listing} names {path!r}, which lies outside its base"
            raise GristmillError(message, hint="paths of a listing are relative to its base")
    return paths


def _base_of(listing: str, paths: list[str], open_store: OpenStore) -> str:
    """What a listing's paths are relative to: its host, or the folder above it that has them."""
    if listing.startswith(("https://", "http://")):
        address = urlsplit(listing)
        return f"{address.scheme}://{address.netloc}"
    folder = listing.rpartition("/")[0]
    while paths and folder and not folder.endswith((":", "/")):
        if open_store(folder).exists(paths[0]):
            return folder
        folder = folder.rpartition("/")[0]
    message = f"listing {listing}: {paths[0] if paths else 'nothing'} is below none of its folders"
    raise GristmillError(message, hint="set snapshots.base to what its paths are relative to")


def _unique(files: Iterable[_File], place: str) -> list[_File]:
    by_name: dict[str, _File] = {}
    for file in files:
        other = by_name.setdefault(file.name, file)
        if other is not file:
            message = f"two files are called {file.name}: {other.location} and {file.location}"
            hint = f"a document's id rests on the base name; rename one of them below {place}"
            raise GristmillError(message, hint=hint)
    return [by_name[name] for name in sorted(by_name)]


def _measured(file: _File) -> _File:
    if file.size is not None:
        return file
    try:
        info = file.store.stat(file.key)
    except FileNotFoundError as error:
        message = f"{file.location} is listed but not there"
        raise GristmillError(message, hint="check snapshots.base, or list again") from error
    return replace(file, size=info.size, etag=info.etag)


def _checksum(file: _File, config: SnapshotsConfig, total: int) -> str:
    large = config.checksum == "auto" and total > ETAG_ABOVE
    if file.etag and (config.checksum == "etag" or large):
        return f"etag:{file.etag.removeprefix('W/').strip(chr(34))}"
    digest = hashlib.sha256()
    for offset in range(0, file.size or 0, BLOCK):
        length = min(BLOCK, (file.size or 0) - offset)
        digest.update(file.store.read(file.key, offset=offset, length=length))
    return f"sha256:{digest.hexdigest()}"


def _table(sizes: list[tuple[str, int]], checksums: list[str], groups: list[int]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame(
        {
            "warc_file": pl.Series([name for name, _ in sizes], dtype=pl.String),
            "size_bytes": pl.Series([size for _, size in sizes], dtype=pl.Int64),
            "checksum": pl.Series(checksums, dtype=pl.String),
            "group": pl.Series(groups, dtype=pl.Int32),
        }
    )
