from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict_saver import save

from tests.training.miniature import write_run
from training.saving.identity import batches, digests_in, identity_from, identity_of
from training.saving.state import state_of
from training.verify import shares

GOLDEN = "d53740a5487d45ef2c282c909f1dd28c88eeecce42ebcc85f7aa6677a650c368"


def example() -> dict[str, Any]:
    return {
        "model": {
            "norm.weight": torch.tensor([1.0, -2.5], dtype=torch.bfloat16),
            "layers.0.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        },
        "optim": {"state": {"norm.weight": {"step": torch.tensor(3.0)}}},
        "extra": {"losses": torch.zeros(4)},
    }


def test_golden_identity() -> None:
    assert identity_of(example()) == GOLDEN
    other = example()
    other["extra"]["losses"] += 1
    assert identity_of(other) == GOLDEN, "only weights and moments count"
    other["model"]["layers.0.weight"][1, 2] = 5.0000005
    assert identity_of(other) != GOLDEN


def test_files_have_the_identity_of_the_tensors_however_many_ranks_read(
    tmp_path: Path, world: Any
) -> None:
    save(example(), checkpoint_id=tmp_path)
    for size in (1, 2, 5):
        parts = [digests_in(tmp_path, rank, size) for rank in range(size)]
        together = {name: one for part in parts for name, one in part.items()}
        assert sum(len(part) for part in parts) == len(together) == 3
        assert identity_from(together) == GOLDEN


def test_the_framework_s_own_state_has_the_same_names(tmp_path: Path, trainer_of: Any) -> None:
    from torch.distributed.checkpoint.state_dict import get_state_dict

    trainer = trainer_of(write_run(tmp_path))
    trainer.train_step(False)
    weights, moments = get_state_dict(trainer.model, trainer.optimizer)
    theirs = identity_of({"model": weights, "optim": moments})
    assert identity_of(state_of(trainer.model, trainer.optimizer)) == theirs


def test_tensors_are_read_in_lists_of_bounded_size() -> None:
    sizes = {"a": 200 << 20, "b": 100 << 20, "c": 100 << 20, "d": 300 << 20}
    assert list(batches("abcd", sizes)) == [["a"], ["b", "c"], ["d"]]
    assert list(batches([], sizes)) == []


def test_shares_are_about_equal() -> None:
    assert shares({"a": 5, "b": 3, "c": 3, "d": 1}, 2) == [["a", "d"], ["b", "c"]]
    assert shares({"a": 5}, 3) == [["a"], [], []]
