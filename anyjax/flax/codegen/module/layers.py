"""Flax's own layers and activations, where they compute the same as torch's."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from anyjax.flax.codegen import ops  # noqa: F401  (ops fills the table)
from anyjax.flax.codegen.graph.submodule_tree import Block
from anyjax.flax.codegen.python.templates import expression, same_layout


@dataclass(frozen=True)
class Layer:
    """A layer of Flax.

    Attributes:
      name: its class.
      arguments: (name, value, whether positional) of the constructor.
      is_snippet: whether it is a snippet in the file, by this name, and no layer of Flax.
    """

    name: str
    arguments: list[tuple[str, Any, bool]] = field(default_factory=list)
    is_snippet: bool = False


_makers: dict[type, Callable[[Any, Block], Layer | None]] = {}


def converts(*classes: type) -> Callable:
    def register(function: Callable) -> Callable:
        for cls in classes:
            _makers[cls] = function
        return function

    return register


def layer_of(block: Block) -> Layer | None:
    """Returns the layer that a block's module is, None where Flax has none that
    computes the same.
    """
    maker = _makers.get(type(block.module))
    return maker(block.module, block) if maker and block.outputs else None


def positional(**values: Any) -> list[tuple[str, Any, bool]]:
    return [(name, value, True) for name, value in values.items()]


def named(**values: Any) -> list[tuple[str, Any, bool]]:
    """Returns the arguments that differ from Flax's defaults."""
    defaults = {
        "use_bias": True,
        "use_scale": True,
        "strides": 1,
        "feature_group_count": 1,
        "kernel_dilation": 1,
        "padding": "SAME",
    }
    return [(k, v, False) for k, v in values.items() if k not in defaults or v != defaults[k]]


def single(values: object) -> Any:
    """Returns one number if all dimensions have the same, else a tuple."""
    values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    return values[0] if len(set(values)) == 1 else values


@converts(nn.Linear)
def linear(m: nn.Linear, block: Block) -> Layer:
    sizes = positional(in_features=m.in_features, out_features=m.out_features)
    return Layer("Linear", sizes + named(use_bias=m.bias is not None))


@converts(nn.Embedding)
def embedding(m: nn.Embedding, block: Block) -> Layer | None:
    if m.max_norm is not None:
        return None
    sizes = positional(num_embeddings=m.num_embeddings, features=m.embedding_dim)
    if m.padding_idx is None:
        return Layer("Embed", sizes)
    return Layer("PaddedEmbed", sizes + named(padding_idx=m.padding_idx), is_snippet=True)


@converts(nn.LayerNorm)
def layer_norm(m: nn.LayerNorm, block: Block) -> Layer | None:
    if len(m.normalized_shape) > 1:
        return None
    keywords = named(epsilon=m.eps, use_bias=m.bias is not None, use_scale=m.weight is not None)
    return Layer("LayerNorm", positional(num_features=m.normalized_shape[0]) + keywords)


@converts(nn.RMSNorm)
def rms_norm(m: nn.RMSNorm, block: Block) -> Layer | None:
    if len(m.normalized_shape) > 1 or m.eps is None:
        return None
    keywords = named(epsilon=m.eps, use_scale=m.weight is not None)
    return Layer("RMSNorm", positional(num_features=m.normalized_shape[0]) + keywords)


@converts(nn.GroupNorm)
def group_norm(m: nn.GroupNorm, block: Block) -> Layer:
    keywords = named(num_groups=m.num_groups, epsilon=m.eps, use_bias=m.affine, use_scale=m.affine)
    return Layer("GroupNorm", positional(num_features=m.num_channels) + keywords)


