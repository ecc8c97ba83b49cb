"""The devices of this machine and their memory, without importing torch."""

import os
import subprocess
from pathlib import Path

from training.planning.footprint import GIB, Device

# what `nvidia-smi` shows as usable, GiB; the first name that is part of the given one counts
MEMORY = [
    ("GB300", 276), ("B300", 268), ("GB200", 183), ("B200", 179), ("GH200", 95), ("H200", 140),
    ("H100 NVL", 93), ("H100", 79.6), ("H20", 95), ("A100 40", 39.5), ("A100", 79.2),
    ("A800", 79.2), ("L40S", 45), ("L40", 45), ("L4", 22.5), ("A10G", 22.5), ("A10", 22.5),
    ("A40", 45), ("RTX 4090", 24), ("RTX 3090", 24), ("MI355X", 288), ("MI325X", 256),
    ("MI300X", 192), ("MI250X", 64),
]  # fmt: skip
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def named_gpu(name: str, memory_gib: float | None = None) -> Device:
    """A GPU by its name; memory as given, else as listed, else unknown."""
    listed = next((gib for known, gib in MEMORY if known.lower() in name.lower()), None)
    gib = memory_gib if memory_gib is not None else listed
    return Device(name, "cuda", round(gib * GIB) if gib is not None else None)


def this_device(device: str, processes: int, memory_gib: float | None = None) -> Device:
    """What one of `processes` on this host runs on: the smallest GPU here, or a share of the CPU's.

    `device`: as in a run file (`auto`, `cpu`, `cuda`).
    """
    if device != "cpu" and (gpus := _gpus()):
        name, memory = min(gpus, key=lambda gpu: gpu[1])
        return named_gpu(name, memory_gib if memory_gib is not None else memory / 1024)
    whole = host_memory()
    name = f"this host, shared by {processes}" if processes > 1 else "this host"
    if memory_gib is not None:
        return Device(name, "cpu", round(memory_gib * GIB))
    return Device(name, "cpu", whole // processes if whole else None)


def _gpus() -> list[tuple[str, float]]:
    """(name, MiB) of each GPU that the driver lists and CUDA_VISIBLE_DEVICES leaves."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        return []
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    rows = [line.rpartition(",") for line in told.stdout.splitlines()]
    return [(n.strip(), float(mib)) for n, _, mib in rows if n and mib.strip().isdigit()]


def host_memory() -> int | None:
    """Bytes that processes here may have: the machine's, or the limit of the container."""
    found = []
    for path in map(Path, LIMITS):
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            found.append(int(text))
    if "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(found, default=None)
