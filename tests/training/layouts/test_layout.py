from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.training.miniature import ROOT, write_run
from training.config import load_run
from training.errors import RunConfigError
from training.layouts.layout import Layout, check_layout
from training.settings.parallel import ParallelConfig

MODEL: dict[str, Any] = {"layers": 4, "dim": 32, "heads": 4, "kv_heads": 2, "ffn": 96}
MOE: dict[str, Any] = MODEL | {"moe": {"n_experts": 6, "top_k": 2, "expert_ffn": 32}}


def layout(tmp_path: Path, world: int, vocab: int | None = None, **keys: Any) -> Layout:
    path = write_run(tmp_path, **({"model": MODEL, "global_batch": 8} | keys))
    return check_layout(load_run(path), world, vocab)


def test_what_is_left_of_the_processes_shards() -> None:
    found = Layout.of(ParallelConfig(pipeline=2, replicate=2, tensor=2, expert=4), 64)
    assert (found.shard, found.data_size) == (8, 16)
    assert str(found) == "pipeline 2, replicate 2, shard 8, tensor 2, expert 4"
    assert Layout.of(ParallelConfig(), 1).data_size == 1


@pytest.mark.parametrize(
    ("world", "fits", "breaks", "named"),
    [
        (4, {"parallel": {"tensor": 2}}, {"parallel": {"tensor": 3}}, "4 processes.*tensor 3"),
        (4, {"parallel": {"tensor": 2}}, {"parallel": {"tensor": 4}}, "kv_heads 2.*tensor 4"),
        (
            2,
            {"parallel": {"tensor": 2}},
            {"parallel": {"tensor": 2}, "model": MODEL | {"ffn": 97}},
            "ffn 97.*tensor 2",
        ),
        (
            2,
            {"parallel": {"tensor": 2}, "context": 32},
            {"parallel": {"tensor": 2}, "context": 33},
            "context 33.*tensor 2",
        ),
        (
            4,
            {"parallel": {"pipeline": 4}},
            {"parallel": {"pipeline": 4}, "model": MODEL | {"layers": 3}},
            "pipeline 4 is more than model.layers 3",
        ),
        (
            2,
            {"parallel": {"pipeline": 2}},
            {"parallel": {"pipeline": 2}, "model": MODEL | {"tied_embeddings": True}},
            "pipeline 2.*tied_embeddings",
        ),
        (
            2,
            {"parallel": {"expert": 2}, "model": MOE},
            {"parallel": {"expert": 2}},
            "expert is 2, and the model has no experts",
        ),
        (
            4,
            {"parallel": {"expert": 2}, "model": MOE},
            {"parallel": {"expert": 4}, "model": MOE},
            "n_experts 6.*expert 4",
        ),
        (
            4,
            {"parallel": {"expert": 2, "replicate": 2}, "model": MOE},
            {"parallel": {"expert": 4, "replicate": 2}, "model": MOE},
            "expert 4 must divide the 2",
        ),
        (
            2,
            {"parallel": {"tensor": 2}, "model": MOE},
            {"parallel": {"tensor": 2}, "model": MODEL | {"moe": MOE["moe"] | {"aux_loss": 1e-4}}},
            "tensor 2.*aux_loss",
        ),
        (
            1,
            {"parallel": {"fp8": True}, "dtype": "bfloat16"},
            {"parallel": {"fp8": True}},
            "fp8 does not go with dtype float32",
        ),
        (
            1,
            {"parallel": {"compile": "on"}, "dtype": "bfloat16", "model": MOE},
            {"parallel": {"compile": "on"}, "dtype": "float32", "model": MOE},
            "compile 'on' does not go with model.moe in float32",
        ),
        (
            2,
            {"global_batch": 6, "parallel": {"pipeline": 2}},
            {"global_batch": 7},
            "global_batch 7 cannot be shared by 2",
        ),
    ],
)
def test_degrees_that_do_not_fit_are_refused(
    tmp_path: Path, world: int, fits: dict[str, Any], breaks: dict[str, Any], named: str
) -> None:
    layout(tmp_path, world, **fits)
    with pytest.raises(RunConfigError, match=named) as refused:
        layout(tmp_path, world, **breaks)
    assert refused.value.hint, "and says what to do"


def test_the_vocabulary_is_shared_too(tmp_path: Path) -> None:
    assert layout(tmp_path, 2, 300, parallel={"tensor": 2}).tensor == 2
    with pytest.raises(RunConfigError, match="vocabulary 301 cannot be shared"):
        layout(tmp_path, 2, 301, parallel={"tensor": 2})


def test_only_data_ranks_share_the_global_batch(tmp_path: Path) -> None:
    assert layout(tmp_path, 8, global_batch=2, parallel={"tensor": 2, "pipeline": 2}).data_size == 2


def test_the_check_needs_no_torch() -> None:
    code = "import sys, training.layouts.layout, training.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
