"""Weights of a Hugging Face folder in a model of ours, for continued pretraining.

Layouts: Qwen3, Llama and Dots1 (`training.hf_layout`), safetensors in one file or several. Tensors
are read one at a time, so that a process never holds more than one of them beside its share.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from training.errors import TrainingError
from training.hf_layout import pieces, read_json
from training.network.initial import assign

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
TABLES = ("model.embed_tokens.weight", "lm_head.weight")


@torch.no_grad()
def load_hf(folder: Path, model: nn.Module) -> None:
    """Copy the weights in `folder` into a model, whole or sharded; every rank calls it alike.

    The parameters that a process holds are filled, whatever part of the model they are; biases of
    routers too. Raises TrainingError where a tensor is missing or has another shape.
    """
    with ExitStack() as stack:
        opened = _Folder(folder, stack)
        buffers = [(n, b) for n, b in model.named_buffers() if n.endswith("correction_bias")]
        for name, ours in [*model.named_parameters(), *buffers]:
            assign(ours, _whole(opened, name, ours))


def _whole(opened: _Folder, name: str, ours: Tensor) -> Tensor:
    """A tensor of ours in full, put together from what lies in the folder."""
    parts = pieces(name, tuple(ours.shape))
    if len(parts) == 1:
        return opened.read(parts[0][0], tuple(ours.shape))
    whole = torch.empty(ours.shape)
    for theirs, expert, rows in parts:
        assert expert is not None
        part = whole[expert, rows]
        part.copy_(opened.read(theirs, tuple(part.shape)))
    return whole


class _Folder:
    """The tensors of a folder by name; files are opened when first needed and mapped, not read."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self._opened: dict[str, Any] = {}
        self._map: dict[str, str] | None = None
        if (folder / INDEX).is_file():
            self._map = read_json(folder / INDEX)["weight_map"]
        elif not (folder / SINGLE).is_file():
            message = f"{folder} holds neither {SINGLE} nor {INDEX}"
            raise TrainingError(message, hint="name a folder that `save_pretrained` wrote")

    def read(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor of this name; TrainingError where it is not there or shaped otherwise."""
        file = SINGLE if self._map is None else self._map.get(name)
        opened = None if file is None else self._open(file)
        if opened is None or name not in opened.keys():  # noqa: SIM118, it is no dict
            message = f"{self.folder} lacks the tensor {name}"
            raise TrainingError(message, hint="is it the whole model, in this layout?")
        found: Tensor = opened.get_tensor(name)
        if name in TABLES and found.shape[0] > shape[0]:
            found = found[: shape[0]]  # published tables are filled up
        if tuple(found.shape) != shape:
            message = f"{self.folder}: {name} is {list(found.shape)}, the run's model has {shape}"
            raise TrainingError(message, hint="set the keys of `model` as its config.json has them")
        return found

    def _open(self, file: str) -> Any:
        from safetensors import SafetensorError, safe_open

        if file not in self._opened:
            try:
                handle = safe_open(self.folder / file, framework="pt")
                self._opened[file] = self._stack.enter_context(handle)
            except (OSError, SafetensorError) as error:
                message = f"{self.folder / file} cannot be read: {error}"
                raise TrainingError(message, hint="fetch the folder again") from error
        return self._opened[file]
