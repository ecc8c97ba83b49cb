"""What a checkpoint holds: taken from model and optimiser, copied to host memory, put back.

Names are those of the whole model on every rank, so any layout can load what another one saved:
sharded tensors say which part they are, and stages of a pipeline hold other names.

    model.<parameter or buffer>            weights
    optim.state.<parameter>.<slot>         moments
    extra.<name>                           what the caller adds; equal on all ranks
    rng.<rank>.<device>                    generators, one a rank

Hyperparameters are not in it: the run file and the step say them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.tensor import DTensor

from training.saving.identity import read_tensors, tensors_told

State = dict[str, Any]
NAMES_SHOWN = 3


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> State:
    """Weights and optimiser state by parameter name; the tensors themselves, not copies."""
    weights = model.state_dict()  # first: it brings the parameters back to their shards
    moments = {}
    for name, parameter in model.named_parameters():
        if slots := optimizer.state.get(parameter):
            moments[name] = {slot: _tensor(name, slot, value) for slot, value in slots.items()}
    return {"model": dict(weights), "optim": {"state": moments}}


def _tensor(name: str, slot: str, value: object) -> Tensor:
    if not isinstance(value, Tensor):
        message = f"optimiser state {slot} of {name} is a {type(value).__name__}, not a tensor"
        raise TypeError(message)
    return value


def generators(rank: int, device: torch.device) -> State:
    """The state of this rank's random generators."""
    own = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        own["cuda"] = torch.cuda.get_rng_state(device)
    return {str(rank): own}


class Staging:
    """Host copies of a state, in buffers that the next save uses again; pinned beside a GPU.

    On a GPU the copies are queued behind the step that was done and in front of the next one, so
    the host goes on at once; `wait` (in the saver's thread) returns when they are there.
    """

    def __init__(self, device: torch.device) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._cuda = device.type == "cuda"
        self._copied: Any = None

    @torch.no_grad()
    def copy(self, state: State) -> State:
        """The same nested state over host memory, valid until the next call."""
        copied = self._copy(state, "")
        if self._cuda:
            event: Any = torch.cuda.Event  # its constructor has no types
            self._copied = event()
            self._copied.record()
        return dict(copied)

    def _copy(self, state: Any, name: str) -> Any:
        if isinstance(state, Mapping):
            return {key: self._copy(value, f"{name}.{key}") for key, value in state.items()}
        if not isinstance(state, DTensor):
            return self._buffer(name, state)
        host = self._buffer(name, state.to_local())
        # the constructor, which has no types: `from_local` would move the part to the mesh's device
        made: Any = DTensor
        return made(host, state._spec, requires_grad=False)

    def _buffer(self, name: str, tensor: Tensor) -> Tensor:
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            pin = self._cuda and tensor.numel() > 0
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=pin)
            self._buffers[name] = buffer
        return buffer.copy_(tensor, non_blocking=self._cuda)

    def wait(self) -> None:
        """Return when the copies are complete."""
        if self._copied is not None:
            self._copied.synchronize()


def restore(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    group: dist.ProcessGroup | None,
    rank: int,
) -> dict[str, Tensor]:
    """Weights, moments and generators from a checkpoint; returns what was saved as `extra`.

    Whatever layout saved it; all ranks call this together.
    """
    reader = FileSystemReader(path)
    told = reader.read_metadata()
    known = tensors_told(told)
    weights = dict(model.state_dict())
    moments = empty_moments(known, model, optimizer)
    state = {"model": weights, "optim": {"state": moments}}
    load_state(state, storage_reader=FileSystemReader(path), process_group=group)
    for name, parameter in model.named_parameters():
        optimizer.state.pop(parameter, None)
        if name in moments:
            optimizer.state[parameter] = moments[name]
    own = f"rng.{rank}."
    small = [name for name in known if name.startswith(("extra.", own))]
    found = read_tensors(reader, told, small)
    if f"{own}cpu" in found:
        torch.set_rng_state(found[f"{own}cpu"])
    if f"{own}cuda" in found and torch.cuda.is_available():
        torch.cuda.set_rng_state(found[f"{own}cuda"])
    return {n.removeprefix("extra."): t for n, t in found.items() if n.startswith("extra.")}


def empty_moments(
    known: Mapping[str, TensorStorageMetadata], model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, dict[str, Tensor]]:
    """Room for the optimiser state that a checkpoint holds, laid out as the parameters are."""
    told: dict[str, dict[str, TensorStorageMetadata]] = defaultdict(dict)
    for name, md in known.items():
        if name.startswith("optim.state."):
            owner, _, slot = name.removeprefix("optim.state.").rpartition(".")
            told[owner][slot] = md
    on_device = {p for g in optimizer.param_groups if g.get("fused") for p in g["params"]}
    room = {}
    for name, parameter in model.named_parameters():
        device = parameter.device if parameter in on_device else torch.device("cpu")
        if name in told:
            slots = told[name].items()
            room[name] = {slot: _room(md, parameter, device) for slot, md in slots}
    return room


def _room(md: TensorStorageMetadata, parameter: Tensor, device: torch.device) -> Tensor:
    dtype = md.properties.dtype
    if md.size == parameter.shape:
        return torch.zeros_like(parameter.detach(), dtype=dtype)
    return torch.zeros(md.size, dtype=dtype, device=device)


def other_model(path: Path, model: nn.Module) -> str | None:
    """How the weights in a checkpoint differ from a model's in name or shape, or None.

    Of a stage of a pipeline only what it lacks is seen.
    """
    known = tensors_told(FileSystemReader(path).read_metadata())
    there = {n.removeprefix("model."): md.size for n, md in known.items() if n.startswith("model.")}
    here = {name: tensor.shape for name, tensor in model.state_dict().items()}
    absent = [f"{name} is not in it" for name in here if name not in there]
    shapes = [
        f"{name} is {list(there[name])} in it, {list(size)} here"
        for name, size in here.items()
        if name in there and there[name] != size
    ]
    found = [*shapes, *absent]
    more = f", and {len(found) - NAMES_SHOWN} more" if len(found) > NAMES_SHOWN else ""
    return ", ".join(found[:NAMES_SHOWN]) + more if found else None
