"""A checkpoint as a Hugging Face model: safetensors, config.json, tokenizer; logits compared.

With QK-norm the layout is Qwen3's, without it Llama's; `transformers` and vLLM know both. Our
parameter names are theirs but for the prefix `model.`. Nothing is published whose logits differ.

As a program: `python -m training.export FOLDER --out DIR [--step N]`, FOLDER being that of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.checkpoint import write_text
from training.config import RunConfig
from training.errors import TrainingError
from training.flops import parameter_count
from training.model import Decoder
from training.sampling import OpenedRun, open_model
from training.shards import ShardError, checksum
from training.vocabulary import END_OF_TEXT, Vocabulary

TOLERANCE = 1e-4
REPORT = "gristmill.json"


def model_config(config: RunConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """`config.json`."""
    m = config.model
    kind = "Qwen3" if m.qk_norm else "Llama"
    return {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        "vocab_size": vocabulary.size,
        "hidden_size": m.dim,
        "intermediate_size": m.ffn,
        "num_hidden_layers": m.layers,
        "num_attention_heads": m.heads,
        "num_key_value_heads": m.kv_heads,
        "head_dim": m.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.context,
        "rms_norm_eps": m.norm_eps,
        # transformers 5 reads the second, older versions and vLLM the first
        "rope_theta": m.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": m.rope_theta},
        "attention_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": m.init_std,
        "tie_word_embeddings": m.tied_embeddings,
        "bos_token_id": vocabulary.end_id,
        "eos_token_id": vocabulary.end_id,
        "dtype": "float32",
        "torch_dtype": "float32",
    }


def exported_tensors(model: Decoder) -> dict[str, Tensor]:
    """Our weights under the names of Qwen3 and Llama."""
    out = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            if not model.config.tied_embeddings:
                out[name] = tensor.contiguous()
        else:
            out[f"model.{name}"] = tensor.contiguous()
    return out


def export(opened: OpenedRun, out: Path) -> dict[str, Any]:
    """Write the model to `out` (replaced as a whole) once its logits are equal; returns the report.

    The report stands in `gristmill.json` beside the weights: checkpoint, identity, the largest
    difference of a logit, checksums. Raises TrainingError where it is above 1e-4; `out` is then as
    it was.
    """
    from safetensors.torch import save_file

    temporary = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    config, vocabulary = opened.config, opened.vocabulary
    save_file(
        exported_tensors(opened.model), temporary / "model.safetensors", metadata={"format": "pt"}
    )
    ends = {"bos_token_id": vocabulary.end_id, "eos_token_id": vocabulary.end_id}
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "model_max_length": config.context,
        "clean_up_tokenization_spaces": False,
    }
    for name, content in (
        ("config.json", model_config(config, vocabulary)),
        ("generation_config.json", ends | {"do_sample": True, "temperature": 0.8}),
        ("tokenizer_config.json", tokenizer),
    ):
        write_text(temporary / name, json.dumps(content, indent=2) + "\n")
    shutil.copyfile(config.tokenizer, temporary / "tokenizer.json")
    report = {
        "run": config.name,
        "checkpoint": opened.path.name,
        "identity": opened.identity,
        "parameters": parameter_count(config.model, vocabulary.size),
        "architecture": model_config(config, vocabulary)["architectures"][0],
        "max_logit_difference": verify_export(temporary, opened.model),
        "files": {path.name: checksum(path) for path in sorted(temporary.iterdir())},
    }
    write_text(temporary / REPORT, json.dumps(report, indent=1) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    temporary.rename(out)
    return report


@torch.no_grad()
def verify_export(folder: Path, model: Decoder, *, tolerance: float = TOLERANCE) -> float:
    """Largest absolute difference of a logit between `transformers` on `folder` and `model`.

    Compared on 4 sequences of random tokens over the whole context (at most 512). Raises
    TrainingError where it is above `tolerance`.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    theirs = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).float().eval()
    context, vocab_size = model.cos.shape[0], model.embed_tokens.num_embeddings
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, vocab_size, (4, min(context, 512)), generator=generator)
    difference = float((theirs(tokens).logits - model(tokens)).abs().max())
    if not difference <= tolerance:
        message = f"the exported model's logits differ by {difference:.2g}, more than {tolerance:g}"
        raise TrainingError(message, hint="report it with the run file; nothing was published")
    return difference


def main(arguments: list[str] | None = None) -> int:
    """`training.export FOLDER --out DIR`: a run's checkpoint in the layout of transformers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="folder of the run, ROOT/checkpoints/<name>")
    parser.add_argument("--step", type=int, help="default: the newest good checkpoint")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    try:
        report = export(open_model(given.folder, given.step), given.out)
    except (TrainingError, ShardError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return getattr(error, "exit_code", 1)
    print(f"{report['architecture']}: logits differ by {report['max_logit_difference']:.2g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
