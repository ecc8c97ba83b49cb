"""train: steps of the trainer, against a training loop around transformers.

One process, 6 layers x 384 with 6 heads at a context of 256, the same shards in the same order, the
same layout (Llama's: no QK-norm), the same number of parameters. Ours has everything on that a run
has: loader, document mask, gate, entropies, metrics written and sent to MLflow, sharding wrapper.
The peer has plain causal attention, gradient clipping and the same fused AdamW, in float32. Memory
that is freed is kept on both sides. Logits of equal weights are compared.

Beside the ratio stand shares of our step: `around_share`, CPU time of everything but forward,
backward and optimiser; `loader_share`, CPU time of making the same batches once more.
"""

import os
import time
from typing import TYPE_CHECKING, Any

from assets.bench.material import Material
from assets.bench.worker import Trial, timed

if TYPE_CHECKING:
    import polars as pl

    from training.config import RunConfig
    from training.data import Batch
    from training.trainer import Trainer

STEPS = int(os.environ.get("GRISTMILL_BENCH_STEPS", "10"))
"""On the clock; fewer where only the outputs are of interest."""
WARM = 2
MODEL = {"layers": 6, "dim": 384, "heads": 6, "kv_heads": 6, "ffn": 1024, "qk_norm": False}
PROBED = 24
"""Tokens whose logits are compared."""
TOLERANCE = 1e-4
CORE = ("forward", "backward", "optimiser")
MLFLOW_SECONDS = 120


