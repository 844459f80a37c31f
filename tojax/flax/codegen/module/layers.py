"""Flax's own layers where they mean what torch's do."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tojax.flax.codegen.graph.submodule_tree import Block
from tojax.flax.codegen.python.templates import expression


@dataclass(frozen=True)
class Layer:
    """A layer of Flax.

    Attributes:
      name: its class.
      arguments: (name, value, whether positional) of the constructor.
      own: whether the file has to bring it: a snippet, whose name it has.
    """

    name: str
    arguments: list[tuple[str, Any, bool]] = field(default_factory=list)
    own: bool = False


_makers: dict[type, Callable[[Any, Block], Layer | None]] = {}


def makes(*classes: type) -> Callable:
    def register(function: Callable) -> Callable:
        for cls in classes:
            _makers[cls] = function
        return function

    return register


def layer_of(block: Block) -> Layer | None:
    """The layer that a block's module is, None where Flax has none that means the same."""
    maker = _makers.get(type(block.module))
    return maker(block.module, block) if maker and block.outputs else None


def positional(**values: Any) -> list[tuple[str, Any, bool]]:
    return [(name, value, True) for name, value in values.items()]


def named(**values: Any) -> list[tuple[str, Any, bool]]:
    """The arguments that differ from Flax's defaults."""
    defaults = {
        "use_bias": True,
        "use_scale": True,
        "strides": 1,
        "feature_group_count": 1,
        "kernel_dilation": 1,
        "padding": "SAME",
    }
    return [(k, v, False) for k, v in values.items() if k not in defaults or v != defaults[k]]


def bare(values: Any) -> Any:
    """One number for all dimensions."""
    values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    return values[0] if len(set(values)) == 1 else values


@makes(nn.Linear)
def linear(m: nn.Linear, block: Block) -> Layer:
    sizes = positional(in_features=m.in_features, out_features=m.out_features)
    return Layer("Linear", sizes + named(use_bias=m.bias is not None))


@makes(nn.Embedding)
def embedding(m: nn.Embedding, block: Block) -> Layer | None:
    if m.max_norm is not None:
        return None
    sizes = positional(num_embeddings=m.num_embeddings, features=m.embedding_dim)
    if m.padding_idx is None:
        return Layer("Embed", sizes)
    return Layer("PaddedEmbed", sizes + named(padding_idx=m.padding_idx), own=True)


@makes(nn.LayerNorm)
def layer_norm(m: nn.LayerNorm, block: Block) -> Layer | None:
    if len(m.normalized_shape) > 1:
        return None
    more = named(epsilon=m.eps, use_bias=m.bias is not None, use_scale=m.weight is not None)
    return Layer("LayerNorm", positional(num_features=m.normalized_shape[0]) + more)


@makes(nn.RMSNorm)
def rms_norm(m: nn.RMSNorm, block: Block) -> Layer | None:
    if len(m.normalized_shape) > 1 or m.eps is None:
        return None
    more = named(epsilon=m.eps, use_scale=m.weight is not None)
    return Layer("RMSNorm", positional(num_features=m.normalized_shape[0]) + more)


@makes(nn.GroupNorm)
def group_norm(m: nn.GroupNorm, block: Block) -> Layer:
    more = named(num_groups=m.num_groups, epsilon=m.eps, use_bias=m.affine, use_scale=m.affine)
    return Layer("GroupNorm", positional(num_features=m.num_channels) + more)


