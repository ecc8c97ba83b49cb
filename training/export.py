"""A checkpoint as a Hugging Face model: safetensors, config.json, tokenizer; logits compared.

With QK-norm the layout is Qwen3's, without it Llama's, with experts that of Dots1; `transformers`
and vLLM know all three (see `training.hf_layout`). Nothing is published whose logits differ.

As a program: `python -m training.export FOLDER --out DIR [--step N]`, FOLDER being that of a run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.config import RunConfig
from training.errors import TrainingError
from training.hf_import import INDEX, SINGLE
from training.hf_layout import config_json, pieces
from training.model import Decoder
from training.network.moe import Router, routers
from training.planning.flops import parameter_count
from training.sampling import OpenedRun, open_model
from training.saving.files import write_text
from training.shards import ShardError, checksum
from training.vocabulary import END_OF_TEXT, Vocabulary

TOLERANCE, TOLERANCE_EXPERTS = 1e-5, 1e-4
TIE = 1e-5
"""Scores of experts that are no further apart may be ordered otherwise by rounding."""
MOST_BYTES = 5 * 10**9
REPORT = "gristmill.json"


def model_config(config: RunConfig, vocabulary: Vocabulary) -> dict[str, Any]:
    """`config.json`."""
    return config_json(
        config.model,
        vocab_size=vocabulary.size,
        context=config.context,
        end_id=vocabulary.end_id,
    )


def exported_tensors(model: Decoder) -> dict[str, Tensor]:
    """Our weights under the names of Qwen3, Llama and Dots1; experts in three matrices each."""
    out = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tied_embeddings:
            continue
        for theirs, expert, rows in pieces(name, tuple(tensor.shape)):
            part = tensor if expert is None else tensor[expert, rows]
            out[theirs] = part.contiguous()
    return out


def write_tensors(tensors: dict[str, Tensor], folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """One `model.safetensors`, or several files of at most `most_bytes` and their index.

    A single tensor that is larger has a file of its own.
    """
    from safetensors.torch import save_file

    files: list[dict[str, Tensor]] = [{}]
    sizes = [0]
    for name, tensor in tensors.items():
        if files[-1] and sizes[-1] + tensor.nbytes > most_bytes:
            files.append({})
            sizes.append(0)
        files[-1][name] = tensor
        sizes[-1] += tensor.nbytes
    if len(files) == 1:
        save_file(files[0], folder / SINGLE, metadata={"format": "pt"})
        return
    where: dict[str, str] = {}
    for number, part in enumerate(files, 1):
        file = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    index = {"metadata": {"total_size": sum(sizes)}, "weight_map": where}
    write_text(folder / INDEX, json.dumps(index, indent=1) + "\n")


def export(opened: OpenedRun, out: Path, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """Write the model to `out` (replaced as a whole) once its logits are equal; returns the report.

    The report stands in `gristmill.json` beside the weights: checkpoint, identity, what
    `verify_export` found, checksums. Raises TrainingError where `verify_export` does, and
    where `out` is something else; it is then as it was. `most_bytes`: of one file of weights.
    """
    if out.exists() and not (out / REPORT).is_file() and not _empty(out):
        message = f"{out} is there and holds no exported model"
        raise TrainingError(message, hint="name a folder that may be replaced, or a new one")
    temporary = out.with_name(f"{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    config, vocabulary = opened.config, opened.vocabulary
    write_tensors(exported_tensors(opened.model), temporary, most_bytes)
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
        **verify_export(temporary, opened.model),
        "files": {path.name: checksum(path) for path in sorted(temporary.iterdir())},
    }
    write_text(temporary / REPORT, json.dumps(report, indent=1) + "\n")
    shutil.rmtree(out, ignore_errors=True)
    temporary.rename(out)
    return report


def _empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


@torch.no_grad()
def verify_export(folder: Path, model: Decoder) -> dict[str, float]:
    """How far the logits of `transformers` on `folder` are from those of `model`.

    `max_logit_difference`, `logit_difference_p99`: the largest and the 99th percentile of all
    tokens, absolute, and relative to the largest logit where that is above 1 (float32 has no more
    digits). On 8 sequences of random tokens, at most 256 and the context.

    Raises TrainingError where a token differs by more than 1e-5, with experts 1e-4. With experts
    one token of a hundred may, if two experts had the same score but for rounding (`TIE`) there or
    at a token that it sees: then the other one may be chosen. `tied_tokens`: the share of such.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    theirs = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).float().eval()
    context, vocab_size = model.cos.shape[0], model.embed_tokens.num_embeddings
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, vocab_size, (8, min(context, 256)), generator=generator)
    with ties_of(model, tokens) as ties:
        ours = model(tokens)
    of_tokens = (theirs(tokens).logits - ours).abs().amax(-1) / ours.abs().max().clamp(min=1)
    tied = ties.cummax(1).values.bool()
    most, p99 = float(of_tokens.max()), float(of_tokens.quantile(0.99))
    untied = float(of_tokens.where(~tied, 0).max())
    tolerance = TOLERANCE_EXPERTS if model.config.moe else TOLERANCE
    share = float(tied.float().mean())
    if not (p99 <= tolerance and untied <= tolerance):
        message = f"the exported model's logits differ by {most:.2g}, more than {tolerance:g}"
        if share:
            message += f"; by {untied:.2g} where no experts are tied, 99 of 100 tokens by {p99:.2g}"
        raise TrainingError(message, hint="report it with the run file; nothing was published")
    return {
        "max_logit_difference": most,
        "logit_difference_p99": p99,
        "tied_tokens": share,
    }


@contextmanager
def ties_of(model: Decoder, tokens: Tensor) -> Iterator[Tensor]:
    """[B, T], 1 at the tokens of a pass whose last chosen expert and first other one are tied."""
    ties = torch.zeros(tokens.shape)

    def look(router: nn.Module, inputs: tuple[Tensor], output: object) -> None:
        assert isinstance(router, Router)
        if router.c.top_k == router.c.n_experts:
            return
        scores = F.linear(inputs[0].float(), router.weight.float()).sigmoid()
        best = (scores + router.e_score_correction_bias).topk(router.c.top_k + 1, -1).values
        ties.logical_or_(best[..., -2] - best[..., -1] < TIE)

    handles = [router.register_forward_hook(look) for router in routers(model)]
    try:
        yield ties
    finally:
        for handle in handles:
            handle.remove()


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
