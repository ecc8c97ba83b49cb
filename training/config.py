"""A training run as a file: `runs/<name>.yaml`, checked before anything is launched. No torch here.

The file names a recipe, the data, and overrides; every other key has a default. The name of the run
is the name of the file. Relative paths start at the storage root (the folder above `runs/`).
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from training.errors import RunConfigError
from training.layouts.layout import check_layout
from training.recipes import RECIPES, Recipe
from training.schedule import problem_of as schedule_problem
from training.settings.data import PhaseConfig, increasing
from training.settings.keys import read_keys, section_of, there
from training.settings.launch import LONGEST_WAIT, LaunchConfig
from training.settings.parallel import ParallelConfig
from training.settings.watch import WatchConfig

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RECORD = "run.json"
LANGUAGES = "languages.json"
"""In the folder of a run: held-out shard to [documents], the language of each. Training reads no
Parquet, where they stand; see `training.evaluate`."""
MOST_STEPS = 100_000_000
PATHS = ("plan", "tokenizer", "out", "parent_root", "data_root", "weights")
# where a run lies and how it is spread does not make it another run
NOT_IDENTITY = {
    "name", "plan", "shards", "tokenizer", "out", "parent_root", "data_root", "nproc_per_node",
    "micro_batch", "checkpoint_every", "keep_checkpoints", "log_every", "stop_after",
    "device", "parallel", "launch", "watch", "timeout_seconds", "sigterm_seconds", "eval_every",
    "eval_rows", "max_skips", "keep_every", "max_failed_saves", "accept_change", "attention",
    "weights",
}  # fmt: skip


class RunConfig(Recipe):
    """One training run: the recipe's settings, the data, the length and the place."""

    name: str
    recipe: str
    plan: Path | None = None
    """The training plan written by the mixture; or `shards`."""
    shards: list[Path] = Field(default=[])
    """Shards by prefix, or folders of them, mixed by their size."""
    phases: list[PhaseConfig] = Field(default=[])
    """Weights of the sources by token count, in place of those of the plan or of the sizes."""
    data_root: Path | None = None
    """Folder that the paths of the plan start from; default: the store the plan lies in."""
    tokenizer: Path
    """`tokenizer.json`: vocabulary size, end of text, bytes of a token."""
    out: Path
    """Folder of the run: `metrics.jsonl`, `checkpoints/`, `result.json`."""
    steps: int = Field(ge=1, le=MOST_STEPS)
    warmup_steps: int = Field(ge=0)
    nproc_per_node: int | None = Field(default=None, ge=1, le=1024)
    """Processes; default: the GPUs, else 2 on CPU."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    parallel: ParallelConfig = ParallelConfig()
    launch: LaunchConfig = LaunchConfig()
    watch: WatchConfig = WatchConfig()
    seed: int = Field(default=0, ge=0, lt=2**63)
    checkpoint_every: int = Field(default=100, ge=1)
    keep_checkpoints: int = Field(default=3, ge=1)
    """Newest good checkpoints that stay."""
    keep_every: int | None = Field(default=None, ge=1)
    """Checkpoints whose step it divides stay for good; default: none."""
    max_failed_saves: int = Field(default=0, ge=0)
    """Saves in a row that may fail (a full disk) before the run stops; the last one must not."""
    accept_change: list[Literal["configuration", "tokenizer", "data", "quarantine"]] = Field(
        default=[]
    )
    """What may differ from the checkpoint that a run goes on from, knowing what that does;
    `quarantine`: go on without the samples that the run stopped at."""
    parent: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]+@(\d+|latest)$")
    """`name@step` (or `name@latest`): start from the weights of another run."""
    weights: Path | None = None
    """Folder of a Hugging Face model (Qwen3, Llama or Dots1 layout) to start from, for continued
    pretraining; `model` must describe it."""
    from_parent: list[Literal["optimizer", "samples"]] = Field(default=[])
    """What is taken over beside the weights: the optimiser's moments; where the parent stopped in
    the order of samples, so that the run goes on behind it and `phases` count its tokens too."""
    parent_root: Path
    """Folder of the runs that `parent` may name."""
    until: Literal["steps", "unigram"] = "steps"
    """`unigram`: stop once held-out bits per byte are below the unigram entropy of the text."""
    log_every: int = Field(default=10, ge=1, le=10_000)
    """Steps between two transfers of metrics from the device to file, tracking and log."""
    stop_after: int | None = Field(default=None, ge=1)
    """Save and leave after this step, as if stopped from outside; the next start goes on."""
    timeout_seconds: float = Field(default=600, ge=5, le=LONGEST_WAIT)
    """How long a rank waits for the others before it gives up."""
    sigterm_seconds: float = Field(default=20, ge=1, le=LONGEST_WAIT)
    """From SIGTERM to leaving, with a checkpoint saved."""

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        if (self.plan is None) == (not self.shards):
            message = "give either plan or shards, and one of them"
            raise ValueError(message)
        if (problem := schedule_problem(self)) is not None:
            raise ValueError(problem)
        if self.parent is not None and self.weights is not None:
            message = f"parent {self.parent} and weights {self.weights}: give one of them"
            raise ValueError(message)
        if self.from_parent and self.parent is None:
            message = f"from_parent {self.from_parent} without parent"
            raise ValueError(message)
        increasing(self.batch_ramp, "batch_ramp")
        increasing(self.phases, "phases")
        return self

    def accumulation(self, world: int) -> tuple[int, int]:
        """(micro-batches a step, sequences in each) for every one of `world` ranks, all alike.

        Uneven ones would wait for each other for ever. Steps of a batch ramp have fewer.
        RunConfigError where the world size does not divide every global batch.
        """
        sizes = [*(stage.global_batch for stage in self.batch_ramp), self.global_batch]
        for size in sizes:
            if size % world:
                message = f"global_batch {size} cannot be shared by {world} processes"
                fits = [n for n in range(world, 0, -1) if not any(s % n for s in sizes)]
                hint = f"set nproc_per_node: {fits[0]}, or global_batch to a multiple of {world}"
                raise RunConfigError(message, hint=hint)
        share = self.global_batch // world
        size = micro_batch(share, self.micro_batch)
        return share // size, size

    @property
    def origin(self) -> str:
        """Where the weights come from, for people."""
        if self.weights is not None:
            return f"the weights in {self.weights}"
        return f"parent {self.parent}" if self.parent else "new weights"

    def identity(self) -> dict[str, Any]:
        """The settings that make this run this run, as JSON values; places are not among them."""
        return self.model_dump(mode="json", exclude=NOT_IDENTITY)

    def config_hash(self) -> str:
        """SHA-256 of the canonical JSON of `identity`."""
        text = json.dumps(
            self.identity(), sort_keys=True, ensure_ascii=False, separators=(",", ":")
        )
        return hashlib.sha256(text.encode()).hexdigest()


def micro_batch(share: int, most: int) -> int:
    """Sequences of a micro-batch: the most that divide a rank's share, alike on all ranks."""
    return max(n for n in range(1, min(most, share) + 1) if share % n == 0)


