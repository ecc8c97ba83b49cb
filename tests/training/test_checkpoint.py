from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.training.miniature import write_run
from training.checkpoint import Checkpoints
from training.errors import TrainingError
from training.shards import read_sidecar
from training.verify import LATEST, fault_of, find


def trained(trainer: Any, steps: int) -> Any:
    for _ in range(steps):
        trainer.train_step(False)
        trainer.advance()
    return trainer


@pytest.mark.shared
def test_a_checkpoint_without_metadata_is_skipped_with_the_reason(
    shared: Path, tmp_path: Path
) -> None:
    shutil.copytree(shared / "cases/checkpoints/no-metadata", tmp_path / "c")
    found = find(tmp_path / "c")
    assert found.step == 10
    (why,) = found.skipped
    assert "step-20" in why
    assert ".metadata is absent" in why


@pytest.mark.shared
def test_an_unfinished_save_neither_counts_nor_purges(shared: Path, tmp_path: Path) -> None:
    case = json.loads((shared / "cases/checkpoints/async-purge.json").read_text())
    assert case["keep_latest"] == 1
    folder = tmp_path / "c"
    (folder / "step-1000.tmp").mkdir(parents=True)
    (folder / "step-1000.tmp" / "__0_0.distcp").write_bytes(b"half")
    good = folder / "step-500"
    good.mkdir()
    (good / "__0_0.distcp").write_bytes(b"whole")
    (good / ".metadata").write_bytes(b"m")
    (folder / LATEST).write_text("step-500\n")
    assert find(folder).step == 500
    assert (folder / LATEST).read_text() == "step-500\n"


def test_a_saved_checkpoint_is_verified_pointed_at_and_loaded_again(
    tmp_path: Path, trainer_of: Any
) -> None:
    trainer = trained(trainer_of(write_run(tmp_path, keep_checkpoints=2)), 1)
    trainer.skipped = [1]
    trainer.save()
    folder = trainer.checkpoints.folder
    assert find(folder).step == 1
    assert (folder / LATEST).read_text() == "step-1\n"
    again = trainer_of(write_run(tmp_path))
    assert again.resume() == ["resumed from step-1"]
    assert (again.step, again.tokens, again.skipped) == (1, 128, [1])
    again.step = 2
    again.save()
    assert again.saved["identity"] == trainer.saved["identity"], "equal tensors, equal identity"
    trained(again, 1).save()
    assert again.saved["identity"] != trainer.saved["identity"]
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-1", "step-2", "step-3"]
    trained(trainer, 3).save()
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-3", "step-4"]


def test_a_flipped_byte_a_missing_and_a_cut_file_do_not_count(
    tmp_path: Path, trainer_of: Any
) -> None:
    trainer = trainer_of(write_run(tmp_path))
    for _ in range(4):
        trained(trainer, 1).save()
    folder = trainer.checkpoints.folder
    (step,) = [p for p in folder.glob("step-*") if p.name == "step-4"]
    tensors = next(step.glob("*.distcp"))
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(data)
    assert str(fault_of(step)).endswith("has another checksum than when it was written")
    (folder / "step-3" / ".metadata").unlink()
    found = find(folder)
    assert found.step == 2
    assert [line.split(":")[0] for line in found.skipped] == [
        "step-4 was skipped",
        "step-3 was skipped",
    ]
    assert ".metadata is absent" in found.skipped[1]
    again = trainer_of(write_run(tmp_path))
    told = again.resume()
    assert told[-1] == "resumed from step-2"
    trained(again, 1).save()
    assert find(folder).step == 3, "the damaged one of the same step is replaced"
    assert not (folder / "step-4").exists(), "and the damaged newer one is gone"
    next((folder / "step-3").glob("*.distcp")).write_bytes(b"short")
    assert "bytes, not" in str(fault_of(folder / "step-3"))


def test_other_data_or_another_tokenizer_is_refused(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trained(trainer_of(write_run(tmp_path)), 1)
    trainer.save()
    other = Checkpoints(
        trainer.checkpoints.folder,
        trainer.world,
        keep=1,
        stamps=trainer.checkpoints.stamps | {"tokenizer": "0" * 64},
    )
    path = other.newest().path
    assert path is not None
    with pytest.raises(TrainingError, match="made with another tokenizer"):
        other.load(path, trainer.model, trainer.optimizer)


def test_a_newer_plan_is_refused_and_the_one_to_go_on_with_is_named(
    tmp_path: Path, trainer_of: Any
) -> None:
    run = write_run(tmp_path, shards=[], plan="mixture/plan.json")
    place = tmp_path / "mixture"
    place.mkdir()
    shards = [
        {"path": f"shards/{p.name.removesuffix('.bin')}", "source": p.name.split("-")[0],
         "checksums": read_sidecar(p)["checksums"]}
        for p in sorted((tmp_path / "shards").glob("*.bin"))
    ]  # fmt: skip

    def plan(name: str, web: float) -> str:
        phases = [{"until_tokens": 10_000, "weights": {"web": web, "code": 1 - web}}]
        text = json.dumps({"shards": shards, "phases": phases})
        (place / name).write_text(text)
        return text

    (place / "plan.json").write_text(plan("plan-1111.json", 0.5))
    trained(trainer_of(run), 1).save()
    (place / "plan.json").write_text(plan("plan-2222.json", 0.7))
    with pytest.raises(TrainingError, match="another plan") as caught:
        trainer_of(run).resume()
    assert "`plan: mixture/plan-1111.json`" in str(caught.value.hint)
    run.write_text(run.read_text().replace("mixture/plan.json", "mixture/plan-1111.json"))
    assert trainer_of(run).resume() == ["resumed from step-1"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trained(trainer_of(write_run(tmp_path)), 1)
    trainer.save()
    trained(trainer, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))  # no file may be longer
    try:
        with pytest.raises(
            TrainingError, match=r"step-2 could not be saved: .*too large"
        ) as caught:
            trainer.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "free disk space" in str(caught.value.hint)
    assert find(trainer.checkpoints.folder).step == 1
    trainer.save()
    assert find(trainer.checkpoints.folder).step == 2


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trained(trainer_of(write_run(tmp_path)), 1)
    trainer.checkpoints.folder = Path("/dev/null/checkpoints")
    with pytest.raises(TrainingError, match="Not a directory"):
        trainer.save()


def test_training_goes_on_from_a_parent(tmp_path: Path, trainer_of: Any) -> None:
    first = trained(trainer_of(write_run(tmp_path)), 2)
    first.save()
    child = trainer_of(write_run(tmp_path, "child", parent="mini@latest"))
    ours, theirs = first.model.state_dict(), child.model.state_dict()
    assert all((ours[n].full_tensor() == theirs[n].full_tensor()).all() for n in ours)
    assert child.resume() == ["started from mini@latest"]
    with pytest.raises(TrainingError, match="no such checkpoint"):
        trainer_of(write_run(tmp_path, "orphan", parent="mini@7"))
