"""The stages of `training.bench_gpu`, one a process: `... STAGE FOLDER OUT [--dry-run]`.

ceiling  product of two 8192 x 8192 matrices in bfloat16; copy of 4 GiB
dense    1B at context 4096 through the trainer: tokens/s, MFU, memory; gate on/off; loader real
         against one batch over and over; what a checkpoint takes from the steps around it
mask     documents apart (varlen, flex) against causal attention alone
loss     our loss against cross-entropy and, where torch has it, the fused linear one
muon     Muon against AdamW
moe      a mixture with as many active parameters against the dense model's MFU

MFU counts the operations of `training.planning.flops`, against the data sheet and against the
ceiling. A part that fails leaves its error in the JSON and the next one goes on; the exit code is
then 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from training.benching import Bench, compare, one, steps
from training.guards import Verdict
from training.network.losses import token_losses
from training.planning.flops import peak_flops
from training.trainer import Trainer


def ceiling(bench: Bench) -> None:
    """What the device reaches in one product and one copy."""
    size, n = (256, 3) if bench.dry else (8192, 50)
    with bench.part("matmul") as figures:
        left, right = (
            torch.randn(size, size, device=bench.device, dtype=torch.bfloat16) for _ in range(2)
        )
        bench.seconds(lambda: left @ right, 5)
        seconds = min(bench.seconds(lambda: left @ right, n) for _ in range(3))
        figures |= {"size": size, "tflops": round(2 * size**3 / seconds / 1e12, 3)}
        if bench.device.type == "cuda":
            sheet = peak_flops(torch.cuda.get_device_name(), "bfloat16")
            figures |= {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
            figures["data_sheet_tflops"] = sheet / 1e12 if sheet else None
    with bench.part("copy") as figures:
        numbers = torch.zeros((1 << 18) if bench.dry else (1 << 30), device=bench.device)
        other = torch.empty_like(numbers)
        bench.seconds(lambda: other.copy_(numbers), 3)
        seconds = bench.seconds(lambda: other.copy_(numbers), 10)
        figures["gb_per_second"] = round(2 * numbers.nbytes / seconds / 1e9, 1)


def dense(bench: Bench) -> None:
    """The 1B model, and what is on and off around it."""
    n = 2 if bench.dry else 5
    trainer: Trainer | None = None
    with bench.part("adamw") as figures:
        trainer = bench.fitting(figures, "dense_1b")
        run = trainer
        bench.speed(figures, run, bench.seconds(lambda: steps(run, 1), 2 if bench.dry else 15))
    if trainer is None:
        return
    with bench.part("gate") as figures:
        gate = PlainStep(trainer)
        compare(figures, bench.alternated({"on": one(trainer), "off": gate.step_without}, n))
    with bench.part("loader") as figures:
        loader: Any = trainer.data.loader
        fixed, real = loader.batch(trainer.course.indices(1), 0, 1), loader.batch

        def synthetic() -> None:
            loader.batch = lambda *_: fixed
            steps(trainer, 1)
            loader.batch = real

        compare(figures, bench.alternated({"on": one(trainer), "off": synthetic}, n))
    with bench.part("checkpoint") as figures:
        usual = bench.seconds(one(trainer), n)
        figures["save_returns_after_seconds"] = round(bench.seconds(trainer.save), 4)
        figures["step_seconds"] = round(usual, 5)
        figures["step_seconds_while_saving"] = round(bench.seconds(one(trainer), n), 5)
        bench.write()  # the disk may take longer than there is time
        began = time.monotonic()
        trainer.settle()
        figures["waited_for_the_rest_seconds"] = round(time.monotonic() - began, 2)


class PlainStep:
    """Steps of a trainer with the gate taken out."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, self.gate = trainer, trainer.guard
        self.none = torch.zeros((), device=trainer.world.device)

    def step(self, optimizer: Any, loss: Any, norm: Any) -> Verdict:
        """The optimiser's step alone; as `Guard.step`."""
        optimizer.grad_scale = optimizer.found_inf = None
        optimizer.step()
        return Verdict(self.none, self.none.expand(2), self.none.expand(2))

    def step_without(self) -> None:
        """One step of the trainer."""
        self.trainer.guard = self  # type: ignore[assignment]
        steps(self.trainer, 1)
        self.trainer.guard = self.gate


