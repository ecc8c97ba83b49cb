"""This process among the others: its process group, its device, and its place in the mesh.

gloo on CPU, nccl on GPUs. What is done with the processes stands in `training.parallel`, what their
numbers must fulfil in `training.layouts.layout`. The mesh has the dimensions

    pipeline, replicate, shard, tensor        from the slowest links to the fastest

so that neighbours in rank share matrix products. Ranks that differ in replicate or shard only are
the *data ranks*: they read different sequences. All others of a data rank read the same ones.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import HashStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from training.errors import TrainingError
from training.layouts.layout import Layout
from training.ranks.meeting import meet
from training.ranks.memory import keep_freed_memory
from training.settings.parallel import ParallelConfig

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process among the others."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh
    """All processes: pipeline, replicate, shard, tensor."""
    data: DeviceMesh
    """The ranks that read different sequences; one dimension."""
    tokens: DeviceMesh | None
    """All processes again where tensor is above 1: pipeline, replicate, tokens = shard x tensor.
    Between matrix products each of them holds other tokens."""
    experts: DeviceMesh | None
    """All processes again where they share experts: tokens is cut into expert_shard and expert."""
    layout: Layout

    @property
    def first(self) -> bool:
        """Whether this is the one that writes logs, metrics and pointers."""
        return self.rank == 0

    @property
    def data_rank(self) -> int:
        """Which share of the global batch this rank reads."""
        return self.data.get_local_rank()

    @property
    def data_size(self) -> int:
        """Shares of the global batch."""
        return self.layout.data_size

    def sum_(self, tensor: Tensor) -> Tensor:
        """Add up over the ranks that hold the same layers and other tokens, in place.

        For what is counted inside a layer, such as the load of experts.
        """
        group = self.data if self.tokens is None else self.tokens["replicate", "tokens"]
        if group.size() > 1:
            for dimension in range(group.ndim):
                dist.all_reduce(tensor, group=group.get_group(dimension))
        return tensor

    def total_(self, tensor: Tensor) -> Tensor:
        """Add up over the data ranks, in place: the same bits on every rank of the world.

        Floating point. What the ranks of one data rank tell is the same and counts once; where it
        differs, its mean does.
        """
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor if self.size == self.data_size else tensor.div_(self.size // self.data_size)

    def gather(self, tensor: Tensor) -> Tensor:
        """[n, ...] of each data rank, one after the other: [data_size * n, ...]."""
        if self.data_size == 1:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self.data_size)]
        dist.all_gather(parts, tensor.contiguous(), group=self.data.get_group())
        return torch.cat(parts)


def join(
    device: str,
    timeout_seconds: float,
    parallel: ParallelConfig | None = None,
    *,
    join_seconds: float = 120,
) -> World:
    """Join the process group that `torch.distributed.run` describes in the environment.

    The ranks wait `join_seconds` for each other to appear, then `timeout_seconds` in each
    collective. Raises TrainingError where GPUs are demanded and there are none, RunConfigError
    where the degrees do not divide the processes, LostRanksError where ranks did not appear.
    """
    cuda = torch.cuda.is_available()
    if device == "cuda" and not cuda:
        message = "device is 'cuda', and no GPU is visible to this process"
        raise TrainingError(message, hint="set device: cpu, or run where `nvidia-smi` lists a GPU")
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    layout = Layout.of(parallel or ParallelConfig(), size)
    timeout = timedelta(seconds=timeout_seconds)
    kind = "cuda" if cuda and device != "cpu" else "cpu"
    here = torch.device(kind, int(os.environ.get("LOCAL_RANK", "0"))) if kind == "cuda" else None
    if here is not None:
        torch.cuda.set_device(here)
    else:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        keep_freed_memory()
    dist.init_process_group(
        "nccl" if kind == "cuda" else "gloo",
        store=_store(rank, size, join_seconds),
        rank=rank,
        world_size=size,
        timeout=timeout,
    )
    return place(layout, here or torch.device("cpu"))


def place(layout: Layout, device: torch.device) -> World:
    """The place of this process in a mesh of that layout; the process group is there already."""

    def mesh_of(**inner: int) -> DeviceMesh:
        return init_device_mesh(
            device.type,
            (layout.pipeline, layout.replicate, *inner.values()),
            mesh_dim_names=("pipeline", "replicate", *inner),
        )

    mesh = mesh_of(shard=layout.shard, tensor=layout.tensor)
    data = mesh["replicate", "shard"]._flatten("data")
    wide, expert = layout.shard * layout.tensor, layout.expert
    tokens = mesh_of(tokens=wide) if layout.tensor > 1 else None
    experts = mesh_of(expert_shard=wide // expert, expert=expert) if expert > 1 else None
    rank, size = dist.get_rank(), dist.get_world_size()
    return World(rank, size, device, mesh, data, tokens, experts, layout)


def _store(rank: int, size: int, seconds: float) -> Store:
    """The agents' store, or the part of it that belongs to this attempt (`ranks.meeting`)."""
    if "MASTER_ADDR" not in os.environ:  # started without torch.distributed.run
        return HashStore()
    agent_serves = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=rank == 0 and not agent_serves,
        timeout=timedelta(seconds=seconds),
    )
    return meet(store, rank, size, seconds)


def agree(value: T, world: World) -> T:
    """The value that the first rank holds, on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=world.device)
    return box[0]
