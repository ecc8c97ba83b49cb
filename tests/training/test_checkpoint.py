from __future__ import annotations

import contextlib
import json
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.miniature import lines, program, torchrun, write_run
from training.checkpoint import Checkpoints
from training.errors import TrainingError
from training.saving.identity import identity_of
from training.saving.state import state_of
from training.shards import read_sidecar
from training.verify import LATEST, fault_of, find, kept


def trained(trainer: Any, steps: int) -> Any:
    for _ in range(steps):
        trainer.train_step(False)
        trainer.advance()
    return trainer


def save(trainer: Any) -> Any:
    """Save, and wait until it is there."""
    trainer.save()
    trainer.settle()
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
    save(trainer)
    folder = trainer.checkpoints.folder
    assert find(folder).step == 1
    assert (folder / LATEST).read_text() == "step-1\n"
    again = trainer_of(write_run(tmp_path))
    assert again.resume() == ["resumed from step-1"]
    assert (again.step, again.tokens, again.skipped) == (1, 128, [1])
    again.step = 2
    save(again)
    assert again.saved["identity"] == trainer.saved["identity"], "equal tensors, equal identity"
    save(trained(again, 1))
    assert again.saved["identity"] != trainer.saved["identity"]
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-1", "step-2", "step-3"]
    save(trained(trainer, 3))
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-3", "step-4"]


def test_a_flipped_byte_a_missing_and_a_cut_file_do_not_count(
    tmp_path: Path, trainer_of: Any
) -> None:
    trainer = trainer_of(write_run(tmp_path))
    for _ in range(4):
        save(trained(trainer, 1))
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
    (folder / "step-2" / ".metadata").unlink()
    with pytest.raises(TrainingError, match="is good: step-4 was skipped"):
        trainer_of(write_run(tmp_path)).resume()
    save(trained(again, 1))
    assert find(folder).step == 3, "the damaged one of the same step is replaced"
    assert not (folder / "step-4").exists(), "and the damaged newer one is gone"
    next((folder / "step-3").glob("*.distcp")).write_bytes(b"short")
    assert "bytes, not" in str(fault_of(folder / "step-3"))


def test_other_data_or_another_tokenizer_is_refused(tmp_path: Path, trainer_of: Any) -> None:
    trainer = save(trained(trainer_of(write_run(tmp_path)), 1))
    other = Checkpoints(
        trainer.checkpoints.folder,
        trainer.world,
        keep=1,
        stamps=trainer.checkpoints.stamps | {"tokenizer": "0" * 64},
    )
    path = other.newest().path
    assert path is not None
    with pytest.raises(TrainingError, match="made with another tokenizer") as caught:
        other.load(path, trainer.model, trainer.optimizer, {"data"})
    assert "accept_change: [tokenizer]" in str(caught.value.hint)
    record = other.load(path, trainer.model, trainer.optimizer, {"tokenizer"})
    assert record["step"] == 1


def test_a_checkpoint_of_another_recipe_is_refused_before_loading(
    tmp_path: Path, trainer_of: Any
) -> None:
    trainer = save(trained(trainer_of(write_run(tmp_path)), 1))
    path = trainer.checkpoints.newest().path
    model = {"layers": 3, "dim": 32, "heads": 2, "kv_heads": 1, "ffn": 96}
    other = trainer_of(write_run(tmp_path, "other", model=model))
    before = identity_of(state_of(other.model, other.optimizer))
    with pytest.raises(TrainingError, match="is of another model") as caught:
        other.checkpoints.load(path, other.model, other.optimizer, {"configuration"})
    assert "gate_proj.weight is [64, 32] in it, [96, 32] here" in str(caught.value)
    assert "more" in str(caught.value)
    assert identity_of(state_of(other.model, other.optimizer)) == before, "nothing was loaded"
    with pytest.raises(TrainingError, match="is of another model"):
        trainer_of(write_run(tmp_path, "child", model=model, parent="mini@1")).resume()


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
    save(trained(trainer_of(run), 1))
    (place / "plan.json").write_text(plan("plan-2222.json", 0.7))
    with pytest.raises(TrainingError, match="another plan") as caught:
        trainer_of(run).resume()
    assert "`plan: mixture/plan-1111.json`" in str(caught.value.hint)
    run.write_text(run.read_text().replace("mixture/plan.json", "mixture/plan-1111.json"))
    assert trainer_of(run).resume() == ["resumed from step-1"]


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path, trainer_of: Any) -> None:
    trainer = save(trained(trainer_of(write_run(tmp_path)), 1))
    trained(trainer, 1)
    with (
        full_disk(),
        pytest.raises(TrainingError, match=r"step-2 could not be saved: .*too large") as caught,
    ):
        save(trainer)
    assert "free disk space" in str(caught.value.hint)
    folder = trainer.checkpoints.folder
    assert find(folder).step == 1
    assert not list(folder.glob("*.tmp")), "a full disk needs the room"
    save(trainer)
    assert find(folder).step == 2