@makes(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def batch_norm(m: nn.BatchNorm2d, block: Block) -> Layer | None:
    """Its running variance is that of a sample, Flax's is that of the batch."""
    if not m.track_running_stats:
        return None
    sizes = positional(num_features=m.num_features)
    more = named(epsilon=m.eps, use_bias=m.affine, use_scale=m.affine)
    if m.momentum is None:
        return Layer("CumulativeBatchNorm", sizes + more, own=True)
    return Layer("BatchNorm", sizes + named(momentum=round(1 - m.momentum, 12)) + more)


@makes(nn.Dropout)
def dropout(m: nn.Dropout, block: Block) -> Layer:
    return Layer("Dropout", positional(rate=m.p))


@makes(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def conv(m: nn.Conv2d, block: Block) -> Layer | None:
    if m.padding_mode != "zeros" or block.inputs[0].meta["val"].ndim != len(m.kernel_size) + 2:
        return None
    pads = m.padding
    if isinstance(pads, tuple):
        pads = "VALID" if not any(pads) else bare(pads)
    else:
        pads = pads.upper()
    more = named(
        strides=bare(m.stride),
        padding=pads,
        kernel_dilation=bare(m.dilation),
        feature_group_count=m.groups,
        use_bias=m.bias is not None,
    )
    sizes = positional(in_features=m.in_channels, out_features=m.out_channels)
    return Layer("Conv", [*sizes, ("kernel_size", tuple(m.kernel_size), False), *more])


@makes(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
def conv_transpose(m: nn.ConvTranspose2d, block: Block) -> Layer | None:
    if m.groups > 1:
        return None
    reach = [d * (k - 1) - p for d, k, p in zip(m.dilation, m.kernel_size, m.padding)]
    pads = tuple((r, r + o) for r, o in zip(reach, m.output_padding))
    more = named(
        strides=tuple(m.stride),
        padding=pads,
        kernel_dilation=bare(m.dilation),
        use_bias=m.bias is not None,
        transpose_kernel=True,
    )
    sizes = positional(in_features=m.in_channels, out_features=m.out_channels)
    return Layer("ConvTranspose", [*sizes, ("kernel_size", tuple(m.kernel_size), True), *more])


@makes(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
def dropout_of_channels(m: nn.Dropout2d, block: Block) -> Layer | None:
    count = block.outputs[0].meta["val"].ndim
    axes = tuple(range(1, count - 1))
    return Layer("Dropout", positional(rate=m.p) + named(broadcast_dims=axes)) if axes else None


@makes(nn.LSTM, nn.GRU)
def recurrent(m: nn.LSTM, block: Block) -> Layer | None:
    if not m.batch_first or getattr(m, "proj_size", 0) or len(block.inputs) > 1:
        return None
    sizes = positional(input_size=m.input_size, hidden=m.hidden_size)
    more = [
        (k, v, False)
        for k, v, plain in (
            ("num_layers", m.num_layers, 1),
            ("bidirectional", m.bidirectional, False),
            ("use_bias", m.bias, True),
        )
        if v != plain
    ]
    return Layer(f"{type(m).__name__}Layers", sizes + more, own=True)


@makes(nn.MultiheadAttention)
def multihead(m: nn.MultiheadAttention, block: Block) -> Layer | None:
    if m.bias_k is not None or m.add_zero_attn or m.in_proj_weight is None:
        return None
    sizes = positional(embed_dim=m.embed_dim, num_heads=m.num_heads)
    more = [("dropout", m.dropout, False)] * bool(m.dropout)
    more += named(use_bias=m.in_proj_bias is not None)
    more += [("batch_first", False, False)] * (not m.batch_first)
    return Layer("MultiheadAttention", sizes + more, own=True)


def constructor(layer: Layer, home: str) -> ast.Call:
    """``nnx.Linear(8, 16, use_bias=False)``; its numbers know what they are."""
    values = [hinted(value, name) for name, value, plain in layer.arguments if plain]
    words = [
        ast.keyword(name, hinted(value, name))
        for name, value, plain in layer.arguments
        if not plain
    ]
    name = layer.name if layer.own else f"{home}.{layer.name}"
    return ast.Call(ast.parse(name, mode="eval").body, values, words)


def hinted(value: Any, name: str, kind: str = "argument") -> ast.expr:
    """A value, its numbers marked: what each is called, and how the author's constructor has it."""
    found = expression(value)
    if not isinstance(value, (bool, str)):
        for x in ast.walk(found):
            if isinstance(x, ast.Constant) and not hasattr(x, "hint"):
                x.hint, x.kind = name, kind  # type: ignore[attr-defined]
    return found


def marked(expr: ast.expr) -> ast.expr:
    """The expression of a table, its numbers marked but for the smallest."""
    for x in ast.walk(expr):
        value = x.value if isinstance(x, ast.Constant) else 0
        if isinstance(value, (int, float)) and value not in {0, 1, 2}:
            name = "size" if isinstance(value, int) else "base"
            x.hint, x.kind = name, "table"  # type: ignore[attr-defined]
    return expr


def located(expr: ast.expr, path: str, kind: str = "") -> ast.expr:
    """The same, its numbers marked with the attribute that they make."""
    for x in ast.walk(expr):
        if hasattr(x, "hint") and not hasattr(x, "path"):
            x.path, x.kind = path, kind or x.kind  # type: ignore[attr-defined]
    return expr
