from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.miniature import write_documents, write_run
from training import evaluate
from training.config import RECORD
from training.errors import TrainingError
from training.export import export, exported_tensors, ties_of, verify_export, write_tensors
from training.hf_import import load_hf
from training.hf_layout import check_hf, config_json, shape_of_hf
from training.model import Decoder
from training.network.moe import routers
from training.sampling import open_model
from training.settings.model import ModelConfig, MoeConfig


def finished(trainer_of: Any, path: Path) -> Path:
    """The folder of a run with one checkpoint."""
    trainer = trainer_of(path)
    out: Path = trainer.config.out
    out.mkdir(parents=True)
    config = trainer.config
    record = {
        "config_hash": config.config_hash(),
        "identity": config.identity(),
        "config": config.model_dump(mode="json"),
    }
    (out / RECORD).write_text(json.dumps(record))
    trainer.train_step(False)
    trainer.advance()
    trainer.save()
    trainer.checkpoints.wait()
    return out


EXPERTS = {"n_experts": 8, "top_k": 2, "expert_ffn": 32, "shared": 2, "scaling": 1.5}
STRETCHED = {"factor": 4.0, "low": 1.0, "high": 4.0, "original_context": 16}


@pytest.mark.parametrize(
    ("keys", "kind", "limit"),
    [
        ({}, "Qwen3", 1e-5),
        ({"qk_norm": False, "rope_scaling": STRETCHED}, "Llama", 1e-5),
        ({"tied_embeddings": True, "head_size": 24}, "Qwen3", 1e-5),
        ({"moe": EXPERTS}, "Dots1", 1e-4),
    ],
)
def test_transformers_loads_it_offline_with_equal_logits(
    tmp_path: Path, trainer_of: Any, keys: dict[str, Any], kind: str, limit: float
) -> None:
    model = {"layers": 2, "dim": 32, "heads": 2, "kv_heads": 1, "ffn": 64}
    opened = open_model(finished(trainer_of, write_run(tmp_path, model=model | keys)))
    for name, buffer in opened.model.named_buffers():
        if name.endswith("correction_bias"):
            buffer.uniform_(-0.5, 0.5)  # as after a long run
    report = export(opened, tmp_path / "hf", most_bytes=30_000)
    assert report["logit_difference_p99"] <= report["max_logit_difference"] < limit
    assert report["tied_tokens"] <= (0.2 if kind == "Dots1" else 0)
    assert report["architecture"] == f"{kind}ForCausalLM"
    assert report["identity"] == opened.identity
    index = json.loads((tmp_path / "hf" / "model.safetensors.index.json").read_text())
    files = sorted((tmp_path / "hf").glob("*.safetensors"))
    assert {f.name for f in files} == set(index["weight_map"].values())
    assert len(files) > 2

    from transformers import AutoModelForCausalLM, AutoTokenizer

    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf", local_files_only=True)
    assert type(theirs).__name__ == f"{kind}ForCausalLM"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf", local_files_only=True)
    ids = tokenizer("the snow", return_tensors="pt")["input_ids"]
    assert tokenizer.decode(ids[0]) == "the snow"
    assert tokenizer.eos_token_id == 0
    with torch.no_grad():
        assert (theirs(ids).logits - opened.model(ids)).abs().max() < limit

    section = shape_of_hf(tmp_path / "hf")
    again = Decoder(ModelConfig(**section), opened.vocabulary.size, opened.config.context)
    again.init_weights(99)
    check_hf(tmp_path / "hf", opened.config.model, opened.vocabulary.size, opened.config.tokenizer)
    load_hf(tmp_path / "hf", again)
    before, after = opened.model.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_other_logits_are_refused_and_nothing_is_replaced(
    tmp_path: Path, trainer_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_model(finished(trainer_of, write_run(tmp_path)))
    export(opened, tmp_path / "hf")
    before = (tmp_path / "hf" / "model.safetensors").read_bytes()
    with torch.no_grad():
        opened.model.norm.weight.mul_(1.1)
    with pytest.raises(TrainingError, match="logits differ"):
        verify_export(tmp_path / "hf", opened.model)
    monkeypatch.setattr(
        "training.export.exported_tensors",
        lambda model: {
            f"model.{n}" if n != "lm_head.weight" else n: t.clone() * 1.01
            for n, t in model.state_dict().items()
        },
    )
    with pytest.raises(TrainingError, match="logits differ"):
        export(opened, tmp_path / "hf")
    assert (tmp_path / "hf" / "model.safetensors").read_bytes() == before


def mixture(tmp_path: Path, name: str, vocab: int = 50, **experts: Any) -> tuple[Decoder, Path]:
    """A mixture of two layers and its exported folder."""
    config = ModelConfig(
        layers=2, dim=32, heads=2, kv_heads=1, ffn=64, init_std=0.1,
        moe=MoeConfig(**{"n_experts": 8, "top_k": 2, "expert_ffn": 16} | experts),
    )  # fmt: skip
    model = Decoder(config, vocab, 32)
    model.init_weights(1)
    for router in routers(model):
        router.e_score_correction_bias.copy_(torch.linspace(-0.3, 0.3, config.moe.n_experts))  # type: ignore[union-attr]
    (tmp_path / name).mkdir()
    write_tensors(exported_tensors(model), tmp_path / name)
    told = config_json(config, vocab_size=vocab, context=32, end_id=0)
    (tmp_path / name / "config.json").write_text(json.dumps(told))
    return model.eval(), tmp_path / name


@pytest.mark.parametrize(
    "experts",
    [
        {"shared": 2, "first_dense": 0, "scaling": 2.5},
        {"n_experts": 3, "top_k": 3, "shared": 3},
        {"n_experts": 16, "top_k": 15, "first_dense": 0},
    ],
)
def test_mixtures_of_other_shapes_choose_as_dots1_does(
    tmp_path: Path, experts: dict[str, Any]
) -> None:
    model, folder = mixture(tmp_path, "hf", **experts)
    assert verify_export(folder, model)["max_logit_difference"] < 1e-4


def test_a_token_that_is_far_out_is_refused_unless_its_experts_are_tied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, folder = mixture(tmp_path, "hf", vocab=4000)
    tokens = torch.randint(0, 4000, (8, 32), generator=torch.Generator().manual_seed(0))
    last = next(int(row[-1]) for row in tokens if int((tokens == row[-1]).sum()) == 1)
    with torch.no_grad():  # one token of 256, which no other sees
        model.embed_tokens.weight[last] *= -1
    with pytest.raises(TrainingError, match=r"differ by \d\.\d+, more than 0\.0001"):
        verify_export(folder, model)
    monkeypatch.setattr("training.export.TIE", 1.0)
    found = verify_export(folder, model)
    assert found["max_logit_difference"] > 0.1
    assert found["logit_difference_p99"] < 1e-4
    assert found["tied_tokens"] == 1
    with torch.no_grad():
        model.embed_tokens.weight[tokens[:, -1]] *= -1  # eight tokens are too many
    with pytest.raises(TrainingError, match="99 of 100 tokens by"):
        verify_export(folder, model)


def test_tied_experts_are_found(tmp_path: Path) -> None:
    model, _ = mixture(tmp_path, "hf")
    tokens = torch.arange(32).view(2, 16)
    with ties_of(model, tokens) as ties, torch.no_grad():
        model(tokens)
    assert ties.mean() < 0.1
    with torch.no_grad():
        for router in routers(model):
            router.weight.zero_()
            router.e_score_correction_bias.zero_()
    with ties_of(model, tokens) as ties, torch.no_grad():
        model(tokens)
    assert ties.min() == 1
    assert not routers(model)[0]._forward_hooks


def test_nothing_but_an_exported_model_is_replaced(tmp_path: Path, trainer_of: Any) -> None:
    opened = open_model(finished(trainer_of, write_run(tmp_path)))
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "shards", tmp_path / "file"):
        with pytest.raises(TrainingError, match="is there and holds no exported model"):
            export(opened, out)
    assert list((tmp_path / "shards").iterdir())
    (tmp_path / "hf").mkdir()
    for _ in range(2):
        assert export(opened, tmp_path / "hf")["files"]


