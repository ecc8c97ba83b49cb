"""The folder of a training run and its copy in a bucket: what counts there, and the way back.

A checkpoint in the bucket counts once its `checkpoint.json` is there, as in a folder; that file
goes up last and is deleted first. Whoever has the newest good checkpoint, its run goes on. The way
there, while a run trains, is in `assets.trainsend`.
"""

import contextlib
import json
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.errors import DamagedPartError
from training.config import PATHS, RECORD, RunConfig, recorded
from training.errors import TrainingError
from training.spikes.ledger import read_ledger
from training.verify import LATEST, STEP, fault_of, find, read_record, rewinds_of
from training.verify import RECORD as CHECKPOINT

if TYPE_CHECKING:
    from resources.mirror import Mirror

RESULT = "result.json"
SENT = ".sent"
"""In the folder of a run that was in the bucket once."""
Say = Callable[[str], None]


def bring_run(remote: "Mirror", say: Say, step: int | None = None) -> None:
    """Bring the run where the bucket's is newer than the folder's; with `step`, that checkpoint.

    A folder whose run was deleted in the bucket is deleted too: the run starts anew.
    """
    out = remote.folder
    if not remote.store.exists(RECORD):
        if (out / SENT).exists():
            shutil.rmtree(out)
        return
    if step is None:
        here = find(out / "checkpoints").step
        wanted = [n for n in steps_in(remote) if n > here]
    else:
        lacking = fault_of(out / "checkpoints" / f"step-{step}") is not None
        wanted = [n for n in steps_in(remote) if n == step and lacking]
    if wanted or not (out / RECORD).exists():
        for info in remote.store.list():
            if not info.key.startswith("checkpoints/"):
                with contextlib.suppress(FileNotFoundError):
                    remote.bring(info.key)
    ledger = read_ledger(out)
    for number in wanted:
        why, path = bring_checkpoint(remote, number), out / "checkpoints" / f"step-{number}"
        if why is None and step is None and ledger.superseded(number, rewinds_of(path)):
            shutil.rmtree(path)
            why = "a rewind took it back"
        if why is None:
            (path.parent / LATEST).write_text(f"{path.name}\n", encoding="utf-8")
            say(f"step-{number} came from {remote.store.url}")
            break
        say(f"step-{number} of {remote.store.url} was skipped: {why}")


def relocate(run: RunConfig) -> None:
    """Let `run.json`, which another machine may have written, name the places of this one."""
    file = run.out / RECORD
    record = recorded(run.out)
    if record is None:
        return
    now = run.model_dump(mode="json", include={*PATHS, "shards"})
    if record["config"] != record["config"] | now:
        record["config"] |= now
        file.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def steps_in(remote: "Mirror") -> list[int]:
    """Steps of the complete checkpoints of a run in the bucket, newest first."""
    keys = [info.key.split("/") for info in remote.store.list("checkpoints/step-")]
    found = [STEP.fullmatch(key[1]) for key in keys if key[2:] == [CHECKPOINT]]
    return sorted((int(match.group(1)) for match in found if match), reverse=True)


def bring_checkpoint(remote: "Mirror", step: int) -> str | None:
    """Bring a checkpoint of a run, whole and verified, or not at all; returns why not."""
    final = remote.folder / "checkpoints" / f"step-{step}"
    aside = final.with_name(f"{final.name}.tmp")
    files = remote.below(f"checkpoints/{final.name}", aside)
    try:
        files.bring(CHECKPOINT)
        told = read_record(aside)["files"]
        files.bring_verified({name: str(one["checksum"]) for name, one in told.items()})
    except (DamagedPartError, TrainingError) as error:
        shutil.rmtree(aside)
        return error.message
    if final.exists():
        shutil.rmtree(final)
    aside.rename(final)
    return None


def send_checkpoint(remote: "Mirror") -> None:
    """Upload a checkpoint unless it is there; its record, by which it counts, goes last."""
    record = (remote.folder / CHECKPOINT).read_bytes()
    if remote.store.exists(CHECKPOINT):
        if remote.store.read(CHECKPOINT) == record:
            return
        drop(remote)
    for name in read_record(remote.folder)["files"]:
        remote.send(name)
    remote.send(CHECKPOINT)


def drop(remote: "Mirror") -> None:
    """Delete a checkpoint in the bucket, its record first: half a one never counts."""
    remote.store.delete([CHECKPOINT])
    remote.store.delete([info.key for info in remote.store.list()])
