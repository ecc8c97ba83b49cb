"""Is this machine ready? What `gristmill doctor` looks at, each finding with its cure.

Looks only: nothing heavy is imported (torch and mlflow would cost seconds), nothing is changed but
a probe object that is written to the store and removed again.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.config import Config
from pipeline.config.engine import cores
from pipeline.errors import GristmillError
from pipeline.language import model_path
from resources.storage import open_store

Level = Literal["ok", "warn", "fail"]
GIB = 1 << 30
UI_PORT, MLFLOW_PORT = 3000, 5000
FREE_FAIL, FREE_WARN = 1 * GIB, 10 * GIB  # the demo writes 0.2 GiB; four files of a crawl about 6
WORKER_MEMORY = 1.5 * GIB  # a part of extraction or filtering at its peak, with the libraries
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
FASTTEXT = "fasttext-community"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `fail`: the mill will not run; `warn`: it may not do well."""

    name: str
    level: Level
    text: str
    hint: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {"name": self.name, "level": self.level, "text": self.text, "hint": self.hint}


def check(config: Config) -> list[Finding]:
    """Everything, in the order in which it would hurt."""
    findings = [_python(), *_packages(CONSTRAINTS), _fasttext(), _language_model()]
    findings += [_cores(config), _memory(config), *_disk(config), _store(config)]
    findings += [*_ports((UI_PORT, MLFLOW_PORT)), _torch(), *_ray(config)]
    return findings


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", "ok", f"Python {version}")


def _packages(constraints: Path) -> Iterator[Finding]:
    """What the core needs is installed, and in the versions that were tried together."""
    from packaging.requirements import Requirement

    missing, other = [], []
    pins = _pins(constraints)
    needed = [Requirement(line) for line in importlib.metadata.requires("gristmill") or ()]
    core = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    for requirement in core:
        version = _version(requirement.name)
        if version is None or version not in requirement.specifier:
            missing.append(f"{requirement} (found {version or 'none'})")
        elif (pin := pins.get(_plain(requirement.name))) and version.partition("+")[0] != pin:
            other.append(f"{requirement.name} {version}, tried {pin}")
    if missing:
        yield Finding("packages", "fail", "; ".join(missing), "run `make setup`")
    if other:
        hint = "other versions may give other bytes; `make setup` installs those of constraints.txt"
        yield Finding("packages", "warn", "; ".join(other), hint)
    if not missing and not other:
        yield Finding("packages", "ok", f"{len(core)} packages as in {constraints.name}")


def _pins(constraints: Path) -> dict[str, str]:
    if not constraints.is_file():
        return {}
    lines = constraints.read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {_plain(name): version.split()[0].partition("+")[0] for name, version in pairs}


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-").replace(".", "-")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _fasttext() -> Finding:
    """Several distributions install the module `fasttext` and overwrite each other."""
    providers = importlib.metadata.packages_distributions().get("fasttext", [])
    if set(providers) == {FASTTEXT}:
        return Finding("fasttext", "ok", f"provided by {FASTTEXT}")
    hint = f"pip uninstall the others, then pip install --force-reinstall --no-deps {FASTTEXT}"
    return Finding("fasttext", "fail", f"provided by {sorted(set(providers)) or 'nothing'}", hint)


def _language_model() -> Finding:
    try:
        return Finding("language model", "ok", str(model_path()))
    except GristmillError as error:
        return Finding("language model", "fail", error.message, error.hint)


def _cores(config: Config) -> Finding:
    workers, here = config.engine.n_workers, cores()
    text = f"{here} cores, {workers} workers"
    if config.engine.kind == "local" and workers > here:
        return Finding("cores", "warn", text, "engine.workers above the cores makes nothing faster")
    return Finding("cores", "ok", text)


def _memory(config: Config) -> Finding:
    import psutil

    free = min(psutil.virtual_memory().available, _memory_limit())
    workers = config.engine.n_workers if config.engine.kind == "local" else 1
    text = f"{free / GIB:.1f} GiB free for {workers} workers"
    if free < workers * WORKER_MEMORY:
        fit = max(1, int(free / WORKER_MEMORY))
        return Finding("memory", "warn", text, f"set engine.workers: {fit}, or free memory")
    return Finding("memory", "ok", text)


def _memory_limit() -> float:
    """The limit of this container, if it has one."""
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.is_file() else "max"
    return float(text) if text.isdigit() else float("inf")


def _disk(config: Config) -> Iterator[Finding]:
    root = config.storage.root
    places = {"temporary files": config.storage.scratch or tempfile.gettempdir()}
    if root and "://" not in root:
        places["store"] = root
    for name, place in places.items():
        path = Path(place).expanduser().absolute()
        while not path.exists():
            path = path.parent
        free = shutil.disk_usage(path).free
        level: Level = "fail" if free < FREE_FAIL else "warn" if free < FREE_WARN else "ok"
        hint = None if level == "ok" else "free space, or choose another place"
        yield Finding(f"disk for {name}", level, f"{free / GIB:.1f} GiB free at {path}", hint)


def _store(config: Config) -> Finding:
    root = config.storage.root
    if not root:
        return Finding("store", "warn", "none is named", "set storage.root, or give --root")
    try:
        open_store(root, options=config.storage).check()
    except GristmillError as error:
        return Finding("store", "fail", error.message, error.hint)
    return Finding("store", "ok", f"{root} can be written")


def _ports(ports: tuple[int, ...]) -> Iterator[Finding]:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                hint = "`gristmill up` takes the next free one and prints it"
                yield Finding(f"port {port}", "warn", "in use", hint)
            else:
                yield Finding(f"port {port}", "ok", "free")


def _torch() -> Finding:
    version = _version("torch")
    if version is None:
        return Finding("torch", "fail", "not installed", "run `make setup`")
    devices = _gpus()
    if devices and "+cpu" in version:
        hint = "install the CUDA build of torch, or train on CPU processes (slow)"
        return Finding("torch", "warn", f"{version}, but {len(devices)} GPUs are here", hint)
    text = f"{version}, {', '.join(devices) if devices else 'no GPU: training runs on CPU'}"
    return Finding("torch", "ok", text)


def _gpus() -> list[str]:
    """Names of the GPUs, from the driver's own tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:
        return []
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def _ray(config: Config) -> Iterator[Finding]:
    if config.engine.kind == "ray":
        if importlib.util.find_spec("ray") is None:
            hint = "pip install 'gristmill[ray]', or engine.kind: local"
            yield Finding("ray", "fail", "not installed", hint)
        else:
            address = config.engine.address or os.environ.get("RAY_ADDRESS") or "a local cluster"
            yield Finding("ray", "ok", f"{_version('ray')}, {address}")