def test_evaluation_tells_sources_and_languages_apart(tmp_path: Path, trainer_of: Any) -> None:
    path = write_run(tmp_path)
    write_documents(tmp_path / "shards" / "code-held", 6, seed=9, source="code", split="held_out")
    folder = finished(trainer_of, path)
    languages = {"web-held": ["en"] * 20 + ["de"] * 10, "code-held": ["und"] * 6}
    (tmp_path / "languages.json").write_text(json.dumps(languages))
    given = [str(folder), "--languages", str(tmp_path / "languages.json")]
    assert evaluate.main([*given, "--out", str(tmp_path / "scores.json")]) == 0
    found = json.loads((tmp_path / "scores.json").read_text())
    rows = {(row["source"], row["language"]): row for row in found["groups"]}
    assert set(rows) == {("code", "und"), ("web", "de"), ("web", "en")}
    assert sum(row["bytes"] for row in rows.values()) == found["total"]["bytes"]
    nats = sum(row["bits_per_byte"] * row["bytes"] for row in rows.values())
    assert nats / found["total"]["bytes"] == pytest.approx(found["total"]["bits_per_byte"])
    assert len(found["continuations"]) == 3


def test_a_folder_without_a_run_is_said(tmp_path: Path, capsys: Any) -> None:
    assert evaluate.main([str(tmp_path), "--out", str(tmp_path / "x")]) == 1
    assert "holds no run" in capsys.readouterr().err
