"""This process among the others: the process group of a rank, and its device.

gloo on CPU, nccl on GPUs. What is done with the processes stands in `training.parallel`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from training.errors import TrainingError


@dataclass(frozen=True)
class World:
    """This process among the others."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh

    @property
    def first(self) -> bool:
        """Whether this is the one that writes logs, metrics and pointers."""
        return self.rank == 0


def join(device: str, timeout_seconds: float) -> World:
    """Join the process group that `torch.distributed.run` describes in the environment.

    The store is prefixed by the attempt: a restarted rank must not read the address of a dead one
    (with gloo and no prefix 2 of 4 jobs never recovered). Raises TrainingError where GPUs are
    demanded and there are none.
    """
    cuda = torch.cuda.is_available()
    if device == "cuda" and not cuda:
        message = "device is 'cuda', and no GPU is visible to this process"
        raise TrainingError(message, hint="set device: cpu, or run where `nvidia-smi` lists a GPU")
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    timeout = timedelta(seconds=timeout_seconds)
    kind = "cuda" if cuda and device != "cpu" else "cpu"
    here = torch.device(kind, int(os.environ.get("LOCAL_RANK", "0"))) if kind == "cuda" else None
    if here is not None:
        torch.cuda.set_device(here)
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        store=_store(rank, size, timeout),
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    mesh = init_device_mesh(kind, (size,), mesh_dim_names=("data",))
    return World(rank, size, here or torch.device("cpu"), mesh)


def _store(rank: int, size: int, timeout: timedelta) -> Store:
    if "MASTER_ADDR" not in os.environ:  # started without torch.distributed.run
        return HashStore()
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        world_size=size,
        is_master=rank == 0 and not agent_serves,
        timeout=timeout,
    )
    return PrefixStore(f"attempt-{attempt}", store)


def agree(value: object, world: World) -> object:
    """The value that the first rank holds, on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=world.device)
    return box[0]
