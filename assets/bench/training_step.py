"""train: steps of the trainer, against a training loop around transformers.

One process, the recipe `tiny_cpu`, float32, the same shards in the same order. Ours has its loader,
document mask, guard, entropies and sharding wrapper on; the peer has plain causal attention,
gradient clipping and the same fused AdamW. Logits of equal weights are compared.
"""

from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial

if TYPE_CHECKING:
    import polars as pl

    from training.config import RunConfig
    from training.data import Batch

STEPS = 6
PROBED = 24
"""Tokens whose logits are compared."""
TOLERANCE = 1e-4


def _run(material: Material) -> "RunConfig":
    """The run that both sides do; its folder is this process's own."""
    import os

    import yaml

    from training.config import load_run

    root = material.path(f"train-{os.getpid()}")
    path = root / "runs" / "bench.yaml"
    path.parent.mkdir(parents=True)
    settings = {
        "recipe": "tiny_cpu",
        "shards": [str(material.path("bench"))],
        "tokenizer": str(material.path("tokenizer.json")),
        "steps": STEPS + 1,
        "nproc_per_node": 1,
        "device": "cpu",
    }
    path.write_text(yaml.safe_dump(settings))
    return load_run(path)


def _trial(config: "RunConfig", step: Any, logits: Any, losses: list[float]) -> Trial:
    import polars as pl

    step(0)
    tokens = STEPS * config.global_batch * config.context
    return Trial(
        run=lambda: [step(number) for number in range(1, STEPS + 1)],
        finding=lambda _: pl.DataFrame({"logit": logits().flatten().double().numpy()}),
        documents=STEPS * config.global_batch,
        size=2 * tokens,
        tokens=tokens,
        extra=lambda: {"first_loss": losses[0], "last_loss": losses[-1]},
    )


def _probe(vocab_size: int) -> Any:
    import torch

    return torch.arange(PROBED)[None] * 37 % vocab_size


def ours(material: Material) -> Trial:
    """`Trainer.train_step` in a process group of one."""
    import torch

    from training.model import Decoder
    from training.plan import open_data
    from training.trainer import Trainer
    from training.vocabulary import Vocabulary
    from training.world import join

    config = _run(material)
    vocabulary = Vocabulary.open(config.tokenizer)
    trainer = Trainer(config, join("cpu", 60), vocabulary, open_data(config, vocabulary))
    losses: list[float] = []

    def step(_: int) -> None:
        values, _asked = trainer.train_step(stop=False)
        trainer.advance()
        losses.append(float(values["loss"]))

    def logits() -> Any:
        model = Decoder(config.model, vocabulary.size, config.context)
        model.init_weights(config.seed)
        with torch.no_grad():
            return model(_probe(vocabulary.size))

    return _trial(config, step, logits, losses)


def transformers(material: Material) -> Trial:
    """Forward, backward, clipping and AdamW around the peer's model of the same shape."""
    import torch
    import transformers as peer

    from training.course import Course
    from training.export import exported_tensors, model_config
    from training.model import Decoder
    from training.optim import build_optimizer
    from training.plan import open_data
    from training.schedule import learning_rate
    from training.vocabulary import Vocabulary

    torch.set_num_threads(1)
    config = _run(material)
    vocabulary = Vocabulary.open(config.tokenizer)
    loader = open_data(config, vocabulary).loader
    course = Course(config)
    start = Decoder(config.model, vocabulary.size, config.context)
    start.init_weights(config.seed)
    shape = model_config(config, vocabulary)
    made = peer.AutoConfig.for_model(**shape)
    model = peer.AutoModelForCausalLM.from_config(made)
    model.load_state_dict(exported_tensors(start), strict=not config.model.tied_embeddings)
    model.train()
    optimizer = build_optimizer(model, config)
    losses: list[float] = []

    def step(number: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(number + 1, config)
        batch = loader.batch(course.indices(number + 1))
        losses.append(_step(model, optimizer, batch, config))

    def logits() -> Any:
        fresh = peer.AutoModelForCausalLM.from_config(made)
        fresh.load_state_dict(exported_tensors(start), strict=not config.model.tied_embeddings)
        with torch.no_grad():
            return fresh.eval()(input_ids=_probe(vocabulary.size)).logits

    return _trial(config, step, logits, losses)


def _step(model: Any, optimizer: Any, batch: "Batch", config: "RunConfig") -> float:
    """One step over a global batch in micro-batches; the loss, a mean over its targets."""
    import torch
    import torch.nn.functional as F

    total, targets = 0.0, int(batch.mask.sum())
    optimizer.zero_grad(set_to_none=True)
    for begin in range(0, config.global_batch, config.micro_batch):
        part = slice(begin, begin + config.micro_batch)
        wanted = torch.from_numpy(batch.targets[part])
        wanted = torch.where(torch.from_numpy(batch.mask[part]), wanted, -100).flatten()
        logits = model(input_ids=torch.from_numpy(batch.tokens[part])).logits.flatten(0, 1)
        loss = F.cross_entropy(logits, wanted, ignore_index=-100, reduction="sum") / targets
        torch.autograd.backward(loss)
        total += float(loss.detach())
    torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    optimizer.step()
    return total


def compare(ours: "pl.DataFrame", theirs: "pl.DataFrame") -> dict[str, Any]:
    """Logits of equal weights: the largest difference, and whether it is within 1e-4."""
    largest = float(str((ours["logit"] - theirs["logit"]).abs().max()))
    return {"logits_equal": largest <= TOLERANCE, "largest_difference": largest}