def test_so_many_saves_in_a_row_may_fail(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trained(trainer_of(write_run(tmp_path, max_failed_saves=1)), 1)
    with full_disk():
        assert trainer.save() == []
        trained(trainer, 1)
        (told,) = trainer.save()
        assert "step-1 could not be saved" in told, "said at the next poll, and training goes on"
        with pytest.raises(TrainingError, match="step-2 could not be saved"):
            trainer.settle()
    save(trainer)
    with full_disk():
        trainer.save()
        trainer.step += 1
        assert len(trainer.save()) == 1, "a good one in between: counted anew"
        with pytest.raises(TrainingError):
            trainer.settle()


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """No file may be longer than a small checkpoint's tensors."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_training_goes_on_while_a_save_is_written(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trained(trainer_of(write_run(tmp_path)), 2)
    before = identity_of(state_of(trainer.model, trainer.optimizer))
    trainer.save()
    assert not list(trainer.checkpoints.folder.glob("step-2")), "not there when it returns"
    trained(trainer, 1)
    assert identity_of(state_of(trainer.model, trainer.optimizer)) != before
    (saved,) = trainer.checkpoints.wait()
    assert (saved.step, saved.identity) == (2, before), "the step that was asked for"
    assert 0 < saved.stall_seconds <= saved.seconds
    assert trainer.checkpoints.stall_seconds >= saved.stall_seconds
    assert trainer.checkpoints.finished() == []


def test_state_of_the_guards_and_the_generators_come_back(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trained(trainer_of(write_run(tmp_path)), 1)
    points = trainer.checkpoints
    ring = torch.arange(5.0)
    torch.manual_seed(3)
    points.save(trainer.model, trainer.optimizer, 1, {"a": [1, 2]}, {"losses": ring})
    expected = torch.rand(4)
    ring.zero_()
    points.wait()
    assert (torch.rand(4) != expected).any()
    path = points.newest().path
    record = points.load(path, trainer.model, trainer.optimizer)
    assert record["extra"]["losses"].tolist() == [0, 1, 2, 3, 4], "as it was when save returned"
    assert record["progress"] == {"a": [1, 2]}
    assert torch.rand(4).tolist() == expected.tolist()
    other = trained(trainer_of(write_run(tmp_path, "other")), 1)
    save(other)
    assert other.saved["identity"] == record["identity"], "neither is part of the identity"


def test_the_newest_and_every_so_many_stay(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trainer_of(write_run(tmp_path, keep_checkpoints=1, keep_every=2))
    for _ in range(5):
        save(trained(trainer, 1))
    folder = trainer.checkpoints.folder
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-2", "step-4", "step-5"]
    assert kept([1, 2, 3, 4, 5], 2, None) == {4, 5}
    found = trainer.checkpoints.newest(until=4)
    assert (found.step, found.skipped) == (4, [])
    assert trainer.checkpoints.newest(until=1).path is None
    trainer.checkpoints.discard_after(2)
    assert sorted(p.name for p in folder.glob("step-*")) == ["step-2"]
    assert (folder / LATEST).read_text() == "step-2\n"


def test_an_error_that_nobody_expected_ends_training(
    tmp_path: Path, trainer_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trained(trainer_of(write_run(tmp_path)), 1)
    monkeypatch.setattr("training.checkpoint.commit", lambda *_: 1 / 0)
    trainer.save()
    with pytest.raises(ZeroDivisionError):
        trainer.settle()


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path, trainer_of: Any) -> None:
    trainer = trained(trainer_of(write_run(tmp_path)), 1)
    trainer.checkpoints.folder = Path("/dev/null/checkpoints")
    with pytest.raises(TrainingError, match="Not a directory"):
        save(trainer)


def test_training_goes_on_from_a_parent(tmp_path: Path, trainer_of: Any) -> None:
    first = save(trained(trainer_of(write_run(tmp_path)), 2))
    child = trainer_of(write_run(tmp_path, "child", parent="mini@latest"))
    told = child.resume()
    ours, theirs = first.model.state_dict(), child.model.state_dict()
    assert all((ours[n].full_tensor() == theirs[n].full_tensor()).all() for n in ours)
    assert told == ["started from parent mini@latest"]
    with pytest.raises(TrainingError, match="no such checkpoint"):
        trainer_of(write_run(tmp_path, "orphan", parent="mini@7")).resume()


@pytest.mark.slow
@pytest.mark.long
def test_a_run_goes_on_at_any_number_of_processes(tmp_path: Path) -> None:
    """1 -> 2 -> 4 -> 1 processes, two steps each, against eight steps in one process."""
    keys: dict[str, Any] = {"steps": 8, "eval_every": 0, "checkpoint_every": 100}
    whole = write_run(tmp_path, "whole", **keys)
    assert torchrun(whole, 1).returncode == 0
    for world, last in ((1, 2), (2, 4), (4, 6), (1, None)):
        stop = {"stop_after": last} if last else {}
        done = torchrun(write_run(tmp_path, "parts", **keys, **stop), world)
        assert done.returncode == 0, done.stderr
        if last != 2:
            assert f"resumed from step-{last - 2 if last else 6}" in done.stdout
    parts = whole.with_name("parts.yaml")
    losses = [line["loss"] for line in lines(parts)]
    assert losses == pytest.approx([line["loss"] for line in lines(whole)], rel=1e-5)
    step = find(tmp_path / "checkpoints/parts/checkpoints").path
    assert step is not None
    files = sorted((tmp_path / "checkpoints/parts/checkpoints/step-6").glob("*.distcp"))
    assert len(files) == 4, "every process wrote its own"
    files[2].unlink()
    shutil.rmtree(step)
    found = find(step.parent)
    assert found.step == 4
    assert found.skipped == ["step-6 was skipped: __2_0.distcp is absent"]


@pytest.mark.slow
def test_what_the_disk_refuses_one_rank_all_ranks_learn_at_the_same_step(tmp_path: Path) -> None:
    run = write_run(tmp_path, max_failed_saves=1, steps=100_000)
    done = torchrun(run, 2, module="tests.training.checkpoint_rank")
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(run.with_suffix(f".{rank}.json").read_text()) for rank in (0, 1))
    assert first == second, "the same at the same polls"
    (told,) = first["told"]
    assert told.endswith("step-2 could not be saved: File too large; training goes on")
    assert "could not be saved: File too large" in first["error"], "no second one in a row"
    assert first["newest"] == first["first"]["step"] == 1
    assert first["last"]["step"] == first["step"] > 2


@pytest.mark.faults
@pytest.mark.shared
def test_killed_while_a_save_is_under_way_the_one_before_counts(
    shared: Path, tmp_path: Path
) -> None:
    case = json.loads((shared / "cases/checkpoints/async-purge.json").read_text())
    keys = {"keep_checkpoints": case["keep_latest"], "checkpoint_every": 2, "eval_every": 0}
    run = write_run(tmp_path, **keys)
    killed = program(run, GRISTMILL_FAULT="training.checkpoint.written:2")
    assert killed.returncode == -signal.SIGKILL
    folder = tmp_path / "checkpoints/mini/checkpoints"
    assert sorted(p.name for p in folder.iterdir()) == [LATEST, "step-2", "step-4.tmp"]
    assert (folder / LATEST).read_text() == "step-2\n"
    assert find(folder).step == 2
    assert "resumed from step-2" in program(run).stdout
    assert sorted(p.name for p in folder.iterdir()) == [LATEST, "step-10"]
