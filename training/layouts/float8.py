"""Matrix products of the blocks in float8, for GPUs whose matrix units have it (H100, H200, L40S).

Each operand is scaled as a whole so that its largest value is the largest of the format, at every
product anew: e4m3 (4 bits of exponent, 3 of fraction) for activations and weights, e5m2 for
gradients (arXiv:2209.05433). Sums are taken in float32; weights, reductions and optimiser stay as
they are. Published gain on 8B parameters and H100s: 8,532 tokens/s a GPU against 6,667
(torchtitan's benchmarks). Embedding, head, routers and grouped experts are left alone.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from training.errors import RunConfigError

ALIGNED = 16  # the units want rows of 16 values
SMALLEST = 1e-12  # of the largest value: an operand of zeros has a scale too
CAPABILITY = (8, 9)


def use_float8(block: nn.Module) -> list[str]:
    """Let the linear layers of a block multiply in float8; returns their names.

    Those whose width is no multiple of 16 stay. Parameters keep their names and types.
    """
    found = []
    for name, module in block.named_modules():
        if type(module) is nn.Linear and not any(size % ALIGNED for size in module.weight.shape):
            module.__class__ = Float8Linear
            found.append(name)
    return found


def check_float8(device: torch.device) -> None:
    """RunConfigError where the device's matrix units have no float8."""
    if device.type != "cuda":
        message = f"parallel.fp8 is true, and this process runs on {device.type}"
        raise RunConfigError(message, hint="set parallel.fp8: false; float8 needs a GPU")
    if torch.cuda.get_device_capability(device) < CAPABILITY:
        message = f"parallel.fp8 is true, and {torch.cuda.get_device_name(device)} has no float8"
        raise RunConfigError(message, hint="set parallel.fp8: false, or use an H100, H200 or L40S")


class Float8Linear(nn.Linear):
    """A linear layer without bias whose three products are in float8."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] to [..., out]."""
        product: Any = _Product.apply  # it has no types
        return cast(Tensor, product(x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1))


class _Product(torch.autograd.Function):
    """x w^T, and its gradients g w and g^T x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiply(x, weight.t(), torch.float8_e4m3fn)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        (grad,) = gradients
        return (
            multiply(grad, weight, torch.float8_e5m2),
            multiply(grad.t(), x, torch.float8_e5m2),
        )


def multiply(a: Tensor, b: Tensor, first: torch.dtype) -> Tensor:
    """[M, K] x [K, N] in the dtype of `a`; `a` is rounded to the format `first`, `b` to e4m3."""
    a8, a_scale = to_float8(a, first)
    b8, b_scale = to_float8(b, torch.float8_e4m3fn)
    # the units take the first operand by rows and the second by columns
    a8, b8 = a8.contiguous(), b8.t().contiguous().t()
    return torch._scaled_mm(a8, b8, scale_a=a_scale, scale_b=b_scale, out_dtype=a.dtype)


def to_float8(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(values in float8, what to multiply them with to have `x` again, 0-dimensional float32)."""
    most = torch.finfo(dtype).max
    scale = x.detach().abs().amax().float().clamp(min=SMALLEST) / most
    return (x.float() / scale).clamp(-most, most).to(dtype), scale
