"""Writing one checkpoint: what each rank's saver thread does, together with those of the others.

    step-N.tmp/     every rank writes its shards; their checksums are taken on the way to the disk
    verify          every rank reads back files that another rank wrote, then its share of the
                    tensors through the framework's loader (`training.saving.identity`)
    checkpoint.json the first rank records checksums, identity and progress
    step-N/         renamed; then `latest` is moved; then older ones are removed

All messages go over a process group of the savers' own: two threads that use one group wait for
each other for ever. Killed anywhere, `latest` names a complete checkpoint and what is half done is
called `.tmp`. The framework's own loader accepts a flipped byte, hence the checksums.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save as save_state

from training.faults import fault
from training.saving.files import reason, sync_folder, write_text
from training.saving.identity import digests_in, identity_from
from training.saving.state import State
from training.saving.together import all_say, first_of, first_says
from training.verify import (
    LATEST,
    RECORD,
    complete_steps,
    fault_of_bytes,
    fault_of_sizes,
    kept,
    shares,
    step_of,
)

Files = dict[str, dict[str, Any]]
ELSEWHERE = "another rank: "


@dataclass(frozen=True)
class Place:
    """Where checkpoints go, which of them stay, and this rank among those that write."""

    folder: Path
    keep: int
    every: int | None
    rank: int
    size: int
    group: dist.ProcessGroup | None


def commit(state: State, record: dict[str, Any], place: Place) -> tuple[str | None, str]:
    """Write, verify and publish a state in host memory; returns (why not, identity), agreed.

    `record`: step, progress and stamps. Called by all ranks, from one thread of each.
    """
    final = place.folder / f"step-{record['step']}"
    temporary = final.with_name(f"{final.name}.tmp")
    fault("training.checkpoint.start")
    why = first_says(clear(place.folder) if place.rank == 0 else None, place.group)
    if why is not None:
        return why, ""
    own, why = write(state, temporary, place)
    fault("training.checkpoint.written")
    found = all_say((own, why), place.group)
    files: Files = {name: told for own, _ in found for name, told in own.items()}
    whys = [why for _, why in found if why is not None]
    why = next((why for why in whys if not why.startswith(ELSEWHERE)), whys[0] if whys else None)
    identity = ""
    if why is None:
        why = verify(temporary, files, place)
    if why is None:
        digests = all_say(digests_in(temporary, place.rank, place.size), place.group)
        identity = identity_from({name: one for part in digests for name, one in part.items()})
    if place.rank == 0:
        if why is None:
            why = publish(temporary, final, record | {"identity": identity, "files": files}, place)
        if why is not None:
            shutil.rmtree(temporary, ignore_errors=True)  # a full disk needs the room
    return first_says(why, place.group), identity


def write(state: State, folder: Path, place: Place) -> tuple[Files, str | None]:
    """Write this rank's shards; returns (size and checksum of what it wrote, why not)."""
    writer = FileSystemWriter(folder, per_thread_copy_ahead=0)  # all is in host memory already
    writer.fs = hashing = HashingFiles()
    try:
        save_state(state, storage_writer=writer, process_group=place.group)
    except CheckpointException as error:
        if hashing.refused is not None:  # what reached us is what torch made of it
            return {}, reason(hashing.refused)
        mine = place.rank in error.failures
        return {}, ("" if mine else ELSEWHERE) + str(error).strip().splitlines()[-1]
    except OSError as error:
        return {}, reason(error)
    return hashing.files, None


def verify(folder: Path, files: Files, place: Place) -> str | None:
    """Which file does not read as it was written; each rank reads some that another one wrote."""
    parts = shares({name: told["bytes"] for name, told in files.items()}, place.size)
    mine = parts[(place.rank + 1) % place.size]
    share = {name: files[name] for name in mine}
    why = fault_of_sizes(folder, share) or fault_of_bytes(folder, share)
    return first_of(why, place.group)


def clear(folder: Path) -> str | None:
    """Remove what killed processes left behind; returns why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in [*folder.glob("step-*.tmp"), *folder.glob("step-*.old")]:
            shutil.rmtree(path)
    except OSError as error:
        return reason(error)
    return None


def publish(temporary: Path, final: Path, record: dict[str, Any], place: Place) -> str | None:
    """Record, rename, point, purge; returns why not."""
    try:
        write_text(temporary / RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")
        sync_folder(temporary)
        fault("training.checkpoint.before_rename")
        if final.exists():  # a damaged one of the same step, from before a roll-back
            final.rename(final.with_name(f"{final.name}.old"))
        temporary.rename(final)
        sync_folder(final.parent)
        fault("training.checkpoint.after_rename")
        write_text(final.parent / LATEST, final.name + "\n")
        fault("training.checkpoint.after_pointer")
        purge(final, place)
        fault("training.checkpoint.after_purge")
    except OSError as error:
        return reason(error)
    return None


def purge(newest: Path, place: Place) -> None:
    """Remove what the rules for keeping do not name, and all that is newer than `newest`.

    Newer ones can only be damaged, or from before a rewind.
    """
    paths = complete_steps(newest.parent)
    older = [step_of(path) for path in paths if step_of(path) <= step_of(newest)]
    stay = kept(older, place.keep, place.every)
    for path in [p for p in paths if step_of(p) not in stay]:
        remove(path)
    for path in newest.parent.glob("step-*.old"):
        shutil.rmtree(path)


def remove(path: Path) -> None:
    """Remove a checkpoint; never half of one is there under a good name."""
    gone = path.with_name(f"{path.name}.tmp")
    path.rename(gone)
    shutil.rmtree(gone)


class HashingFiles(FileSystem):
    """Files of a checkpoint whose size and checksum are known when they are written."""

    def __init__(self) -> None:
        self.files: Files = {}
        """Name -> `bytes`, `checksum`, of what was written and closed."""
        self.refused: OSError | None = None
        """What the disk said first."""

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[io.IOBase]:
        """As the framework's; a stream that is written to is hashed."""
        with super().create_stream(path, mode) as stream:
            if "r" in mode:
                yield stream
                return
            hashed = Hashed(cast("io.BufferedWriter", stream), self._refuse)
            yield cast("io.IOBase", hashed)
        checksum = f"sha256:{hashed.hash.hexdigest()}"
        self.files[Path(path).name] = {"bytes": hashed.bytes, "checksum": checksum}

    def _refuse(self, error: OSError) -> None:
        self.refused = self.refused or error

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """As the framework's."""
        super().rename(path, new_path)
        self.files[Path(new_path).name] = self.files.pop(Path(path).name)


@dataclass
class Hashed:
    """A file that is written from its start to its end, and hashed on the way."""

    file: io.BufferedWriter
    refuse: Callable[[OSError], None]
    """Told of every error of the disk: torch's writer hides them behind its own."""
    bytes: int = 0
    hash: Any = field(default_factory=hashlib.sha256)

    def write(self, data: Any) -> int:
        """Append; the number of bytes."""
        self.hash.update(data)
        with self._watched():
            written = self.file.write(data)
        self.bytes += written
        return written

    def tell(self) -> int:
        """Bytes written so far."""
        return self.bytes

    def flush(self) -> None:
        """Hand everything to the system."""
        with self._watched():
            self.file.flush()

    def fileno(self) -> int:
        """The system's number, for syncing: the framework flushes no metadata before."""
        self.flush()
        return self.file.fileno()

    def close(self) -> None:
        """Close the file."""
        with self._watched():
            self.file.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.refuse(error)
            raise
