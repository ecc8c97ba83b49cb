"""Uploading a run while it trains: a thread beside the launcher, which training never waits for.

It looks at the run folder every second. A checkpoint goes up when it is published, the newest
first, under hard links, so that training may remove it meanwhile; then those go from the bucket
that the rules for keeping do not name. Before a checkpoint goes the files that tell of it: metrics,
ledger, spike reports. Where the store is gone, the thread asks again until the run ends, and then
for some minutes more.
"""

import contextlib
import dataclasses
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from assets.trainrun import RESULT, SENT, Say, drop, send_checkpoint, steps_in
from pipeline.errors import GristmillError, StorageError
from training.config import RECORD
from training.verify import LATEST, complete_steps, fault_of, kept, step_of
from training.verify import RECORD as CHECKPOINT

if TYPE_CHECKING:
    from resources.mirror import Mirror

LOOK_SECONDS = 1.0
FILES_SECONDS = 30.0
"""Between two uploads of metrics and other files when no checkpoint was published."""
LAST_ATTEMPTS = 11
"""At the end of a run, for each request: waits of 2 to 4 minutes in all, as they double."""
HELD = ".sending"
FAILURES = (GristmillError, OSError)


@contextlib.contextmanager
def sending(remote: "Mirror", say: Say, keep: int, every: int | None) -> Iterator[None]:
    """Upload the run in `remote.folder` while what is inside runs, and the rest after it.

    Raises StorageError where that ended well and the bucket still lacks something.
    """
    sender = Sender(remote, say, keep, every)
    sender.start()
    try:
        yield
    except BaseException:  # also an interruption: what is saved goes up before it goes on
        sender.stop()
        try:
            sender.rest()
        except FAILURES as error:  # the run's own error counts
            say(f"{remote.store.url} lacks what the run saved last: {sentence(error)}")
        raise
    sender.stop()
    try:
        sender.rest(LAST_ATTEMPTS)
    except FAILURES as error:
        what = f"lacks what it saved last: {sentence(error)}"
        message = f"the run has ended, and {remote.store.url} {what}"
        hint = (
            f"it is in {remote.folder}; materialise again and it goes up, nothing is trained anew"
        )
        raise StorageError(message, hint=hint) from error