@converts(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def batch_norm(m: nn.BatchNorm2d, block: Block) -> Layer | None:
    """Converts BatchNorm; torch's running variance is that of a sample, Flax's that
    of the batch.
    """
    if not m.track_running_stats:
        return None
    sizes = positional(num_features=m.num_features)
    keywords = named(epsilon=m.eps, use_bias=m.affine, use_scale=m.affine)
    if m.momentum is None:
        return Layer("CumulativeBatchNorm", sizes + keywords, is_snippet=True)
    return Layer("BatchNorm", sizes + named(momentum=round(1 - m.momentum, 12)) + keywords)


@converts(nn.Dropout)
def dropout(m: nn.Dropout, block: Block) -> Layer:
    return Layer("Dropout", positional(rate=m.p))


@converts(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def conv(m: nn.Conv2d, block: Block) -> Layer | None:
    if m.padding_mode != "zeros" or block.inputs[0].meta["val"].ndim != len(m.kernel_size) + 2:
        return None
    pads = m.padding
    if isinstance(pads, tuple):
        pads = "VALID" if not any(pads) else single(pads)
    else:
        pads = pads.upper()
    keywords = named(
        strides=single(m.stride),
        padding=pads,
        kernel_dilation=single(m.dilation),
        feature_group_count=m.groups,
        use_bias=m.bias is not None,
    )
    sizes = positional(in_features=m.in_channels, out_features=m.out_channels)
    return Layer("Conv", [*sizes, ("kernel_size", tuple(m.kernel_size), False), *keywords])


@converts(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def conv_transpose(m: nn.ConvTranspose2d, block: Block) -> Layer | None:
    if m.groups > 1:
        return None
    reach = [d * (k - 1) - p for d, k, p in zip(m.dilation, m.kernel_size, m.padding)]
    pads = tuple((r, r + o) for r, o in zip(reach, m.output_padding))
    keywords = named(
        strides=tuple(m.stride),
        padding=pads,
        kernel_dilation=single(m.dilation),
        use_bias=m.bias is not None,
        transpose_kernel=True,
    )
    sizes = positional(in_features=m.in_channels, out_features=m.out_channels)
    return Layer("ConvTranspose", [*sizes, ("kernel_size", tuple(m.kernel_size), True), *keywords])


@converts(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
def dropout_of_channels(m: nn.Dropout2d, block: Block) -> Layer | None:
    count = block.outputs[0].meta["val"].ndim
    axes = tuple(range(1, count - 1))
    return Layer("Dropout", positional(rate=m.p) + named(broadcast_dims=axes)) if axes else None


@converts(nn.LSTM, nn.GRU)
def recurrent(m: nn.LSTM, block: Block) -> Layer | None:
    if not m.batch_first or getattr(m, "proj_size", 0) or len(block.inputs) > 1:
        return None
    sizes = positional(input_size=m.input_size, hidden=m.hidden_size)
    keywords = [
        (k, v, False)
        for k, v, default in (
            ("num_layers", m.num_layers, 1),
            ("bidirectional", m.bidirectional, False),
            ("use_bias", m.bias, True),
        )
        if v != default
    ]
    return Layer(f"{type(m).__name__}Layers", sizes + keywords, is_snippet=True)


@converts(nn.MultiheadAttention)
def multihead(m: nn.MultiheadAttention, block: Block) -> Layer | None:
    if m.bias_k is not None or m.add_zero_attn or m.in_proj_weight is None:
        return None
    sizes = positional(embed_dim=m.embed_dim, num_heads=m.num_heads)
    keywords = [("dropout", m.dropout, False)] * bool(m.dropout)
    keywords += named(use_bias=m.in_proj_bias is not None)
    keywords += [("batch_first", False, False)] * (not m.batch_first)
    return Layer("MultiheadAttention", sizes + keywords, is_snippet=True)


# Activations that a module spells out are recognised by their values.
ACTIVATIONS = {
    "nnx.gelu(x)": lambda x: F.gelu(x, approximate="tanh"),
    "nnx.gelu(x, approximate=False)": F.gelu,
    "nnx.silu(x)": F.silu,
    "nnx.softplus(x)": F.softplus,
    "x * jnp.tanh(nnx.softplus(x))": F.mish,
    "nnx.relu(x) ** 2": lambda x: F.relu(x) ** 2,
    "x * nnx.sigmoid(1.702 * x)": lambda x: x * torch.sigmoid(1.702 * x),
}


def activation(block: Block) -> str | None:
    """Returns the activation, in terms of ``x``, that a module of elementwise operators computes.

    It is compared in double precision at some thousand places from -30 to 30.
    """
    names = {str(n.target).split(".")[1].strip("_") for n in block.nodes() if "." in str(n.target)}
    is_simple = len(block.inputs) == len(block.outputs) == 1 and len(block.items) > 1
    has_parameters = next(block.module.parameters(), None) is not None
    if not is_simple or not names <= same_layout or has_parameters:
        return None
    x = torch.cat([torch.linspace(-4, 4, 4001), torch.linspace(-30, 30, 601)]).double()
    try:
        with torch.no_grad():
            values = block.module(x)
    except Exception:  # it wants another kind of input, so it is none of these
        return None
    if not isinstance(values, torch.Tensor) or values.shape != x.shape:
        return None
    matches = lambda y: torch.allclose(values.double(), y, rtol=1e-12, atol=1e-13)
    return next((text for text, function in ACTIVATIONS.items() if matches(function(x))), None)


def constructor(layer: Layer, home: str) -> ast.Call:
    """Returns ``nnx.Linear(8, 16, use_bias=False)``, its numbers marked with their names."""
    values = [
        with_hints(value, name) for name, value, is_positional in layer.arguments if is_positional
    ]
    words = [
        ast.keyword(name, with_hints(value, name))
        for name, value, is_positional in layer.arguments
        if not is_positional
    ]
    name = layer.name if layer.is_snippet else f"{home}.{layer.name}"
    return ast.Call(ast.parse(name, mode="eval").body, values, words)


def with_hints(value: object, name: str, kind: str = "argument") -> ast.expr:
    """Returns a value as an expression, its numbers marked with the argument that they are."""
    expr = expression(value)
    if not isinstance(value, (bool, str)):
        for x in ast.walk(expr):
            if isinstance(x, ast.Constant) and not hasattr(x, "hint"):
                x.hint, x.kind = name, kind  # type: ignore[attr-defined]
    return expr


def with_table_hints(expr: ast.expr) -> ast.expr:
    """Marks the numbers in the expression of a table, 0, 1 and 2 left out."""
    for x in ast.walk(expr):
        value = x.value if isinstance(x, ast.Constant) else 0
        if isinstance(value, (int, float)) and value not in {0, 1, 2}:
            name = "size" if isinstance(value, int) else "base"
            x.hint, x.kind = name, "table"  # type: ignore[attr-defined]
    return expr


def with_path(expr: ast.expr, path: str, kind: str = "") -> ast.expr:
    """Marks the numbers with the attribute that they make."""
    for x in ast.walk(expr):
        if hasattr(x, "hint") and not hasattr(x, "path"):
            x.path, x.kind = path, kind or x.kind  # type: ignore[attr-defined]
    return expr
