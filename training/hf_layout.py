"""The layout of Qwen3, Llama and Dots1 in `transformers`: config.json and names. No torch.

With QK-norm a dense model is Qwen3, without it Llama; a mixture of experts is Dots1. Our parameter
names are theirs but for the prefix `model.`, and for the experts, which lie there as three matrices
each and here as two stacks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.errors import TrainingError
from training.settings.model import ModelConfig

EXPERTS = re.compile(r"(.*\.experts)\.(gate_up_proj|down_proj)")
REQUIRED = {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size"}
REQUIRED_EXPERTS = {
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "n_shared_experts",
}
Piece = tuple[str, int | None, slice]
"""Name in the folder, number of the expert, rows: the part of our tensor that lies there."""


def pieces(name: str, shape: tuple[int, ...]) -> list[Piece]:
    """Where the parts of our tensor of this name lie in a Hugging Face folder."""
    found = EXPERTS.fullmatch(name)
    if found is None:
        return [(name if name == "lm_head.weight" else f"model.{name}", None, slice(None))]
    prefix, kind = f"model.{found[1]}", found[2]
    if kind == "down_proj":
        return [(f"{prefix}.{e}.down_proj.weight", e, slice(None)) for e in range(shape[0])]
    half = shape[1] // 2
    parts = (("gate_proj", slice(0, half)), ("up_proj", slice(half, None)))
    return [(f"{prefix}.{e}.{n}.weight", e, rows) for e in range(shape[0]) for n, rows in parts]


def config_json(
    m: ModelConfig, *, vocab_size: int, context: int, end_id: int | None
) -> dict[str, Any]:
    """`config.json` of a model in float32."""
    kind = "Dots1" if m.moe else "Qwen3" if m.qk_norm else "Llama"
    rope: dict[str, Any] = {"rope_type": "default"}
    if s := m.rope_scaling:
        rope = {
            "rope_type": "llama3",
            "factor": s.factor,
            "low_freq_factor": s.low,
            "high_freq_factor": s.high,
            "original_max_position_embeddings": s.original_context,
        }
    return {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        "vocab_size": vocab_size,
        "hidden_size": m.dim,
        "intermediate_size": m.ffn,
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "head_dim": m.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": context,
        "rms_norm_eps": m.norm_eps,
        # transformers 5 reads the second, older versions and vLLM the first
        "rope_theta": m.rope_theta,
        "rope_parameters": rope | {"rope_theta": m.rope_theta},
        **({"rope_scaling": rope} if m.rope_scaling else {}),
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": m.init_std,
        "tie_word_embeddings": m.tied_embeddings,
        "bos_token_id": end_id,
        "eos_token_id": end_id,
        "dtype": "float32",
        "torch_dtype": "float32",
    } | _experts_json(m)


def _experts_json(m: ModelConfig) -> dict[str, Any]:
    if m.moe is None:
        return {}
    return {
        "n_routed_experts": m.moe.n_experts,
        "num_experts_per_tok": m.moe.top_k,
        "moe_intermediate_size": m.moe.expert_ffn,
        "n_shared_experts": m.moe.shared,
        "first_k_dense_replace": m.moe.first_dense,
        "routed_scaling_factor": m.moe.scaling,
        "norm_topk_prob": True,
        "n_group": 1,
        "topk_group": 1,
        "sliding_window": None,
        # vLLM reads these three
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
    }


def shape_of_json(config: dict[str, Any], where: str) -> dict[str, Any]:
    """The `model` section of a run file for a model with this `config.json`.

    `where`: what a message calls it. Raises TrainingError where our model cannot be that model.
    """
    kind = config.get("model_type")
    if kind not in ("qwen3", "llama", "dots1"):
        message = f"{where}: model_type {kind!r} is none that can be trained here"
        raise TrainingError(message, hint="qwen3, llama or dots1")
    for key, plain in (
        ("attention_bias", False),
        ("mlp_bias", False),
        ("use_sliding_window", False),
        ("hidden_act", "silu"),
        ("n_group", 1),
        ("moe_layer_freq", 1),
        ("pretraining_tp", 1),
        ("scoring_func", "sigmoid"),
        ("topk_method", "noaux_tc"),
    ):
        if (value := config.get(key)) not in (None, plain):
            message = f"{where}: {key} is {value!r}, and the model here has {plain!r}"
            raise TrainingError(message, hint="choose a model without it")
    _check_complete(config, where, REQUIRED | (REQUIRED_EXPERTS if kind == "dots1" else set()))
    if _slides(config):
        message = f"{where}: some layers see a sliding window only, and all of them here see all"
        raise TrainingError(message, hint="choose a model without it")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    heads, dim = config["num_attention_heads"], config["hidden_size"]
    head_size = config.get("head_dim") or dim // heads
    shape: dict[str, Any] = {
        "layers": config["num_hidden_layers"],
        "dim": dim,
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_size": None if head_size * heads == dim else head_size,
        "ffn": config["intermediate_size"],
        "qk_norm": kind != "llama",
        "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
        "rope_theta": float(rope.get("rope_theta") or config.get("rope_theta") or 10_000),
        "rope_scaling": _scaling_of(rope, where),
        "norm_eps": config.get("rms_norm_eps", 1e-6),
        "init_std": config.get("initializer_range", 0.02),
    }
    return shape | ({"moe": _experts_of(config, where)} if kind == "dots1" else {})


def _check_complete(config: dict[str, Any], where: str, required: set[str]) -> None:
    for key in sorted(required):
        value = config.get(key)
        if not isinstance(value, int) or value < 1:
            message = f"{where}: {key} is {value!r}, and must be a number from 1"
            raise TrainingError(message, hint="is it the config.json of a model that fits?")


def _slides(config: dict[str, Any]) -> bool:
    """Whether a layer has a sliding window, by the rules of `transformers`."""
    kinds = config.get("layer_types")
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    if config["model_type"] != "dots1" or config.get("sliding_window") is None:
        return False  # Qwen3 has its own switch, `use_sliding_window`
    return int(config.get("max_window_layers", 62)) < int(config["num_hidden_layers"])


def _scaling_of(rope: dict[str, Any], where: str) -> dict[str, Any] | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    if kind != "llama3":
        message = f"{where}: rotary positions are scaled as {kind!r}"
        raise TrainingError(message, hint="only 'llama3' and unscaled ones are known")
    return {
        "factor": rope["factor"],
        "low": rope["low_freq_factor"],
        "high": rope["high_freq_factor"],
        "original_context": rope["original_max_position_embeddings"],
    }


def _experts_of(config: dict[str, Any], where: str) -> dict[str, Any]:
    if not config.get("norm_topk_prob"):
        message = f"{where}: norm_topk_prob is false, and gate weights are normalised here"
        raise TrainingError(message, hint="choose a model whose gate weights are normalised")
    return {
        "n_experts": config["n_routed_experts"],
        "top_k": config["num_experts_per_tok"],
        "expert_ffn": config["moe_intermediate_size"],
        "shared": config["n_shared_experts"],
        "first_dense": config.get("first_k_dense_replace", 0),
        "scaling": config.get("routed_scaling_factor", 1.0),
    }


def shape_of_hf(folder: Path) -> dict[str, Any]:
    """The `model` section of a run file that fits the model in `folder`.

    Reads `config.json` alone. Raises TrainingError where it is missing, damaged, or of a model that
    cannot be trained here.
    """
    return shape_of_json(read_json(folder / "config.json"), str(folder))


def vocabulary_of_hf(folder: Path) -> int:
    """Rows of the embedding table of the model in `folder`."""
    return int(read_json(folder / "config.json")["vocab_size"])


def check_hf(folder: Path, config: ModelConfig, vocab_size: int, tokenizer: Path) -> None:
    """TrainingError, naming what differs, where weights of `folder` do not fit a run.

    Its table may have more rows than the tokenizer has entries, as published ones are filled up;
    then it must hold the same `tokenizer.json`, and the further rows are left out.
    """
    theirs = shape_of_hf(folder)
    ours = config.model_dump()
    if theirs["head_size"] is None and ours["head_size"] == config.dim // config.heads:
        ours["head_size"] = None
    free = {"init_std", "aux_loss", "bias_rate", "router_z_loss"}  # these are no part of the shape
    wrong = [d for d in _differences(theirs, ours, "model.") if d[0].split(".")[-1] not in free]
    if wrong:
        told = ", ".join(
            f"{key} is {mine!r} here and {other!r} there" for key, other, mine in wrong
        )
        message = f"the weights in {folder} do not fit the run: {told}"
        raise TrainingError(message, hint="leave these keys out of the run file, or set them so")
    rows, known = vocabulary_of_hf(folder), (folder / "tokenizer.json").is_file()
    if rows < vocab_size or (rows > vocab_size and not known):
        message = (
            f"{folder} has a vocabulary of {rows}, and the run's tokenizer one of {vocab_size}"
        )
        raise TrainingError(message, hint="take the tokenizer that the model was trained with")
    if known:
        _check_tokenizer(folder / "tokenizer.json", tokenizer)


def _check_tokenizer(theirs: Path, ours: Path) -> None:
    """TrainingError where entries have other numbers: the weights would mean other tokens."""
    there, here = (dict(read_json(path)["model"]["vocab"]) for path in (theirs, ours))
    if n := sum(there.get(entry) != here.get(entry) for entry in there.keys() | here.keys()):
        message = f"{n} entries of {theirs} and of the run's tokenizer {ours} differ"
        raise TrainingError(message, hint=f"set tokenizer: {theirs}, and tokenize the data with it")


def _differences(theirs: Any, ours: Any, key: str) -> Iterator[tuple[str, Any, Any]]:
    """(key, there, here) of the keys that both know and that differ."""
    for name, value in theirs.items():
        here = ours.get(name)
        if isinstance(value, dict) and isinstance(here, dict):
            yield from _differences(value, here, f"{key}{name}.")
        elif value != here:
            yield f"{key}{name}", value, here
    if key == "model." and ours.get("moe") and not theirs.get("moe"):
        yield "model.moe", None, "set"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; TrainingError where the file is missing or damaged."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        message = f"{path} is not there"
        raise TrainingError(message, hint="name a folder that `save_pretrained` wrote") from error
    except (OSError, ValueError, TypeError) as error:
        message = f"{path} is damaged: {error}"
        raise TrainingError(message, hint="fetch the folder again") from error
