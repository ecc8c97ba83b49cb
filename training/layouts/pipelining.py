"""Stages of layers on different processes, run one forward, one backward (1F1B).

Stage s of S runs S - s forward passes ahead, then one backward and one forward in turn, so it holds
the activations of S - s micro-batches at most, not of all (PipeDream-Flush, arXiv:2006.09503). The
shapes that travel are known from the run file: nothing is negotiated. (`torch.distributed.
pipelining` infers them by running the model, wants as many micro-batches as stages, and differs
between the versions of torch that this must run with.)

Every stage gets the positions and documents of all micro-batches from its own copy of the batch;
only the hidden state [B, T, D] and its gradient travel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from training.model import Decoder
from training.watching.stopwatch import mark

ON, BACK = 1, -1  # to the next stage, to the previous one
Micro = Sequence[Tensor]
"""Tokens, positions, documents, mask, targets of a micro-batch, each [B, T]."""


class StageLayers(nn.Module):
    """Some of the layers of a decoder, under the names that they have in the whole."""

    def __init__(self, layers: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)

    def __iter__(self) -> Iterator[nn.Module]:
        return iter(self.children())

    def __len__(self) -> int:
        return len(self._modules)


def layers_of_stage(layers: int, stage: int, stages: int) -> range:
    """Layers of a stage, contiguous; the first stages take what does not divide: the last one has
    the head."""
    each, more = divmod(layers, stages)
    begin = stage * each + min(stage, more)
    return range(begin, begin + each + (stage < more))


def keep_stage(model: Decoder, stage: int, stages: int) -> None:
    """Leave of a decoder only one stage. What it lacks at its ends passes its input through, so its
    `forward` takes hidden states for tokens and gives hidden states for logits."""
    kept = layers_of_stage(len(model.layers), stage, stages)
    layers = {str(n): layer for n, layer in enumerate(model.layers) if n in kept}
    parts: dict[str, nn.Module] = {"layers": StageLayers(layers)}
    if stage > 0:
        parts["embed_tokens"] = nn.Identity()
    if stage < stages - 1:
        parts |= {"norm": nn.Identity(), "lm_head": nn.Identity()}
    for name, part in parts.items():
        setattr(model, name, part)


class Pipeline:
    """The schedule of one stage, and what travels between it and its neighbours."""

    def __init__(
        self,
        model: Decoder,
        group: dist.ProcessGroup,
        *,
        hidden: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """`hidden`: [sequence, width] of the hidden state that a rank holds; `dtype`: its type."""
        self.model, self.group = model, group
        self.hidden, self.dtype, self.device = hidden, dtype, device
        self.stage, self.stages = dist.get_rank(group), dist.get_world_size(group)
        self.sequences = 0
        # all stages must meet once before two of them send (NCCL makes its communicator then)
        dist.all_reduce(torch.zeros(1, device=device), group=group)

    @property
    def last(self) -> bool:
        """Whether logits leave here."""
        return self.stage == self.stages - 1

    def step(self, micro: Sequence[Micro], loss_of: Callable[[Tensor, Micro], Tensor]) -> None:
        """Forward and backward over all micro-batches. `loss_of` (logits, micro-batch), what is
        differentiated, is called in the last stage, in order."""
        ahead = min(len(micro), self.stages - self.stage)
        self.sequences = len(micro[0][0])
        waiting, running = deque(micro), _Running(self.model, len(micro))
        sent: list[dist.Work] = []
        above: Tensor | None = None  # a hidden state on its way to the next stage
        for number in range(ahead):
            below = self._exchange(receive=BACK)
            above = self._forward(waiting.popleft(), below, running, loss_of)
            if number < ahead - 1:
                _wait(sent)
                sent = self._send(above, ON)
        while True:
            gradient = self._exchange(above, ON, receive=ON)
            below = running.backward(gradient)
            if not waiting:
                break
            hidden = self._exchange(below, BACK, receive=BACK)
            above = self._forward(waiting.popleft(), hidden, running, loss_of)
        _wait(sent)
        sent = self._send(below, BACK)
        while running:
            gradient = self._exchange(receive=ON)
            below = running.backward(gradient)
            _wait(sent)
            sent = self._send(below, BACK)
        _wait(sent)

    @torch.no_grad()
    def evaluate(self, micro: Micro, of_logits: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
        """What `of_logits` makes of the logits in the last stage, on all stages; of shape and type
        of `like`."""
        below = self._exchange(receive=BACK, sequences=len(micro[0]))
        out = self.model(micro[0] if below is None else below, *micro[1:3])
        if not self.last:
            _wait(self._send(out, ON))
        return self.broadcast(of_logits(out).contiguous() if self.last else torch.empty_like(like))

    def broadcast(self, tensor: Tensor) -> Tensor:
        """What the last stage holds in `tensor`, on all of them."""
        source = dist.get_global_rank(self.group, self.stages - 1)
        dist.broadcast(tensor, src=source, group=self.group)
        return tensor

    def _forward(
        self,
        micro: Micro,
        below: Tensor | None,
        running: _Running,
        loss_of: Callable[[Tensor, Micro], Tensor],
    ) -> Tensor:
        """The hidden state to send on (in the last stage nobody takes it)."""
        mark("other")  # waiting for the neighbours
        if below is not None:
            below.requires_grad_()
        out = self.model(micro[0] if below is None else below, *micro[1:3])
        result = loss_of(out, micro) if self.last else out
        running.append(below, result)
        mark("forward")
        return result.detach()

    def _exchange(
        self, tensor: Tensor | None = None, to: int = 0, *, receive: int, sequences: int = 0
    ) -> Tensor | None:
        """Send `tensor` to one side while receiving from one; None where there is no such stage."""
        operations, got = self._operations(tensor, to), None
        if 0 <= self.stage + receive < self.stages:
            shape = (sequences or self.sequences, *self.hidden)
            got = torch.empty(shape, dtype=self.dtype, device=self.device)
            operations.append(dist.P2POp(dist.irecv, got, self._peer(receive), self.group))
        _wait(dist.batch_isend_irecv(operations) if operations else [])
        return got

    def _send(self, tensor: Tensor | None, to: int) -> list[dist.Work]:
        operations = self._operations(tensor, to)
        return list(dist.batch_isend_irecv(operations)) if operations else []

    def _operations(self, tensor: Tensor | None, to: int) -> list[dist.P2POp]:
        if tensor is None or not to or not 0 <= self.stage + to < self.stages:
            return []
        return [dist.P2POp(dist.isend, tensor.contiguous(), self._peer(to), self.group)]

    def _peer(self, side: int) -> int:
        return dist.get_global_rank(self.group, self.stage + side)


class _Running:
    """Micro-batches whose backward pass is still to come, oldest first."""

    def __init__(self, model: Decoder, number: int) -> None:
        self.model, self.left = model, number
        self._queue: deque[tuple[Tensor | None, Tensor]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def append(self, below: Tensor | None, result: Tensor) -> None:
        """A micro-batch: its input, if it came from another stage, and its output or loss."""
        self._queue.append((below, result))

    def backward(self, gradient: Tensor | None) -> Tensor | None:
        """The gradient of the oldest one's input; weights' gradients are reduced in the last."""
        below, result = self._queue.popleft()
        self.left -= 1
        model: Any = self.model
        model.set_requires_gradient_sync(not self.left)
        model.set_is_last_backward(not self.left)
        model.set_reshard_after_backward(not self.left)
        mark("other")
        torch.autograd.backward(result, gradient)
        mark("backward")
        return None if below is None else below.grad


def _wait(works: Sequence[dist.Work]) -> None:
    for work in works:
        work.wait()
