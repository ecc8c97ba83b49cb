"""What the stages of `training.bench_gpu` share: material, timing, figures, parts that may fail."""

from __future__ import annotations

import gc
import json
import statistics
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml

from training.config import load_run
from training.plan import open_data
from training.planning.flops import active_parameters, flops_per_token, parameter_count, peak_flops
from training.saving.files import write_text
from training.trainer import Trainer
from training.vocabulary import Vocabulary
from training.world import World, join

TINY_MODEL = {"layers": 2, "dim": 64, "heads": 4, "kv_heads": 2, "ffn": 128}
TINY_EXPERTS = {"n_experts": 8, "top_k": 2, "expert_ffn": 32, "shared": 1, "first_dense": 1}
Run = Callable[[], object]


class Bench:
    """One stage: its material, and what it has found, on disk after every part."""

    def __init__(self, folder: Path, out: Path, *, dry: bool) -> None:
        self.folder, self.out, self.dry = folder, out, dry
        self.found: dict[str, Any] = {}
        self.failed = False
        self.device = torch.device("cpu" if dry else "cuda")
        self._world: World | None = None
        self._runs = 0

    def part(self, name: str) -> Part:
        """Figures of a part; what it raises stands in them, and the next part goes on."""
        return Part(self, self.found.setdefault(name, {}))

    def write(self) -> None:
        """What was found so far."""
        write_text(self.out, json.dumps(self.found) + "\n")

    def earlier(self, *keys: str) -> Any:
        """A figure of an earlier stage; None where it has none."""
        path = self.folder / "results.json"
        found: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for key in ("stages", *keys):
            found = found.get(key, {}) if isinstance(found, dict) else {}
        return found or None

    def trainer(self, recipe: str = "dense_1b", **keys: Any) -> Trainer:
        """A trainer of its own folder on the material, with new weights."""
        self._world = self._world or join(self.device.type, 120)
        self._runs += 1
        path = self.folder / "runs" / f"{self.out.stem}-{self._runs}.yaml"
        path.parent.mkdir(exist_ok=True)
        settings: dict[str, Any] = {
            "recipe": recipe, "shards": "shards", "tokenizer": "tokenizer.json", "steps": 100_000,
            "global_batch": 16, "eval_every": 0, "nproc_per_node": 1, "device": self.device.type,
        }  # fmt: skip
        if self.dry:
            model = TINY_MODEL | ({"moe": TINY_EXPERTS} if recipe.startswith("moe") else {})
            settings |= {"model": model, "context": 64, "global_batch": 4, "dtype": "float32"}
        path.write_text(yaml.safe_dump(settings | keys))
        config = load_run(path)
        vocabulary = Vocabulary.open(config.tokenizer)
        trainer = Trainer(config, self._world, vocabulary, open_data(config, vocabulary))
        trainer.resume()
        return trainer

    def fitting(self, figures: dict[str, Any], recipe: str, **keys: Any) -> Trainer:
        """The first of some micro-batches that fits, warm; the others stand in the figures."""
        tries: list[dict[str, Any]] = [
            {"micro_batch": 4}, {"micro_batch": 2},
            {"micro_batch": 2, "parallel": {"recompute": "selective"}},
            {"micro_batch": 1, "parallel": {"recompute": "full"}},
        ]  # fmt: skip
        for settings in tries:
            figures["settings"] = settings
            try:
                trainer = self.trainer(recipe, **settings, **keys)
                began = time.monotonic()
                steps(trainer, 2)
                self.wait()
                figures["first_steps_seconds"] = round(time.monotonic() - began, 1)
                steps(trainer, 2 if self.dry else 6)
                return trainer
            except torch.cuda.OutOfMemoryError as error:
                figures.setdefault("did_not_fit", []).append(settings)
                last = str(error)
            trainer = None  # type: ignore[assignment]
            self.free()
        raise MemoryError(last)

    def wait(self) -> None:
        """Until the device has done all that it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def free(self) -> None:
        """Give back what nothing refers to any more."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def seconds(self, run: Run, n: int = 1) -> float:
        """Of one of `n` runs in a row, the device's work included."""
        self.wait()
        began = time.perf_counter()
        for _ in range(n):
            run()
        self.wait()
        return (time.perf_counter() - began) / n

    def alternated(self, runs: dict[str, Run], n: int) -> dict[str, float]:
        """Median seconds of one run of each, in three rounds of `n`, by turns."""
        found: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(1 if self.dry else 3):
            for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
                found[name].append(self.seconds(runs[name], n))
        return {name: round(statistics.median(times), 6) for name, times in found.items()}

    def speed(self, figures: dict[str, Any], trainer: Trainer, seconds: float) -> None:
        """Tokens a second, MFU and memory of steps of so many seconds."""
        config, size = trainer.config, trainer.vocabulary.size
        rate = config.global_batch * config.context / seconds
        flops = flops_per_token(config.model, size, config.context) * rate
        figures |= {
            "parameters": parameter_count(config.model, size),
            "active_parameters": active_parameters(config.model, size),
            "step_seconds": round(seconds, 5),
            "tokens_per_second": round(rate, 1),
            "tflops": round(flops / 1e12, 3),
        }
        measured = self.earlier("ceiling", "matmul", "tflops")
        if measured:
            figures["mfu_of_measured_peak"] = round(flops / 1e12 / measured, 4)
        if self.device.type == "cuda":
            sheet = peak_flops(torch.cuda.get_device_name(), config.dtype)
            figures["mfu"] = round(flops / sheet, 4) if sheet else None
            figures["peak_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
            figures["peak_reserved_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 2)


class Part:
    """A part of a stage; see `Bench.part`."""

    def __init__(self, bench: Bench, figures: dict[str, Any]) -> None:
        self.bench, self.figures = bench, figures

    def __enter__(self) -> dict[str, Any]:
        return self.figures

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        told = isinstance(error, Exception)
        if told:
            self.bench.failed = True
            traceback.print_exception(error)
            self.figures["error"] = f"{type(error).__name__}: {error}"[:2000]
        self.bench.write()
        return told


def steps(trainer: Trainer, n: int) -> None:
    """`n` steps; what the spike report keeps of them is dropped, as looking at it would."""
    for _ in range(n):
        trainer.train_step(stop=False)
        trainer.advance()
    trainer.review.waiting.clear()


def one(trainer: Trainer) -> Run:
    """A step of a trainer, to be timed."""
    return lambda: steps(trainer, 1)


def compare(figures: dict[str, Any], found: dict[str, float]) -> None:
    """Seconds on and off, and what `on` costs as a share."""
    figures |= {f"{name}_seconds": value for name, value in found.items()}
    figures["cost_share"] = round(found["on"] / found["off"] - 1, 5)