def _run(material: Material, **keys: Any) -> "RunConfig":
    """The run that both sides do; its folder is this process's own."""
    import yaml

    from training.config import load_run

    root = material.path(f"train-{os.getpid()}")
    path = root / "runs" / "bench.yaml"
    path.parent.mkdir(parents=True)
    settings = {
        "recipe": "tiny_cpu",
        "model": MODEL,
        "global_batch": 8,
        "micro_batch": 4,
        "shards": [str(material.path("bench"))],
        "tokenizer": str(material.path("tokenizer.json")),
        "steps": WARM + STEPS,
        "eval_every": 0,
        "log_every": max(STEPS // 2, 1),
        "lr": 1e-3,
        "nproc_per_node": 1,
        "device": "cpu",
    }
    path.write_text(yaml.safe_dump(settings | keys))
    return load_run(path)


def _trial(config: "RunConfig", run: Any, logits: Any, extra: Any) -> Trial:
    import polars as pl

    tokens = STEPS * config.global_batch * config.context
    return Trial(
        run=run,
        finding=lambda _: pl.DataFrame({"logit": logits().flatten().double().numpy()}),
        documents=STEPS * config.global_batch,
        size=2 * tokens,
        tokens=tokens,
        extra=extra,
    )


def _probe(vocab_size: int) -> Any:
    import torch

    return torch.arange(PROBED)[None] * 37 % vocab_size


def ours(material: Material) -> Trial:
    """Steps of a run in float32."""
    return _ours(_run(material))


def bfloat16(material: Material) -> Trial:
    """The same in bfloat16 arithmetic: weights, reductions and the optimiser stay in float32."""
    return _ours(_run(material, dtype="bfloat16"))


def untracked(material: Material) -> Trial:
    """As `ours`, with no MLflow to send to."""
    return _ours(_run(material), tracked=False)


def _ours(config: "RunConfig", *, tracked: bool = True) -> Trial:
    """The trainer and its report in a process group of one, step by step as `training.train`."""
    import torch

    from training.model import Decoder
    from training.plan import open_data
    from training.report import Report
    from training.trainer import Trainer
    from training.vocabulary import Vocabulary
    from training.world import join

    if tracked:
        _mlflow(config)
    vocabulary = Vocabulary.open(config.tokenizer)
    trainer = Trainer(config, join("cpu", 60), vocabulary, open_data(config, vocabulary))
    trainer.resume()
    report = Report(config, trainer.world, trainer)
    report.watch = _cpu_watch(trainer.world.device)
    _steps(trainer, report, WARM)
    report.flush()
    _wait_for_tracker(report, WARM if tracked else 0)
    spent: dict[str, float] = {}

    def run() -> None:
        _, spent["cpu"], _ = timed(lambda: _steps(trainer, report, STEPS))

    def logits() -> Any:
        model = Decoder(config.model, vocabulary.size, config.context)
        model.init_weights(config.seed)
        with torch.no_grad():
            return model(_probe(vocabulary.size))

    def extra() -> dict[str, float]:
        report.tracker.close(MLFLOW_SECONDS)
        return _shares(config, trainer, spent["cpu"])

    return _trial(config, run, logits, extra)


def _cpu_watch(device: Any) -> Any:
    """A stopwatch of this thread's CPU time: what other threads do counts for none of the parts."""
    from training.watching.stopwatch import Stopwatch

    class CpuWatch(Stopwatch):
        def _now(self) -> float:
            return time.thread_time()

    return CpuWatch(device)


def _steps(trainer: "Trainer", report: Any, n: int) -> None:
    """`n` steps as the loop of `training.train` does them, without checkpoints."""
    from training.train import went_back

    for _ in range(n):
        report.step_begins()
        values, _asked = trainer.train_step(stop=False)
        report.step_ends()
        trainer.advance()
        line = {"step": trainer.step, "tokens": trainer.tokens, "lr": trainer.rate}
        report.add(line, values)
        went_back(trainer, report)
        trainer.guard.check(trainer.step)
        if trainer.step % trainer.config.log_every == 0:
            report.flush()
    report.flush()


def _mlflow(config: "RunConfig") -> None:
    """A run at an MLflow store of this process's own, which the trainer will send to."""
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{config.parent_root.parent}/mlflow.db"
    run = MlflowClient(uri).create_run("0")
    os.environ |= {"MLFLOW_TRACKING_URI": uri, "GRISTMILL_MLFLOW_RUN_ID": run.info.run_id}


def _wait_for_tracker(report: Any, step: int) -> None:
    """Until MLflow has a step: what its client costs to start is off the clock."""
    from pipeline.errors import GristmillError

    end = time.monotonic() + MLFLOW_SECONDS
    while step and report.tracker.delivered < step:
        if time.monotonic() > end:
            problem = report.tracker.problem
            message = f"MLflow did not take step {step} in {MLFLOW_SECONDS} s: {problem}"
            raise GristmillError(message)
        time.sleep(0.05)


def _shares(config: "RunConfig", trainer: "Trainer", cpu: float) -> dict[str, float]:
    """Shares of the CPU time of a step, from its lines and from loading once more; the losses."""
    from training.metrics import read_lines
    from training.watching.loglines import LINES

    lines = read_lines(config.out / LINES)[WARM:]
    parts = {name: sum(line[f"time/{name}"] for line in lines) for name in CORE}
    indices = [trainer.course.indices(line["step"]) for line in lines]
    loader = trainer.data.loader
    _, loading, _ = timed(lambda: [loader.batch(one, 0, 1) for one in indices])
    return {
        "around_share": 1 - sum(parts.values()) / cpu,
        "loader_share": loading / cpu,
        **{f"{name}_share": value / cpu for name, value in parts.items()},
        **_arithmetic(config.dtype),
        "first_loss": lines[0]["loss"],
        "last_loss": lines[-1]["loss"],
    }


def _arithmetic(dtype: str) -> dict[str, float]:
    """GFLOP/s of a matrix product here, and whether the CPU multiplies bfloat16 by itself."""
    from pathlib import Path

    import torch

    from training.watching.speed import measured_peak

    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        flags = ""
    found = {"matmul_gflops": measured_peak(getattr(torch, dtype)) / 1e9}
    if dtype == "bfloat16":
        found["cpu_has_bfloat16"] = float("avx512_bf16" in flags or "amx_bf16" in flags)
    return found


def transformers(material: Material) -> Trial:
    """Forward, backward, clipping and AdamW around the peer's model of the same shape."""
    import torch
    import transformers as peer

    from training.export import exported_tensors, model_config
    from training.model import Decoder
    from training.plan import open_data
    from training.ranks.memory import keep_freed_memory
    from training.samples.course import Course
    from training.schedule import learning_rate
    from training.vocabulary import Vocabulary

    torch.set_num_threads(1)
    keep_freed_memory()
    config = _run(material)
    vocabulary = Vocabulary.open(config.tokenizer)
    loader = open_data(config, vocabulary).loader
    course = Course(config)
    start = Decoder(config.model, vocabulary.size, config.context)
    start.init_weights(config.seed)
    made = peer.AutoConfig.for_model(**model_config(config, vocabulary))
    model = peer.AutoModelForCausalLM.from_config(made)
    model.load_state_dict(exported_tensors(start))
    model.train()
    optimizer = _adamw(model, config)
    losses: list[float] = []

    def steps(first: int, n: int) -> None:
        for number in range(first, first + n):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(number, config)
            batch = loader.batch(course.indices(number), 0, 1)
            losses.append(_step(model, optimizer, batch, config))

    def logits() -> Any:
        fresh = peer.AutoModelForCausalLM.from_config(made)
        fresh.load_state_dict(exported_tensors(start))
        with torch.no_grad():
            return fresh.eval()(input_ids=_probe(vocabulary.size)).logits

    def extra() -> dict[str, float]:
        return {"first_loss": losses[WARM], "last_loss": losses[-1], **_arithmetic("float32")}

    steps(1, WARM)
    return _trial(config, lambda: steps(1 + WARM, STEPS), logits, extra)


def _adamw(model: Any, config: "RunConfig") -> Any:
    """Fused AdamW with the settings of the run; decay on matrices but embeddings."""
    import torch

    bare = {p for n, p in model.named_parameters() if p.ndim < 2 or "embed_tokens" in n}
    groups = [
        {
            "params": [p for p in model.parameters() if p not in bare],
            "weight_decay": config.weight_decay,
        },
        {"params": list(bare), "weight_decay": 0.0},
    ]
    first, second = config.betas
    return torch.optim.AdamW(groups, betas=(first, second), eps=config.eps, fused=True)


def _step(model: Any, optimizer: Any, batch: "Batch", config: "RunConfig") -> float:
    """One step over a global batch in micro-batches; the loss, a mean over its targets."""
    import torch
    import torch.nn.functional as F

    total, targets = 0.0, int(batch.mask.sum())
    optimizer.zero_grad(set_to_none=True)
    for begin in range(0, config.global_batch, config.micro_batch):
        part = slice(begin, begin + config.micro_batch)
        wanted = torch.from_numpy(batch.targets[part]).long()
        wanted = torch.where(torch.from_numpy(batch.mask[part]), wanted, -100).flatten()
        tokens = torch.from_numpy(batch.tokens[part])
        logits = model(input_ids=tokens).logits.flatten(0, 1)
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