def mask(bench: Bench) -> None:
    """Kernels of attention that keep documents apart, and causal attention, which knows none."""
    settings = bench.earlier("dense", "adamw", "settings") or {"micro_batch": 2}
    for kind in ("sdpa", "blocks") if bench.dry else ("varlen", "flex"):
        with bench.part(kind) as figures:
            trainer = bench.trainer("dense_1b", attention=kind, **settings)
            steps(trainer, 2 if bench.dry else 6)
            bench.speed(figures, trainer, bench.seconds(one(trainer), 2 if bench.dry else 10))
            if kind in ("varlen", "sdpa"):
                causal(bench, trainer)
            del trainer
        bench.free()


def causal(bench: Bench, trainer: Trainer) -> None:
    """The same trainer without documents: a sequence is one."""
    model: Any = trainer.model
    with bench.part("causal") as figures:
        whole = model.forward
        model.forward = lambda tokens, positions=None, documents=None: whole(tokens, positions)
        steps(trainer, 2 if bench.dry else 6)
        bench.speed(figures, trainer, bench.seconds(one(trainer), 2 if bench.dry else 10))


def loss(bench: Bench) -> None:
    """Head and loss of a micro-batch, forward and backward: seconds and memory of each form."""
    n_rows, width, vocab = (64, 32, 512) if bench.dry else (16_384, 2048, 128_256)
    dtype = torch.float32 if bench.dry else torch.bfloat16
    hidden = torch.randn(n_rows, width, device=bench.device, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocab, width, device=bench.device, dtype=dtype, requires_grad=True)
    targets = torch.randint(0, vocab, (n_rows,), device=bench.device)

    def ours() -> torch.Tensor:
        return token_losses(F.linear(hidden, weight), targets, stride=8, overwrite=True)[0].sum()

    def plain() -> torch.Tensor:
        return F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")

    forms: dict[str, Callable[[], torch.Tensor]] = {"ours": ours, "cross_entropy": plain}
    fused = getattr(F, "linear_cross_entropy", None)  # not in torch 2.11
    if fused is not None:
        forms["linear_cross_entropy"] = lambda: fused(hidden, weight, targets, reduction="sum")
    for name, form in forms.items():
        with bench.part(name) as figures:
            hidden.grad = weight.grad = None
            bench.free()

            def both(form: Callable[[], torch.Tensor] = form) -> None:
                hidden.grad = weight.grad = None
                torch.autograd.backward(form())

            both()
            figures["seconds"] = round(bench.seconds(both, 2 if bench.dry else 8), 5)
            if bench.device.type == "cuda":
                figures["peak_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    if fused is None:
        bench.found["linear_cross_entropy"] = {"left_out": f"torch {torch.__version__} has none"}
        bench.write()


def muon(bench: Bench) -> None:
    """The dense model with Muon for its matrices."""
    settings = bench.earlier("dense", "adamw", "settings") or {"micro_batch": 2}
    with bench.part("muon") as figures:
        trainer = bench.trainer("dense_1b", optimizer="muon", **settings)
        steps(trainer, 2 if bench.dry else 6)
        bench.speed(figures, trainer, bench.seconds(one(trainer), 2 if bench.dry else 10))
        if usual := bench.earlier("dense", "adamw", "step_seconds"):
            figures["step_seconds_of_adamw"] = usual
            figures["cost_share"] = round(figures["step_seconds"] / usual - 1, 5)


def moe(bench: Bench) -> None:
    """A mixture of the shape of moe_7b_a1b; 24 experts of 64, as weights and moments must fit."""
    with bench.part("moe") as figures:
        keys = {} if bench.dry else {"model": {"moe": {"n_experts": 24}}}
        trainer = bench.fitting(figures, "moe_7b_a1b", **keys)
        bench.speed(figures, trainer, bench.seconds(one(trainer), 2 if bench.dry else 10))
        if usual := bench.earlier("dense", "adamw", "tflops"):
            figures["mfu_of_dense"] = round(figures["tflops"] / usual, 4)


STAGES: dict[str, Callable[[Bench], None]] = {
    "ceiling": ceiling, "dense": dense, "mask": mask, "loss": loss, "muon": muon, "moe": moe,
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """One stage; 1 where a part of it failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)
    bench = Bench(given.folder, given.out, dry=given.dry_run)
    if not given.dry_run and not torch.cuda.is_available():
        sys.stderr.write("no GPU is visible to this process; --dry-run needs none\n")
        return 1
    with bench.part("stage"):
        STAGES[given.stage](bench)
    if not bench.found["stage"]:
        del bench.found["stage"]
        bench.write()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return int(bench.failed)


if __name__ == "__main__":
    sys.exit(main())
