"""Processes and sharding: the process group of a rank, the mesh, and FSDP2 over the decoder.

Data parallelism with sharded weights, gradients and optimiser (`fully_shard`); gloo on CPU, nccl on
GPUs. The model file knows nothing of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from training.errors import TrainingError
from training.model import Decoder


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


def shard(model: Decoder, world: World, dtype: str) -> Decoder:
    """Shard the model over the mesh, block by block; arithmetic in `dtype`, reductions in float32.

    On a CPU gathered weights are kept until the backward pass: memory is plenty, messages are not.
    """
    policy = MixedPrecisionPolicy(
        param_dtype=getattr(torch, dtype) if dtype != "float32" else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,
    )
    reshard = world.device.type == "cuda"
    for block in model.layers:
        fully_shard(block, mesh=world.mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=world.mesh, mp_policy=policy, reshard_after_forward=reshard)
    return model


def agree(value: object, world: World) -> object:
    """The value that the first rank holds, on every rank."""
    box = [value]
    dist.broadcast_object_list(box, src=0, device=world.device)
    return box[0]
