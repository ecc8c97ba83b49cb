"""Weights from outside: what fits, and what is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.fsdp import fully_shard

from training.errors import TrainingError
from training.export import exported_tensors, write_tensors
from training.hf_import import load_hf
from training.hf_layout import check_hf, config_json, pieces, shape_of_hf
from training.model import Decoder
from training.settings.model import ModelConfig, MoeConfig
from training.world import World

MIXED = ModelConfig(
    layers=2, dim=32, heads=2, kv_heads=1, ffn=64,
    moe=MoeConfig(n_experts=4, top_k=2, expert_ffn=16),
)  # fmt: skip
DENSE = MIXED.model_copy(update={"moe": None})


def built(config: ModelConfig, seed: int) -> Decoder:
    model = Decoder(config, 60, 16)
    model.init_weights(seed)
    return model


def folder_of(path: Path, config: ModelConfig, **changes: Any) -> Path:
    """A folder in the layout of transformers."""
    path.mkdir(exist_ok=True)
    content = config_json(config, vocab_size=60, context=16, end_id=0) | changes
    (path / "config.json").write_text(json.dumps(content))
    write_tensors(exported_tensors(built(config, 1)), path)
    return path


def test_experts_lie_in_three_matrices_each() -> None:
    names = [p[0] for p in pieces("layers.1.mlp.experts.gate_up_proj", (2, 6, 4))]
    stem = "model.layers.1.mlp.experts"
    assert names == [f"{stem}.{e}.{n}_proj.weight" for e in (0, 1) for n in ("gate", "up")]
    assert pieces("layers.1.mlp.experts.down_proj", (2, 4, 3))[1][:2] == (
        f"{stem}.1.down_proj.weight",
        1,
    )
    assert pieces("lm_head.weight", (5, 4)) == [("lm_head.weight", None, slice(None))]
    assert pieces("norm.weight", (4,))[0][0] == "model.norm.weight"


@pytest.mark.parametrize("config", [DENSE, MIXED])
def test_a_sharded_model_takes_them(tmp_path: Path, world: World, config: ModelConfig) -> None:
    folder = folder_of(tmp_path / "hf", config)
    with torch.device("meta"):
        model = Decoder(config, 60, 16)
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cpu")
    model.init_weights(5)
    load_hf(folder, model)
    tokens = torch.randint(0, 60, (2, 16))
    assert (model(tokens) - built(config, 1)(tokens)).abs().max() < 1e-6


def test_bfloat16_weights_are_read(tmp_path: Path) -> None:
    folder, half = tmp_path / "hf", built(DENSE, 1).to(torch.bfloat16)
    folder.mkdir()
    write_tensors(exported_tensors(half), folder)
    model = built(DENSE, 2)
    load_hf(folder, model)
    assert torch.equal(model.norm.weight, half.norm.weight.float())
    assert torch.equal(model.lm_head.weight, half.lm_head.weight.float())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "gpt2"}, "model_type 'gpt2' is none that can be trained here"),
        ({"attention_bias": True}, "attention_bias is True, and the model here has False"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', and the model here has 'silu'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2}}, "scaled as 'yarn'"),
        ({"norm_topk_prob": False}, "norm_topk_prob is false"),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "a sliding window"),
        ({"sliding_window": 8, "max_window_layers": 1}, "a sliding window"),
        ({"n_shared_experts": None}, "n_shared_experts is None, and must be a number from 1"),
        ({"hidden_size": None}, "hidden_size is None, and must be a number from 1"),
    ],
)
def test_models_that_are_none_of_ours_are_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(TrainingError, match=said):
        shape_of_hf(folder_of(tmp_path / "hf", MIXED, **changes))


def test_a_run_that_differs_is_told_where(tmp_path: Path) -> None:
    folder, nowhere = folder_of(tmp_path / "hf", MIXED), tmp_path / "tokenizer.json"
    check_hf(folder, MIXED, 60, nowhere)
    other = MIXED.model_copy(update={"ffn": 96, "init_std": 0.01})
    with pytest.raises(TrainingError, match=r"model.ffn is 96 here and 64 there"):
        check_hf(folder, other, 60, nowhere)
    assert MIXED.moe is not None
    moe = MIXED.moe.model_copy(update={"n_experts": 8})
    with pytest.raises(TrainingError, match=r"model.moe.n_experts is 8 here and 4 there"):
        check_hf(folder, MIXED.model_copy(update={"moe": moe}), 60, nowhere)
    with pytest.raises(TrainingError, match=r"model.moe is None here"):
        check_hf(folder, DENSE, 60, nowhere)
    with pytest.raises(TrainingError, match=r"model.moe is 'set' here"):
        check_hf(folder_of(tmp_path / "dense", DENSE), MIXED, 60, nowhere)


def test_a_table_may_be_longer_than_the_tokenizer_but_not_mean_other_tokens(
    tmp_path: Path,
) -> None:
    folder = folder_of(tmp_path / "hf", DENSE)
    ours = tmp_path / "tokenizer.json"
    ours.write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}))
    for rows in (59, 61):
        with pytest.raises(TrainingError, match=f"of 60, and the run's tokenizer one of {rows}"):
            check_hf(folder, DENSE, rows, ours)
    (folder / "tokenizer.json").write_text(ours.read_text())
    check_hf(folder, DENSE, 59, ours)
    short = Decoder(DENSE, 59, 16)
    short.init_positions()
    load_hf(folder, short)
    assert torch.equal(short.lm_head.weight, built(DENSE, 1).lm_head.weight[:59])
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 1, "c": 0}}}))
    with pytest.raises(TrainingError, match=r"3 entries of .* and of the run's tokenizer"):
        check_hf(folder, DENSE, 59, ours)


def test_damaged_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"config.json is not there"):
        shape_of_hf(tmp_path)
    with pytest.raises(TrainingError, match=r"holds neither model.safetensors nor"):
        load_hf(tmp_path, built(DENSE, 0))
    folder = folder_of(tmp_path / "hf", DENSE)
    with pytest.raises(TrainingError, match=r"layers.1.mlp.gate.weight|lacks the tensor"):
        load_hf(folder, built(MIXED, 0))
    wide = built(DENSE.model_copy(update={"ffn": 96}), 0)
    with pytest.raises(TrainingError, match=r"gate_proj.weight is \[64, 32\], the run's model has"):
        load_hf(folder, wide)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(TrainingError, match=r"model.safetensors cannot be read"):
        load_hf(folder, built(DENSE, 0))
    (folder / "config.json").write_text("{")
    with pytest.raises(TrainingError, match=r"config.json is damaged"):
        shape_of_hf(folder)


def test_published_configurations_are_understood(tmp_path: Path) -> None:
    llama = {
        "model_type": "llama", "vocab_size": 9, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
        "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "pretraining_tp": 1,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(llama))
    model = ModelConfig(**shape_of_hf(tmp_path))
    assert (model.head_dim, model.qk_norm, model.rope_theta) == (128, False, 500_000)
    assert model.rope_scaling is not None
    assert model.rope_scaling.original_context == 8192
    qwen = {
        "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "head_dim": 128,
        "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000, "tie_word_embeddings": True,
        "vocab_size": 151936, "use_sliding_window": False, "hidden_act": "silu",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(qwen))
    model = ModelConfig(**shape_of_hf(tmp_path))
    assert (model.head_size, model.qk_norm, model.tied_embeddings) == (128, True, True)
