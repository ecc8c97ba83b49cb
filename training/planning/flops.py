"""Parameters and floating-point operations of a model, from its shape alone. No torch here.

Operations of one token, forward and backward, in a sequence of T tokens:

    6 * (parameters of the matrix products the token passes)  +  6 * layers * heads * E * T

A product costs 2 operations a weight, and the backward pass costs twice the forward pass. The table
of the input embedding is looked up, not multiplied, so it does not count; the output head does,
tied or not. Of the experts those a token passes count. Attention: scores and weighted values are
2 * heads * E each for a pair of tokens, and a token sees T/2 others on the average as attention is
causal (PaLM, arXiv:2204.02311, appendix B, counts the pairs that are masked too: 12 in place of 6).
Document masks leave fewer pairs, and recomputed activations cost more; neither is counted, as is
usual for model FLOPs utilisation (MFU).
"""

from __future__ import annotations

from typing import Literal

from training.settings.model import ModelConfig

Dtype = Literal["bfloat16", "float16", "float8", "float32"]

# dense peak in TFLOP/s: bfloat16 (float16 alike), float8, float32 without TF32; None: none there.
# The first name that is part of the device's name counts. Sources: the vendors' data sheets
# (figures "with sparsity" halved).
PEAKS: list[tuple[str, float, float | None, float | None]] = [
    ("GB300", 2500, 5000, None),
    ("B300", 2250, 4500, None),
    ("GB200", 2500, 5000, 90),
    ("B200", 2250, 4500, 80),
    ("B100", 1750, 3500, 60),
    ("GH200", 989, 1979, 67),
    ("H200 NVL", 835, 1671, 60),
    ("H200", 989, 1979, 67),
    ("H100 PCIe", 756, 1513, 51),
    ("H100 NVL", 835, 1671, 60),
    ("H100", 989, 1979, 67),
    ("H20", 148, 296, 44),
    ("A100", 312, None, 19.5),
    ("A800", 312, None, 19.5),
    ("L40S", 362, 733, 91.6),
    ("L40", 181, 362, 90.5),
    ("L4", 121, 242, 30.3),
    ("A10G", 70, None, 35),
    ("A10", 125, None, 31.2),
    ("A40", 149.7, None, 37.4),
    ("RTX 4090", 165.2, 330.3, 82.6),
    ("RTX 3090", 71, None, 35.6),
    ("MI355X", 2516, 5033, 157.3),
    ("MI325X", 1307, 2615, 163.4),
    ("MI300X", 1307, 2615, 163.4),
    ("MI250X", 191.5, None, 23.9),  # torch sees one of its two dies
]


def peak_flops(device_name: str, dtype: Dtype = "bfloat16") -> float | None:
    """Dense peak of a device (operations a second) in this arithmetic; None where it is not known.

    `device_name`: what `torch.cuda.get_device_name()` says, as "NVIDIA H100 80GB HBM3".
    """
    for name, half, eighth, single in PEAKS:
        if _part_of(name, device_name):
            peak = {"float32": single, "float8": eighth}.get(dtype, half)
            return None if peak is None else peak * 1e12
    return None


def _part_of(name: str, device_name: str) -> bool:
    """Whether the device's words begin with those of the name, at a place where a word begins."""
    words = f" {device_name.replace('-', ' ')} "
    return f" {name} " in words or f" {name}_" in words


def attention_parameters(c: ModelConfig) -> int:
    """Weights of the four projections of one layer."""
    return c.dim * c.head_dim * 2 * (c.heads + c.kv_heads)


def ffn_parameters(c: ModelConfig, layer: int, *, active: bool) -> int:
    """Weights of the SwiGLU block, or of router and experts, of one layer.

    `active`: of the experts only those that one token passes.
    """
    if c.moe is None or not c.is_moe(layer):
        return 3 * c.dim * c.ffn
    experts = (c.moe.top_k if active else c.moe.n_experts) + c.moe.shared
    return 3 * c.dim * c.moe.expert_ffn * experts + c.dim * c.moe.n_experts


def norm_parameters(c: ModelConfig) -> int:
    """Weights of all norms."""
    return c.layers * (2 * c.dim + (2 * c.head_dim if c.qk_norm else 0)) + c.dim


def _count(c: ModelConfig, vocab_size: int, *, active: bool) -> int:
    blocks = sum(ffn_parameters(c, i, active=active) for i in range(c.layers))
    embeddings = vocab_size * c.dim * (1 if c.tied_embeddings else 2)
    return c.layers * attention_parameters(c) + blocks + norm_parameters(c) + embeddings


def parameter_count(c: ModelConfig, vocab_size: int) -> int:
    """Parameters of the model, without building it."""
    return _count(c, vocab_size, active=False)


def active_parameters(c: ModelConfig, vocab_size: int) -> int:
    """Parameters that one token passes, embeddings included; dense: all of them."""
    return _count(c, vocab_size, active=True)


def matrix_parameters(c: ModelConfig, vocab_size: int) -> int:
    """Weights of the matrix products that one token passes, the output head among them."""
    table = 0 if c.tied_embeddings else vocab_size * c.dim
    return active_parameters(c, vocab_size) - norm_parameters(c) - table


def flops_per_token(c: ModelConfig, vocab_size: int, context: int) -> float:
    """Operations of one token, forward and backward, in sequences of `context` tokens."""
    attention = 6 * c.layers * c.heads * c.head_dim * context
    return float(6 * matrix_parameters(c, vocab_size) + attention)