class Sender:
    """What of a run folder is in the bucket, and the thread that sends the rest."""

    def __init__(self, remote: "Mirror", say: Say, keep: int, every: int | None) -> None:
        self.say, self.keep, self.every = say, keep, every
        self.remote = remote
        self._ended = threading.Event()
        self._there: dict[int, bytes] = {}
        """Step -> record, of checkpoints that are in the bucket as they are here."""
        self._damaged: dict[int, bytes] = {}
        self._files: dict[str, tuple[int, int]] = {}
        """Other files in the bucket -> time and size when they were sent."""
        self._sent_at = 0.0
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="upload", daemon=True)

    def start(self) -> None:
        """Begin to look at the folder."""
        shutil.rmtree(self.remote.folder / "checkpoints" / HELD, ignore_errors=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread: what it is sending goes up, what it waits for does not."""
        self._ended.set()
        self._thread.join()

    def rest(self, attempts: int | None = None) -> None:
        """Send what is not there yet, asking the store so often; raises where it cannot."""
        store = self.remote.store
        if attempts is not None:
            retry = dataclasses.replace(store.retry, attempts=attempts)
            store = dataclasses.replace(store, retry=retry)
        remote = dataclasses.replace(self.remote, store=store)
        self._files.clear()  # a run that was deleted in the bucket meanwhile is there again
        while self._round(remote):
            pass
        self._send_files(remote, result=True)

    def _run(self) -> None:
        """The thread. Its waits for the store end when the run does."""
        retry = dataclasses.replace(self.remote.store.retry, sleep=self._sleep)
        store = dataclasses.replace(self.remote.store, retry=retry)
        remote = dataclasses.replace(self.remote, store=store)
        while not self._ended.wait(LOOK_SECONDS):
            try:
                while self._round(remote) and not self._ended.is_set():
                    pass
            except FAILURES as error:
                self._complain(sentence(error))
            else:
                self._complain("")

    def _sleep(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def _complain(self, text: str) -> None:
        """Say once that the bucket is behind, and once that it is not any more."""
        if bool(text) != bool(self._complaint) and not self._ended.is_set():
            url = self.remote.store.url
            self.say(f"upload to {url} waits, training goes on: {text}" if text
                     else f"upload to {url} goes on")  # fmt: skip
        self._complaint = text

    def _round(self, remote: "Mirror") -> bool:
        """Send the newest checkpoint that is not there, or files; whether there may be more."""
        path = self._next()
        if path is None:
            if time.monotonic() - self._sent_at > FILES_SECONDS:
                self._send_files(remote)
            return False
        with held(path) as folder:
            if folder is None:  # gone meanwhile
                return True
            record = (folder / CHECKPOINT).read_bytes()
            if (why := fault_of(folder)) is not None:
                self._damaged[step_of(path)] = record
                self.say(f"{path.name} is not sent: {why}")
                return True
            self._send_files(remote)
            send_checkpoint(remote.below(f"checkpoints/{path.name}", folder))
        self._there[step_of(path)] = record
        self._tidy(remote)
        return True

    def _next(self) -> Path | None:
        """The newest checkpoint of the folder that is not in the bucket as it is here."""
        for path in complete_steps(self.remote.folder / "checkpoints"):
            step = step_of(path)
            with contextlib.suppress(OSError):  # gone, or without a record: it does not count
                record = (path / CHECKPOINT).read_bytes()
                if record not in (self._there.get(step), self._damaged.get(step)):
                    return path
        return None

    def _tidy(self, remote: "Mirror") -> None:
        """Point at the newest; remove what is not kept, and newer ones of a history taken back."""
        there = steps_in(remote)
        here = [step_of(path) for path in complete_steps(remote.folder / "checkpoints")]
        valid = [step for step in there if step <= max(here, default=there[0])]
        if valid:
            remote.store.write(f"checkpoints/{LATEST}", f"step-{valid[0]}\n".encode())
        for step in set(there) - kept(valid, self.keep, self.every):
            drop(remote.below(f"checkpoints/step-{step}"))
            self._there.pop(step, None)

    def _send_files(self, remote: "Mirror", *, result: bool = False) -> None:
        """Send the files beside the checkpoints that changed; `result.json` last, at the end."""
        self._sent_at = time.monotonic()
        for key in files_beside(remote.folder):
            if key == RESULT and not result:
                continue
            with contextlib.suppress(FileNotFoundError):
                found = (remote.folder / key).stat()
                state = (found.st_mtime_ns, found.st_size)
                if self._files.get(key) != state:
                    remote.send(key)
                    self._files[key] = state
        if (remote.folder / RECORD).exists():
            (remote.folder / SENT).touch()


def sentence(error: Exception) -> str:
    """An error without its hint."""
    return str(error).partition("\nhint: ")[0]


def files_beside(folder: Path) -> list[str]:
    """Files of a run that are no checkpoint, below its folder, by key; `result.json` last."""
    paths = [*folder.glob("[!.]*"), *folder.glob("spikes/[!.]*")]
    keys = [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
    return sorted(keys, key=lambda key: (key == RESULT, key != RECORD, key))


@contextlib.contextmanager
def held(path: Path) -> Iterator[Path | None]:
    """A checkpoint that stays while it is sent, by hard links; None where it is gone already.

    Where the file system has no links it is the checkpoint itself.
    """
    folder = path.parent / HELD / path.name
    shutil.rmtree(folder, ignore_errors=True)
    try:
        shutil.copytree(path, folder, copy_function=os.link)
    except (OSError, shutil.Error):
        shutil.rmtree(folder, ignore_errors=True)
        yield path if path.exists() else None
        return
    try:
        yield folder
    finally:
        shutil.rmtree(folder.parent, ignore_errors=True)
