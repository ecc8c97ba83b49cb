"""Values for parameters, whole or sharded: a name and a seed give one tensor, however it is split.

Random values are drawn in blocks of whole rows, each block from its own generator, so that a
process that holds some rows of a big matrix draws little more than those.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

BLOCK = 1 << 20  # values of one generator, about


@torch.no_grad()
def draw(parameter: nn.Parameter, key: str, std: float) -> None:
    """Fill with Normal(0, std) cut at 3 deviations, as `key` has it."""
    rows = _local_rows(parameter)
    if rows is None:
        whole = torch.empty(parameter.shape)
        _fill(whole, 0, parameter.shape, key, std)
        assign(parameter, whole)
        return
    local = parameter.to_local() if isinstance(parameter, DTensor) else parameter
    _fill(local, rows[0], parameter.shape, key, std)


@torch.no_grad()
def assign(parameter: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into a parameter, of which this process may hold a part."""
    if not isinstance(parameter, DTensor):
        parameter.copy_(whole)
        return
    mesh, placements = parameter.device_mesh, parameter.placements
    whole = whole.to(device=parameter.device, dtype=parameter.dtype)
    # every process has the whole tensor already: nothing is sent
    part = distribute_tensor(whole, mesh, placements, src_data_rank=None)
    parameter.to_local().copy_(part.to_local())


def _local_rows(parameter: Tensor) -> tuple[int, int] | None:
    """First and last row that are here, where a parameter is whole or cut by rows alone."""
    if not isinstance(parameter, DTensor):
        return 0, len(parameter)
    cuts = [dim for dim, placed in enumerate(parameter.placements) if not placed.is_replicate()]
    if not cuts:
        return 0, len(parameter)
    placed = parameter.placements[cuts[0]]
    if len(cuts) > 1 or type(placed) is not Shard or placed.dim != 0:
        return None
    mesh = parameter.device_mesh
    per_rank = -(-len(parameter) // mesh.size(cuts[0]))
    first = min(mesh.get_local_rank(cuts[0]) * per_rank, len(parameter))
    return first, first + len(parameter.to_local())


def _fill(local: Tensor, first: int, shape: torch.Size, key: str, std: float) -> None:
    """Fill `local`, the rows from `first` on of a tensor of `shape`."""
    last = first + len(local)
    rows = max(1, BLOCK // shape[1:].numel())
    for number in range(first // rows, -(-last // rows)):
        start, end = number * rows, min((number + 1) * rows, shape[0])
        digest = hashlib.sha256(f"{key} {number}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        block = torch.empty(end - start, *shape[1:])
        nn.init.trunc_normal_(block, std=std, a=-3 * std, b=3 * std, generator=generator)
        low, high = max(first, start), min(last, end)
        local[low - first : high - first].copy_(block[low - start : high - start])
