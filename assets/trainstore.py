"""Training with a bucket as storage root: a folder for what a run reads and makes, which goes back.

Training maps token shards and writes checkpoints, so it needs a folder. For a bucket that is a
mirror below `storage.scratch` with the same paths. Shards and checkpoints are verified by their
checksums on the way; checkpoints go up while training runs. Where the root is a folder already,
nothing is copied.

One machine at a time trains a run: nothing here keeps a second one from doing it too, and then the
newest checkpoint wins.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assets.traininputs import PINS, RunInputs
from assets.trainrun import Say, bring_run, relocate
from assets.trainsend import sending
from pipeline.config.storage import StorageConfig
from pipeline.errors import UsageError
from pipeline.mill import Mill
from training.config import RunConfig, load_run
from training.verify import LATEST

if TYPE_CHECKING:
    from resources.mirror import Mirror


@dataclass(frozen=True)
class TrainStore:
    """A storage root as a folder of this machine."""

    folder: Path
    mirror: "Mirror | None"
    """Set where the root is a bucket, which `folder` then mirrors."""
    say: Say

    def run_file(self, name: str) -> Path:
        """Where the run file is, once it was brought."""
        return self.folder / "runs" / f"{name}.yaml"

    def bring(self, name: str, *, shards: bool = True) -> RunConfig:
        """Make a run ready here: what it reads, and its newest good checkpoint if it is not here.

        `shards`: the tokens too. Raises UsageError where the bucket lacks what the run file names,
        RunConfigError where the file is wrong.
        """
        if self.mirror is None:
            return load_run(self.run_file(name))
        RunInputs(self.mirror).bring(name, shards=shards)
        run = load_run(self.run_file(name))
        if run.parent and run.parent_root == self.folder / "checkpoints":
            parent, _, step = run.parent.partition("@")
            self._bring_run(parent, run.parent_root / parent, None if step == LATEST else int(step))
        self._bring_run(name, run.out)
        relocate(run)
        return run

    def _bring_run(self, name: str, out: Path, step: int | None = None) -> None:
        assert self.mirror is not None
        bring_run(self.mirror.below(f"checkpoints/{name}", out), self.say, step)

    def send_pins(self, run: RunConfig) -> None:
        """Upload the names of the manifests that a run reads, before it starts."""
        if self.mirror is not None:
            self.mirror.below(f"checkpoints/{run.name}", run.out).send(PINS)

    @contextlib.contextmanager
    def sending(self, run: RunConfig) -> Iterator[None]:
        """While what is inside trains, upload what it makes; the rest when it ended or failed.

        It never waits for the bucket. Raises StorageError where it ended well and the bucket still
        lacks its newest checkpoint; where it failed, its own error counts.
        """
        if self.mirror is None:
            yield
            return
        remote = self.mirror.below(f"checkpoints/{run.name}", run.out)
        with sending(remote, self.say, run.keep_checkpoints, run.keep_every):
            yield

    def send(self, prefix: str, last: str) -> None:
        """Upload a folder of files in place of what was there; the file called `last` goes last."""
        if self.mirror is None:
            return
        remote = self.mirror.below(prefix)
        names = {p.name for p in remote.folder.glob("[!.]*") if p.is_file()}
        for name in sorted(names, key=lambda name: (name == last, name)):
            remote.send(name)
        remote.store.delete([i.key for i in remote.store.list() if i.key not in names])

    def address(self, path: Path | str) -> str:
        """Where people find a file: in the bucket, if there is one."""
        path = Path(path)
        if self.mirror is None or not path.is_relative_to(self.folder):
            return str(path)
        return f"{self.mirror.store.url}/{path.relative_to(self.folder).as_posix()}"


def open_trainstore(mill: Mill, say: Say) -> TrainStore:
    """The root of a mill as a folder. Raises UsageError where it can only be read."""
    url = mill.root.url
    if "://" not in url:
        return TrainStore(Path(url), None, say)
    if not url.startswith("s3://"):
        message = f"training writes its checkpoints to the storage root, and {url} is read only"
        raise UsageError(message, hint="use a folder or s3://bucket/prefix as storage.root")
    from resources.mirror import Mirror
    from resources.storage_s3 import S3Store

    assert isinstance(mill.root, S3Store)
    folder = mirror_folder(url, mill.config.storage)
    return TrainStore(folder, Mirror(mill.root, folder), say)


def mirror_folder(url: str, storage: StorageConfig) -> Path:
    """The folder of this machine for a bucket's files: the same for the same server and root."""
    server = storage.endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3")
    server = server or os.environ.get("AWS_ENDPOINT_URL", "")
    base = Path(storage.scratch).absolute() if storage.scratch else Path.home() / ".cache/gristmill"
    return base / f"training-{hashlib.sha256(f'{server} {url}'.encode()).hexdigest()[:16]}"