def load_run(path: str | Path, **overrides: Any) -> RunConfig:
    """Read, complete and check a run file; RunConfigError names key, value and fix."""
    path = Path(path).absolute()
    content = read_keys(path) | overrides
    if not NAME.fullmatch(path.stem) or ".." in path.stem:
        message = f"{path}: {path.stem!r} cannot be the name of a run"
        raise RunConfigError(message, hint="letters, digits, '.', '_' and '-', a letter first")
    root = path.parent.parent if path.parent.name == "runs" else path.parent
    recipe_name = content.get("recipe", "tiny_cpu")
    if not isinstance(recipe_name, str) or recipe_name not in RECIPES:
        message = f"{path}: recipe {recipe_name!r} is not known"
        raise RunConfigError(message, hint=f"one of {', '.join(RECIPES)}")
    settings = _complete(RECIPES[recipe_name]().model_dump(), content, path.stem, root)
    try:
        config = RunConfig(**settings | {"recipe": recipe_name})
    except ValidationError as error:
        raise _explain(path, error) from error
    _check_files(path, config)
    if config.nproc_per_node:
        check_layout(config, config.nproc_per_node * config.launch.nodes)
    return config


def _complete(
    recipe: dict[str, Any], content: dict[str, Any], name: str, root: Path
) -> dict[str, Any]:
    """Recipe, then file, then defaults that follow from both; paths made absolute."""
    given = dict(content)
    settings: dict[str, Any] = _merged(recipe, given)
    settings.setdefault("name", name)
    settings.setdefault("out", root / "checkpoints" / name)
    settings.setdefault("parent_root", root / "checkpoints")
    if isinstance(steps := settings.get("steps"), int) and isinstance(settings["warmup"], int):
        settings.setdefault("warmup_steps", min(settings["warmup"], steps // 10))
    for key in PATHS:
        if isinstance(settings.get(key), str | Path):
            settings[key] = _absolute(settings[key], root)
    shards = settings.get("shards", [])
    shards = [shards] if isinstance(shards, str) else shards
    if isinstance(shards, list):
        settings["shards"] = [
            _absolute(s, root) if isinstance(s, str | Path) else s for s in shards
        ]
    return settings


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` over `below`, section by section."""
    both = {
        key: _merged(below[key], value)
        for key, value in above.items()
        if isinstance(value, dict) and isinstance(below.get(key), dict)
    }
    return below | above | both


def _absolute(value: str | Path, root: Path) -> Path:
    """Below the storage root; where that is not there, below the current folder."""
    path, here = root / value, Path(value).absolute()
    return here if not there(path, Path.exists) and there(here, Path.exists) else path


def _check_files(path: Path, config: RunConfig) -> None:
    for key, file in (("plan", config.plan), ("tokenizer", config.tokenizer)):
        if file is not None and not there(file):
            message = f"{path}: {key} {file} is not there"
            raise RunConfigError(message, hint=f"materialise it, or correct the key {key}")
    if config.weights is not None and not there(config.weights / "config.json"):
        message = f"{path}: weights {config.weights} is no folder of a Hugging Face model"
        raise RunConfigError(message, hint="name the folder that holds config.json")
    if (config.out.exists() and not config.out.is_dir()) or "\0" in str(config.out):
        message = f"{path}: out {str(config.out)!r} is no folder"
        raise RunConfigError(message, hint="leave the key out, or name a folder")
    if config.name != path.stem:
        message = f"{path}: name {config.name!r} differs from the file's"
        raise RunConfigError(message, hint="leave the key out; the file names the run")


def _explain(path: Path, error: ValidationError) -> RunConfigError:
    """The first complaint of pydantic as key, value, fix."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"]) or "the keys named here"
    value, kind = first["input"], first["type"]
    if kind == "missing":
        return RunConfigError(f"{path}: the key {key} is missing", hint=f"add `{key}: …`")
    if kind == "extra_forbidden":
        known = ", ".join(sorted(section_of(RunConfig, first["loc"][:-1]).model_fields))
        return RunConfigError(f"{path}: the key {key} ({value!r}) is unknown", hint=known)
    reason = first["msg"].removeprefix("Value error, ")
    if first["loc"] and kind != "value_error":
        return RunConfigError(f"{path}: {key} is {value!r}", hint=reason)
    return RunConfigError(f"{path}: {reason}", hint=f"correct {key}")


def recorded(out: Path) -> dict[str, Any] | None:
    """What `run.json` of a run folder says of the run that was started there, if any was."""
    path = out / RECORD
    if not path.exists():
        return None
    try:
        record = dict(json.loads(path.read_bytes()))
        _ = record["config_hash"], dict(record["identity"]), dict(record["config"])
    except (OSError, ValueError, TypeError, KeyError) as error:
        message = f"{path} is damaged"
        hint = "move it away; the run goes on from its checkpoints and writes it anew"
        raise RunConfigError(message, hint=hint) from error
    return record


def check_same_run(config: RunConfig) -> None:
    """RunConfigError where another configuration already ran under this name; names the keys."""
    record = recorded(config.out)
    if record is None or record["config_hash"] == config.config_hash():
        return
    if "configuration" in config.accept_change:
        return
    before, now = record["identity"], config.identity()
    keys = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
    changes = ", ".join(f"{k}: {before.get(k)!r} is now {now.get(k)!r}" for k in keys)
    message = f"the run {config.name} was started with another configuration ({changes})"
    other = f"name the new run otherwise (`parent: {config.name}@latest`)"
    hint = f"undo the change, or {other}, or set `accept_change: [configuration]`"
    raise RunConfigError(message, hint=hint)
