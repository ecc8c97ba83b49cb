"""Which snapshots at `snapshots.location` are complete: what the sensor and the schedule ask.

A crawl is being copied for hours, so a folder that appears is no snapshot yet. It is complete when
its listing (`warc.paths` or `warc.paths.gz`) is there and every file it names is; without a listing
when nothing in it has changed for `QUIET_SECONDS`. A listing over https cannot be searched for
names: there a person adds the partition, and it counts once its listing answers.
"""

import gzip
import hashlib
import re
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from pipeline.config import Config
from pipeline.errors import ConfigError, StorageError
from pipeline.layout import content_key
from pipeline.snapshots import LISTINGS, snapshot_location
from pipeline.store import ObjectInfo, Store
from resources.locations import Opener
from resources.storage import open_store

QUIET_SECONDS = 600
WARC = re.compile(r"\.warc(\.gz)?$")
PLACE = "{snapshot}"


def complete_snapshots(config: Config, expected: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Name and mark of every complete snapshot, by name; the mark changes with a new crawl of it.

    `expected`: names to ask for where the location cannot be searched. Raises ConfigError where
    `snapshots.location` is not set.
    """
    location = config.snapshots.location
    if not location:
        message = "snapshots.location is not set, so there is nowhere to look for snapshots"
        raise ConfigError(message, hint="set it to the folder or s3:// prefix with the snapshots")
    if location.startswith(("http://", "https://")):
        yield from _answering(config, sorted(expected))
        return
    before, _, after = location.partition(PLACE)
    parent, _, start = before.rpartition("/") if after or PLACE in location else (location, "", "")
    root = open_store(parent or "/", options=config.storage)
    found = snapshot_objects(root, start, after)
    elsewhere = bool(config.snapshots.base) or ".paths" in after
    for name in sorted(found):
        mark = completeness(root, found[name], elsewhere=elsewhere)
        if mark:
            yield name, mark


def snapshot_objects(root: Store, start: str, after: str) -> dict[str, list[ObjectInfo]]:
    """Snapshot name -> the objects in its folder; the name stands between `start` and `after`."""
    tail = after.strip("/")
    last = PurePosixPath(tail).name
    inside = tail.removesuffix(last).strip("/") if "." in last else tail
    found: dict[str, list[ObjectInfo]] = {}
    for info in root.list():
        head, _, rest = info.key.partition("/")
        if not rest or not head.startswith(start) or (inside and not rest.startswith(f"{inside}/")):
            continue
        found.setdefault(head.removeprefix(start), []).append(info)
    return found


def completeness(root: Store, objects: list[ObjectInfo], *, elsewhere: bool) -> str | None:
    """What tells this crawl of a snapshot from another, if it is complete; None if it is not.

    `elsewhere`: the files of a listing may lie in another place than beside it.
    """
    names = {PurePosixPath(info.key).name for info in objects}
    listing = next((o for n in LISTINGS for o in objects if o.key.endswith(f"/{n}")), None)
    if listing is not None:
        data = root.read(listing.key)
        wanted = listed(data)
        there = wanted & names
        whole = bool(wanted) and (there == wanted or (elsewhere and not there))
        return hashlib.sha256(data).hexdigest()[:16] if whole else None
    warcs = sorted((o.key, o.size) for o in objects if WARC.search(o.key))
    newest = max((o.modified or 0.0 for o in objects), default=0.0)
    quiet = time.time() - newest >= QUIET_SECONDS
    return content_key(warcs)[:16] if warcs and quiet else None


def listed(data: bytes) -> set[str]:
    """Base names of the files in a listing; none where it is cut off or no listing."""
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        return set()
    return {PurePosixPath(line.strip()).name for line in text.splitlines() if line.strip()}


def _answering(config: Config, names: list[str]) -> Iterator[tuple[str, str]]:
    opener = Opener(config)
    for name in names:
        folder, _, key = snapshot_location(name, config.snapshots).rpartition("/")
        try:
            data = opener(folder).read(key)
        except (FileNotFoundError, StorageError):
            continue
        if listed(data):
            yield name, hashlib.sha256(data).hexdigest()[:16]
